"""Real models of each task, and what a person is shown of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import nn

import tiny
from footplate import Trainer, TrainerCallback
from footplate.samples.batch import SampleBatch
from footplate.samples.callback import SampleCallback
from footplate.samples.formatters import format_plain, pick_formatter
from footplate.samples.text import TextReader
from footplate.samples.token_formatters import best_span

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXT = "고양이가 매트 위에 앉았다 누가 어디에 ? the cat sat on a mat who where"
WORDS = [*SPECIAL, *TEXT.split()]
WORDS += [f"word{number}" for number in range(50 - len(WORDS))]
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = dict(zip(("pad", "unk", "cls", "sep", "mask"), SPECIAL, strict=True))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, **{f"{name}_token": token for name, token in names.items()}
    )


class Listener(TrainerCallback):
    """Keeps what trackers would be given."""

    def __init__(self) -> None:
        self.blocks: list[tuple[int, str, list[dict[str, Any]]]] = []

    def on_samples(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.blocks.append((state.global_step, kwargs["source"], kwargs["samples"]))


def bert(kind: str, **config: Any) -> Any:
    torch.manual_seed(0)
    settings = transformers.BertConfig(vocab_size=50, max_position_embeddings=32, **SIZES, **config)
    return getattr(transformers, kind)(settings)


def shown(
    folder: Any, model: Any, data: Any, tokenizer: Any = None, kind: type[Trainer] = Trainer, **settings: Any
) -> list[dict[str, Any]]:
    """The rows that an evaluation of a model shows."""
    listener = Listener()
    args = tiny.arguments(folder, **settings)
    callbacks = [SampleCallback(every=None, count=4), listener]
    trainer = kind(model, args, eval_dataset=data, processing_class=tokenizer, callbacks=callbacks)
    trainer.evaluate()
    assert [source for _, source, _ in listener.blocks] == ["eval"]
    rows = listener.blocks[0][2]
    assert all(isinstance(value, (str, int, float, type(None))) for row in rows for value in row.values())
    return rows


def answers(model: Any, **inputs: Any) -> Any:
    model.eval()
    with torch.no_grad():
        return model(**inputs)


def encode(tokenizer: Any, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def test_a_class_is_shown_by_its_name(tmp_path, tokenizer):
    model = tiny.bert_classifier(id2label={0: "나쁨", 1: "보통", 2: "좋음"})
    data = tiny.classification_data(20)
    rows = shown(tmp_path, model, data, tokenizer)
    assert len(rows) == 4
    for row in rows:
        sample = data[row["row"]]
        logits = answers(model, input_ids=torch.tensor([sample["input_ids"]])).logits[0]
        assert row["prediction"] == model.config.id2label[int(logits.argmax())]
        assert row["target"] == model.config.id2label[sample["labels"]]
        assert row["input"] == " ".join(
            WORDS[token] for token in sample["input_ids"] if token >= len(SPECIAL)
        )
        assert row["confidence"] == pytest.approx(float(logits.softmax(-1).max()), abs=1e-4)
        assert row["correct"] == (row["prediction"] == row["target"])


def test_several_classes_at_once_are_listed(tmp_path):
    model = tiny.bert_classifier(id2label={0: "a", 1: "b", 2: "c"}, problem_type="multi_label_classification")
    data = tiny.multi_label_data(20)
    for row in shown(tmp_path, model, data):
        sample = data[row["row"]]
        logits = answers(model, input_ids=torch.tensor([sample["input_ids"]])).logits[0]
        chosen = ["abc"[index] for index in range(3) if logits[index] > 0]
        wanted = ["abc"[index] for index in range(3) if sample["labels"][index]]
        assert row["prediction"] == (", ".join(chosen) or "(none)")
        assert row["target"] == (", ".join(wanted) or "(none)")


def test_a_regression_shows_values_and_no_verdict(tmp_path):
    model = tiny.bert_classifier(num_labels=1)
    data = [{"input_ids": row, "labels": row[0] / 7} for row in tiny.token_rows(20)]
    for row in shown(tmp_path, model, data):
        sample = data[row["row"]]
        value = answers(model, input_ids=torch.tensor([sample["input_ids"]])).logits.item()
        assert row["prediction"] == pytest.approx(value, abs=1e-6)
        assert row["target"] == pytest.approx(sample["labels"])
        assert row["input"] == " ".join(map(str, sample["input_ids"]))  # no tokenizer: the ids
        assert "correct" not in row


def test_tags_stand_beside_their_tokens_and_wrong_ones_are_marked(tmp_path, tokenizer):
    names = {0: "O", 1: "B-LOC", 2: "I-LOC"}
    model = bert("BertForTokenClassification", id2label=names)
    data = tiny.token_data(20)
    for row in shown(tmp_path, model, data, tokenizer):
        sample = data[row["row"]]
        tags = answers(model, input_ids=torch.tensor([sample["input_ids"]])).logits[0].argmax(-1).tolist()
        triples = zip(sample["input_ids"], tags, sample["labels"], strict=True)
        counted = [triple for triple in triples if triple[2] != -100]
        assert row["target"] == " ".join(f"{WORDS[token]}/{names[right]}" for token, _, right in counted)
        assert row["prediction"] == " ".join(
            f"{WORDS[token]}/{names[tag]}{'' if tag == right else '!'}" for token, tag, right in counted
        )
        assert row["correct"] == all(tag == right for _, tag, right in counted)


def test_an_answer_span_is_shown_with_question_and_passage(tmp_path, tokenizer):
    model = bert("BertForQuestionAnswering")
    question, passage = "누가 어디에 앉았다 ?", "고양이가 매트 위에 앉았다"
    encoded = dict(tokenizer(f"[CLS] {question} [SEP] {passage} [SEP]"))
    encoded["token_type_ids"] = [0] * 6 + [1] * 5
    data = [
        {**encoded, "start_positions": 6, "end_positions": 8},
        {**encoded, "start_positions": 0, "end_positions": 0},
    ]
    rows = shown(tmp_path, model, data, tokenizer)
    assert [row["input"] for row in rows] == [question] * 2
    assert [row["context"] for row in rows] == [passage] * 2
    assert [row["target"] for row in rows] == ["고양이가 매트 위에", "(no answer)"]
    output = answers(model, **{name: torch.tensor([values]) for name, values in encoded.items()})
    scores = {
        (first, last): float(output.start_logits[0, first] + output.end_logits[0, last])
        for first in range(11)
        for last in range(first, 11)
    }
    first, last = max(scores, key=lambda span: scores[span])
    expected = tokenizer.decode(encoded["input_ids"][first : last + 1], skip_special_tokens=True)
    assert [row["prediction"] for row in rows] == [expected if last > 0 else "(no answer)"] * 2


def test_spans_are_split_by_separator_where_there_are_no_segments(tokenizer):
    model = bert("BertForQuestionAnswering")
    ids = torch.tensor([encode(tokenizer, "[CLS] who ? [SEP] the cat [SEP]")])
    scores = torch.zeros(1, 7).index_fill_(1, torch.tensor([4]), 5.0)
    batch = SampleBatch({"input_ids": ids}, None, (scores, scores), model, TextReader(tokenizer))
    (row,) = pick_formatter(batch)(batch)
    assert row == {"input": "who ?", "context": "the cat", "target": None, "prediction": "the"}


def test_a_span_ends_where_it_starts_or_later_and_outside_padding():
    starts, ends = torch.zeros(50), torch.zeros(50)
    starts[20], ends[10], ends[22], ends[49] = 12.0, 9.0, 1.0, 9.0
    attended = torch.arange(50) < 45
    assert best_span(starts, ends, attended) == (20, 22)
    ends[44] = 3.0
    assert best_span(starts, ends, attended) == (20, 44)


def test_a_causal_model_shows_prompt_right_words_and_likeliest_words(tmp_path, tokenizer):
    model = tiny.gpt()
    data = [{"input_ids": row, "labels": [-100] * 5 + row[5:]} for row in tiny.token_rows(20)]
    for row in shown(tmp_path, model, data, tokenizer):
        ids = data[row["row"]]["input_ids"]
        guesses = answers(model, input_ids=torch.tensor([ids])).logits[0].argmax(-1).tolist()
        assert row["input"] == tokenizer.decode(ids[:5], skip_special_tokens=True)
        assert row["target"] == tokenizer.decode(ids[5:], skip_special_tokens=True)
        assert row["prediction"] == tokenizer.decode(guesses[4:-1], skip_special_tokens=True)
        hits = sum(guess == right for guess, right in zip(guesses[4:-1], ids[5:], strict=True))
        assert row["hits"] == f"{hits}/7"


def test_a_masked_model_shows_the_hidden_words(tmp_path, tokenizer):
    model = bert("BertForMaskedLM")
    text = encode(tokenizer, "[CLS] the cat sat on a mat [SEP]")
    hidden = [4 if place in (2, 6) else token for place, token in enumerate(text)]
    labels = [token if place in (2, 6) else -100 for place, token in enumerate(text)]
    (row,) = shown(tmp_path, model, [{"input_ids": hidden, "labels": labels}], tokenizer)
    assert row["input"] == "[CLS] the [MASK] sat on a [MASK] [SEP]"
    assert row["target"] == "cat mat"
    guesses = answers(model, input_ids=torch.tensor([hidden])).logits[0].argmax(-1)
    assert row["prediction"] == tokenizer.decode(guesses[[2, 6]], skip_special_tokens=True)


def t5() -> Any:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=50, decoder_start_token_id=0, pad_token_id=0, eos_token_id=3, **sizes
        )
    )


def translation_data() -> list[dict[str, Any]]:
    rows = tiny.token_rows(6)
    return [{"input_ids": row, "labels": [*row[:4][::-1], 3, -100]} for row in rows]


def test_a_translation_shows_text_on_both_sides(tmp_path, tokenizer):
    model, data = t5(), translation_data()
    for row in shown(tmp_path, model, data, tokenizer):
        sample = data[row["row"]]
        assert row["input"] == tokenizer.decode(sample["input_ids"], skip_special_tokens=True)
        assert row["target"] == tokenizer.decode(sample["labels"][:4], skip_special_tokens=True)
        tensors = {name: torch.tensor([values]) for name, values in sample.items()}
        guesses = answers(model, **tensors).logits[0].argmax(-1)[:5]
        assert row["prediction"] == tokenizer.decode(guesses, skip_special_tokens=True)


class Generating(Trainer):
    """Predicts what the model writes."""

    def prediction_step(
        self, model: Any, inputs: Any, prediction_loss_only: bool, ignore_keys: Any = None
    ) -> Any:
        inputs = self._prepare_inputs(inputs)
        written = model.generate(input_ids=inputs["input_ids"], max_new_tokens=6)
        return None, written, inputs["labels"]


def test_generated_ids_are_shown_as_text(tmp_path, tokenizer):
    model, data = t5(), translation_data()
    for row in shown(tmp_path, model, data, tokenizer, kind=Generating):
        sample = data[row["row"]]
        model.eval()
        written = model.generate(input_ids=torch.tensor([sample["input_ids"]]), max_new_tokens=6)[0]
        assert row["prediction"] == tokenizer.decode(written, skip_special_tokens=True)
        assert row["target"] == tokenizer.decode(sample["labels"][:4], skip_special_tokens=True)


def test_a_decoder_that_continues_shows_its_prompt_alone(tokenizer):
    ids = torch.tensor([encode(tokenizer, "who sat on the mat ? the cat")])
    labels = ids.clone()
    labels[:, :6] = -100
    written = torch.tensor([encode(tokenizer, "a cat")])
    batch = SampleBatch(
        {"input_ids": ids, "labels": labels}, labels[:, 6:], written, tiny.gpt(), TextReader(tokenizer)
    )
    (row,) = pick_formatter(batch)(batch)
    assert row == {
        "input": "who sat on the mat ?",
        "target": "the cat",
        "prediction": "a cat",
        "correct": False,
    }


def test_multiple_choice_shows_the_beginning_once_and_the_choices_apart(tmp_path, tokenizer):
    model = bert("BertForMultipleChoice")
    texts = ["the cat sat on a mat", "the cat sat where ?", "the cat sat on who"]
    padded = [[*encode(tokenizer, text), 0, 0][:6] for text in texts]
    (row,) = shown(tmp_path, model, [{"input_ids": padded, "labels": 1}], tokenizer)
    chosen = int(answers(model, input_ids=torch.tensor([padded])).logits.argmax())
    assert row["input"] == "the cat sat"
    assert row["target"] == "1: where ?"
    assert row["prediction"] == f"{chosen}: {texts[chosen].removeprefix('the cat sat ')}"


def test_images_and_sounds_are_shown_by_their_shape(tmp_path):
    torch.manual_seed(0)
    vit = transformers.ViTForImageClassification(
        transformers.ViTConfig(image_size=8, patch_size=4, num_labels=2, **SIZES)
    )
    data = [{"pixel_values": torch.rand(3, 8, 8), "labels": index % 2} for index in range(6)]
    rows = shown(tmp_path, vit, data)
    assert {row["input"] for row in rows} == {"float32 3x8x8"}
    assert {row["target"] for row in rows} <= {"LABEL_0", "LABEL_1"}

    ast = transformers.ASTForAudioClassification(
        transformers.ASTConfig(
            num_mel_bins=16,
            max_length=16,
            patch_size=8,
            frequency_stride=8,
            time_stride=8,
            num_labels=2,
            **SIZES,
        )
    )
    data = [{"input_values": torch.rand(16, 16), "labels": index % 2} for index in range(6)]
    assert {row["input"] for row in shown(tmp_path, ast, data)} == {"float32 16x16"}


# ---- plain modules ----


def test_a_plain_regression_shows_numbers(tmp_path):
    data = tiny.regression_data(8)
    for row in shown(tmp_path, tiny.Regression(), data):
        x, label = data[row["row"]].values()
        assert row["input"] == pytest.approx(x.item())
        assert row["prediction"] == pytest.approx(0.5 * x.item() - 1)
        assert row["target"] == pytest.approx(label.item())


class TwoClasses(nn.Module):
    """Takes and gives tuples."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.layer(x)
        return nn.functional.cross_entropy(logits, y), logits


def test_tuples_are_understood(tmp_path):
    data = [(torch.tensor([0.5, index, 2.0]), index % 2) for index in range(6)]
    model = TwoClasses()

    def collate(samples: Any) -> Any:
        return torch.stack([x for x, _ in samples]), torch.tensor([y for _, y in samples])

    listener = Listener()
    trainer = Trainer(
        model,
        tiny.arguments(tmp_path),
        data_collator=collate,
        eval_dataset=data,
        callbacks=[SampleCallback(every=None, count=3), listener],
    )
    trainer.evaluate()
    for row in listener.blocks[0][2]:
        x, y = data[row["row"]]
        assert row["input"] == f"0.5 {row['row']} 2"
        assert (row["target"], row["prediction"]) == (str(y), str(int(model.layer(x).argmax())))


class Maps(nn.Module):
    """A task that nothing here knows: a map for an image."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 2, 1)

    def forward(self, image: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layer(image)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def test_an_unknown_task_is_shown_by_shapes(tmp_path):
    data = [{"image": torch.rand(1, 4, 5), "labels": torch.zeros(4, 5).long()} for _ in range(5)]
    rows = shown(tmp_path, Maps(), data)
    assert {(row["input"], row["target"], row["prediction"]) for row in rows} == {
        ("float32 1x4x5", "int64 4x5", "float32 2x4x5")
    }


def test_a_model_without_labels_or_names_is_shown_as_numbers():
    batch = SampleBatch({"x": torch.tensor([[1.0, 2.0]])}, None, torch.tensor([[0.5, 0.25]]))
    assert pick_formatter(batch) is format_plain
    assert format_plain(batch) == [{"input": "1 2", "target": None, "prediction": "0.5 0.25"}]


def test_hidden_states_are_not_taken_for_tags():
    states = torch.rand(2, 4, 16)
    model = bert("BertModel")
    batch = SampleBatch({"input_ids": torch.ones(2, 4).long()}, None, states, model)
    assert pick_formatter(batch) is format_plain
