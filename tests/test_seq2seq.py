"""Generation at evaluation: beside the original with an encoder, and beyond it on decoders alone."""

from __future__ import annotations

import inspect
import json
import logging
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn

import footplate
from footplate.seq2seq import Seq2SeqTrainer

VOCABULARY, PAD = 40, 0
# many ends of text, so that random models end their texts at different lengths
ENDS = [1, *range(5, VOCABULARY, 6)]


class Digits:
    """A tokenizer as far as padding and decoding go: like the real ones, it cannot decode -100."""

    pad_token_id, eos_token_id, padding_side = PAD, 1, "right"
    model_input_names = ("input_ids", "attention_mask")

    def pad(self, rows: list[dict[str, Any]], return_tensors: str = "pt", **kwargs: Any) -> dict[str, Any]:
        width = max(len(row["input_ids"]) for row in rows)
        fills = {"input_ids": PAD, "attention_mask": 0}
        batch = {
            name: [[*row.get(name, [1] * len(row["input_ids"])), *[fill] * width][:width] for row in rows]
            for name, fill in fills.items()
        }
        return {name: torch.tensor(value) for name, value in batch.items()}

    def batch_decode(self, rows: Any) -> list[str]:
        if np.min(rows) < 0:
            raise OverflowError("out of range integral type conversion attempted")
        return [" ".join(str(token) for token in row if token > 1) for row in rows]


def t5() -> nn.Module:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    tokens = {"decoder_start_token_id": PAD, "pad_token_id": PAD, "eos_token_id": 1}
    config = transformers.T5Config(vocab_size=VOCABULARY, initializer_factor=3.0, **sizes, **tokens)
    return varied(transformers.T5ForConditionalGeneration(config))


def bart() -> nn.Module:
    torch.manual_seed(0)
    layers = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "init_std": 0.5}
    sizes = {"d_model": 16, "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    tokens = {"pad_token_id": PAD, "bos_token_id": 2, "eos_token_id": 1, "decoder_start_token_id": 1}
    layers["forced_eos_token_id"] = None
    config = transformers.BartConfig(
        vocab_size=VOCABULARY, max_position_embeddings=64, **layers, **sizes, **tokens
    )
    return varied(transformers.BartForConditionalGeneration(config))


def bert_to_bert() -> nn.Module:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    part = transformers.BertConfig(vocab_size=VOCABULARY, initializer_range=0.5, pad_token_id=PAD, **sizes)
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(part, part)
    config.decoder_start_token_id, config.pad_token_id = 2, PAD
    model = transformers.EncoderDecoderModel(config=config)
    model.generation_config.decoder_start_token_id, model.generation_config.pad_token_id = 2, PAD
    return varied(model)


def varied(model: Any) -> nn.Module:
    """The model, with many tokens that end a text, and no way to say one token for ever."""
    model.generation_config.eos_token_id, model.generation_config.no_repeat_ngram_size = ENDS, 1
    return model


def gpt(vocabulary: int = VOCABULARY, **config: Any) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32}
    tokens = {"bos_token_id": 2, "eos_token_id": 1, "pad_token_id": PAD}
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=vocabulary, **{**sizes, **tokens, **config})
    )


def pairs(num_samples: int, seed: int = 1) -> list[dict[str, list[int]]]:
    """Texts and their targets, of random length."""
    generator = torch.Generator().manual_seed(seed)

    def tokens(low: int, high: int) -> list[int]:
        length = int(torch.randint(low, high, (1,), generator=generator))
        return torch.randint(3, VOCABULARY, (length,), generator=generator).tolist()

    return [{"input_ids": tokens(3, 9), "labels": [*tokens(2, 7), 1]} for _ in range(num_samples)]


def copies(num_samples: int, seed: int = 1) -> list[dict[str, list[int]]]:
    """For a decoder: a few tokens, a mark, and the answer, which is the last of them, and an end."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(num_samples):
        length = int(torch.randint(1, 5, (1,), generator=generator))
        prompt = [*torch.randint(3, 11, (length,), generator=generator).tolist(), 2]
        answer = [prompt[-2]] * (1 + prompt[-2] % 2) + [1]
        rows.append({"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer})
    return rows


def settings(library: Any, folder: Any, **changed: Any) -> Any:
    quiet = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    usual = {"per_device_eval_batch_size": 4, "per_device_train_batch_size": 4, "predict_with_generate": True}
    return library.Seq2SeqTrainingArguments(output_dir=str(folder), **{**quiet, **usual, **changed})


def token_counts(prediction: Any) -> dict[str, float]:
    """Numbers that any difference in a generated token, or in a counted label, would show in."""
    predictions = np.where(prediction.predictions == -100, PAD, prediction.predictions)
    places = np.arange(1, predictions.shape[1] + 1)
    labels = np.where(prediction.label_ids == -100, PAD, prediction.label_ids)
    return {
        "sum": float((predictions * places).sum()),
        "length": float((predictions != PAD).sum(1).mean()),
        "target": float(labels.sum()),
    }


def build(library: Any, model: Any, folder: Any, data: Any = None, **changed: Any) -> Any:
    parts = {
        name: changed.pop(name)
        for name in ("compute_metrics", "processing_class", "data_collator", "train_dataset", "model_init")
        if name in changed
    }
    if "data_collator" not in parts:
        kind = library.DataCollatorForSeq2Seq
        parts["data_collator"] = kind(Digits(), model=model if changed.pop("shifts", False) else None)
    parts.setdefault("compute_metrics", token_counts)
    cls = Seq2SeqTrainer if library is footplate else transformers.Seq2SeqTrainer
    args = settings(library, folder, **changed)
    return cls(model=model, args=args, eval_dataset=data, **parts)


def assert_same_output(ours: Any, theirs: Any) -> None:
    """Equal tokens and labels, but for the filling: theirs goes on to a length of 20, with pad and -100."""
    width = ours.predictions.shape[1]
    cleaned = np.where(theirs.predictions == -100, PAD, theirs.predictions)
    np.testing.assert_array_equal(ours.predictions, cleaned[:, :width])
    assert (cleaned[:, width:] == PAD).all()
    counts = ours.label_ids != -100
    np.testing.assert_array_equal(
        ours.label_ids[counts], theirs.label_ids[:, : ours.label_ids.shape[1]][counts]
    )
    assert np.isin(theirs.label_ids[:, : ours.label_ids.shape[1]][~counts], (-100, PAD)).all()
    timed = ("_runtime", "_per_second", "_time")
    assert {key: value for key, value in ours.metrics.items() if not key.endswith(timed)} == {
        key: value for key, value in theirs.metrics.items() if not key.endswith(timed)
    }


# ---- beside the original ----


@pytest.mark.parametrize("make", [t5, bart, bert_to_bert])
@pytest.mark.parametrize(
    ("arguments", "call"),
    [
        ({"generation_max_length": 9}, {}),
        ({"generation_max_length": 24, "generation_num_beams": 2}, {"early_stopping": True}),
        ({"generation_max_length": 9}, {"max_length": 24, "num_beams": 2, "length_penalty": -3.0}),
        ({}, {"max_new_tokens": 6}),
        ({"generation_max_length": 12, "label_smoothing_factor": 0.1, "shifts": True}, {}),
    ],
    ids=["max_length", "beams", "of_the_call", "new_tokens", "smoothed"],
)
def test_generated_tokens_labels_and_metrics_equal_the_original(tmp_path, make, arguments, call):
    outputs = [
        build(library, make(), tmp_path, **arguments).predict(pairs(12), **call)
        for library in (footplate, transformers)
    ]
    assert_same_output(*outputs)
    lengths = (outputs[0].predictions != PAD).sum(1)
    assert len(set(lengths.tolist())) > 1  # the texts are ragged, so the padding was put to the test


def test_where_every_text_has_full_length_the_arrays_are_the_originals_own(tmp_path):
    outputs = []
    for library in (footplate, transformers):
        model = t5()
        model.generation_config.eos_token_id = None
        model.generation_config.max_length = 8
        outputs.append(build(library, model, tmp_path).predict(pairs(8)))
    np.testing.assert_array_equal(outputs[0].predictions, outputs[1].predictions)
    assert outputs[0].predictions.shape == (8, 8)


def test_training_with_an_evaluation_each_epoch_logs_what_the_original_logs(tmp_path):
    histories = []
    for library in (footplate, transformers):
        schedule = {
            "eval_strategy": "epoch",
            "num_train_epochs": 2,
            "logging_steps": 1,
            "learning_rate": 0.01,
        }
        data = {"train_dataset": pairs(12), "data": pairs(8, seed=2)}
        trainer = build(library, t5(), tmp_path, **data, **schedule, generation_max_length=10)
        trainer.train()
        kept = ("loss", "eval_loss", "eval_sum", "eval_length", "eval_target", "grad_norm")
        histories.append([{k: v for k, v in row.items() if k in kept} for row in trainer.state.log_history])
    assert histories[0] == histories[1]
    assert sum("eval_sum" in row for row in histories[0]) == 2


@pytest.mark.parametrize("name", ["evaluate", "predict", "prediction_step", "load_generation_config"])
def test_methods_take_what_the_originals_take(name):
    ours, theirs = (
        inspect.signature(getattr(cls, name)).parameters.values()
        for cls in (Seq2SeqTrainer, transformers.Seq2SeqTrainer)
    )
    assert [(p.name, p.kind, p.default) for p in ours] == [(p.name, p.kind, p.default) for p in theirs]


def test_the_constructor_takes_what_the_originals_takes():
    ours, theirs = (
        inspect.signature(cls).parameters for cls in (Seq2SeqTrainer, transformers.Seq2SeqTrainer)
    )
    assert set(theirs) <= set(ours)


def test_generation_config_comes_as_object_file_or_folder_and_is_saved_with_the_model(tmp_path):
    config = transformers.GenerationConfig(
        max_length=11, num_beams=2, eos_token_id=ENDS, pad_token_id=PAD, decoder_start_token_id=PAD
    )
    config.save_pretrained(tmp_path / "settings")
    renamed = tmp_path / "mine.json"
    renamed.write_text((tmp_path / "settings" / "generation_config.json").read_text())
    expected = build(transformers, t5(), tmp_path, generation_config=config).predict(pairs(8))
    for given in (config, str(tmp_path / "settings"), tmp_path / "settings", str(renamed)):
        trainer = build(footplate, t5(), tmp_path / "run", generation_config=given)
        assert_same_output(trainer.predict(pairs(8)), expected)
    assert trainer.model.generation_config is not config
    trainer.save_model()
    saved = json.loads((tmp_path / "run" / "generation_config.json").read_text())
    assert (saved["max_length"], saved["num_beams"]) == (11, 2)


def test_without_generation_it_is_a_trainer(tmp_path):
    outputs = []
    for library in (footplate, transformers):
        trainer = build(library, t5(), tmp_path, pairs(8), predict_with_generate=False, compute_metrics=None)
        outputs.append(
            (trainer.evaluate()["eval_loss"], trainer.predict(pairs(8), max_length=4).predictions[0])
        )
    assert outputs[0][0] == outputs[1][0]
    np.testing.assert_array_equal(outputs[0][1], outputs[1][1])


def test_batches_without_labels_give_text_and_no_loss(tmp_path):
    rows = [{"input_ids": row["input_ids"]} for row in pairs(6)]
    output = build(footplate, t5(), tmp_path, data_collator=Digits().pad, generation_max_length=9).predict(
        rows
    )
    assert output.label_ids is None
    assert "test_loss" not in output.metrics
    assert output.predictions.shape[0] == 6


def test_decoder_inputs_made_of_labels_do_not_reach_generation(tmp_path):
    plain, shifted = (
        build(footplate, t5(), tmp_path, generation_max_length=9, shifts=shifts).predict(pairs(8))
        for shifts in (False, True)
    )
    np.testing.assert_array_equal(plain.predictions, shifted.predictions)
    assert plain.metrics["test_loss"] == shifted.metrics["test_loss"]


def test_a_decoder_prompt_is_continued_and_its_ignored_tokens_are_padding(tmp_path):
    def with_prompt(filling: int) -> Any:
        collate = footplate.DataCollatorForSeq2Seq(Digits())

        def call(rows: list[dict[str, Any]]) -> Any:
            prompts = torch.tensor([[PAD, 4], [PAD, filling]] * 2)
            mask = torch.tensor([[1, 1], [1, 0]] * 2)
            batch = {name: value for name, value in collate(rows).items() if name != "labels"}
            return {**batch, "decoder_input_ids": prompts, "decoder_attention_mask": mask}

        return build(footplate, t5(), tmp_path, data_collator=call, generation_max_length=9).predict(pairs(4))

    ignored, padded = with_prompt(-100), with_prompt(PAD)
    np.testing.assert_array_equal(ignored.predictions, padded.predictions)
    assert ignored.predictions[0, :2].tolist() == [PAD, 4]


# ---- different on purpose ----


def test_predictions_of_ragged_batches_can_be_decoded_and_are_as_wide_as_the_longest_text(tmp_path):
    texts = []

    def decode(prediction: Any) -> dict[str, float]:
        texts.extend(Digits().batch_decode(prediction.predictions))
        return {"texts": len(texts)}

    def short() -> Any:
        model = t5()
        model.generation_config.max_length = 3  # the original pads with the pad token up to here alone
        return model

    arguments = {"generation_max_length": 30, "per_device_eval_batch_size": 1}
    output = build(footplate, short(), tmp_path, compute_metrics=decode, **arguments).predict(pairs(9))
    assert output.metrics["test_texts"] == 9
    assert Digits().batch_decode(output.predictions) == texts
    lengths = (output.predictions[:, 1:] != PAD).sum(1)
    assert lengths.min() < lengths.max() == output.predictions.shape[1] - 1 < 20
    theirs = build(transformers, short(), tmp_path, compute_metrics=None, **arguments).predict(pairs(9))
    with pytest.raises(OverflowError):
        Digits().batch_decode(theirs.predictions)


class Lengths:
    """A metric object: it sees batch after batch, never the whole set."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def reset(self) -> None:
        self.lengths.clear()

    def update(self, predictions: Any, labels: Any) -> None:
        self.lengths += (predictions != PAD).sum(1).tolist()

    def compute(self) -> dict[str, float]:
        return {"length": sum(self.lengths) / len(self.lengths)}


@pytest.mark.parametrize("metrics", [None, Lengths()], ids=["none", "object"])
def test_predictions_can_be_decoded_whoever_measures_them(tmp_path, metrics):
    trainer = build(footplate, t5(), tmp_path, compute_metrics=metrics, per_device_eval_batch_size=1)
    output = trainer.predict(pairs(9), max_length=30)
    assert len(set((output.predictions != PAD).sum(1).tolist())) > 1
    assert len(Digits().batch_decode(output.predictions)) == 9


def test_labels_are_filled_with_the_ignored_index_alone_so_that_a_mask_counts_right(tmp_path):
    data = pairs(9)
    output = build(footplate, t5(), tmp_path, generation_max_length=9).predict(data)
    assert [row[row != -100].tolist() for row in output.label_ids] == [row["labels"] for row in data]


def test_a_short_last_batch_weighs_what_it_holds(tmp_path):
    data = pairs(6)  # 4 rows and 2
    ours, theirs = (
        build(library, t5(), tmp_path, generation_max_length=9) for library in (footplate, transformers)
    )
    losses = [ours.predict(part).metrics["test_loss"] for part in (data[:4], data[4:])]
    assert ours.predict(data).metrics["test_loss"] == pytest.approx(
        (4 * losses[0] + 2 * losses[1]) / 6, abs=1e-6
    )
    assert theirs.predict(data).metrics["test_loss"] == pytest.approx(sum(losses) / 2, abs=1e-6)


def test_generation_leaves_the_models_own_settings_alone(tmp_path):
    model = t5()
    before = model.generation_config.to_dict()
    trainer = build(footplate, model, tmp_path, pairs(8))
    widths = {trainer.predict(pairs(8)).predictions.shape[1] for _ in range(2)}
    trainer.evaluate(num_beams=2, max_length=7)
    assert model.generation_config.to_dict() == before
    assert len(widths) == 1
    build(transformers, model, tmp_path).predict(pairs(8))
    assert model.generation_config.to_dict() != before


def test_settings_of_a_call_hold_for_each_of_several_sets(tmp_path):
    widths = []

    def measure(prediction: Any) -> dict[str, float]:
        widths.append(prediction.predictions.shape[1])
        return {"width": widths[-1]}

    model = t5()
    model.generation_config.eos_token_id = None
    sets = {"one": pairs(4), "two": pairs(5)}
    trainer = build(footplate, model, tmp_path, sets, generation_max_length=9, compute_metrics=measure)
    trainer.evaluate(max_length=6)
    assert widths == [6, 6]
    trainer.evaluate()
    assert widths == [6, 6, 9, 9]


def test_the_settings_are_said_once_and_a_length_that_nobody_chose_is_a_warning(tmp_path, caplog):
    with caplog.at_level(logging.INFO, logger="footplate.seq2seq"):
        trainer = build(footplate, t5(), tmp_path, pairs(4), generation_max_length=9, generation_num_beams=2)
        trainer.evaluate()
        trainer.evaluate()
    (line,) = [record for record in caplog.records if "generates with" in record.message]
    assert line.levelno == logging.INFO
    assert "max_length=9" in line.message
    assert "num_beams=2" in line.message
    caplog.clear()
    build(footplate, t5(), tmp_path)
    (line,) = [record for record in caplog.records if "generates with" in record.message]
    assert (line.levelno, "20 tokens" in line.message) == (logging.WARNING, True)


def test_a_new_model_of_model_init_gets_the_generation_config_too(tmp_path):
    config = transformers.GenerationConfig(max_length=6, pad_token_id=PAD, decoder_start_token_id=PAD)
    arguments = {"train_dataset": pairs(4), "generation_config": config, "max_steps": 1}
    trainer = build(footplate, None, tmp_path, pairs(4), model_init=t5, **arguments)
    first = trainer.model
    trainer.train()
    assert trainer.model is not first
    assert trainer.predict(pairs(4)).predictions.shape[1] == 6


# ---- decoders alone ----


def right_answers(prediction: Any) -> dict[str, float]:
    """The share of generated answers that are right to the last token."""
    labels = np.where(prediction.label_ids == -100, PAD, prediction.label_ids)
    width = max(prediction.predictions.shape[1], labels.shape[1])
    rows = [np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in (prediction.predictions, labels)]
    return {"exact": float((rows[0] == rows[1]).all(axis=1).mean())}


def copy_trainer(model: nn.Module, folder: Any, **changed: Any) -> Any:
    usual = {
        "compute_metrics": right_answers,
        "data_collator": footplate.DataCollatorForSeq2Seq(Digits()),
        "generation_config": transformers.GenerationConfig(
            max_new_tokens=4, pad_token_id=PAD, eos_token_id=1, bos_token_id=2
        ),
        "per_device_train_batch_size": 32,
        "per_device_eval_batch_size": 16,
        "learning_rate": 5e-3,
        "lr_scheduler_type": "constant",
    }
    return build(footplate, model, folder, copies(48, seed=9), **{**usual, **changed})


def test_a_decoder_learns_to_answer_and_the_best_model_is_chosen_by_what_it_generates(tmp_path):
    trainer = copy_trainer(
        gpt(vocabulary=12, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0),
        tmp_path,
        train_dataset=copies(640),
        num_train_epochs=5,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model="exact",
    )
    before = trainer.evaluate()["eval_exact"]
    trainer.train()
    scores = [row["eval_exact"] for row in trainer.state.log_history if "eval_exact" in row]
    assert before < 0.2
    assert max(scores) > 0.9
    assert trainer.state.best_metric == max(scores)
    assert trainer.evaluate()["eval_exact"] == max(scores)
    output = trainer.predict(copies(10, seed=5))
    answers = [row["labels"][row["labels"].count(-100) :] for row in copies(10, seed=5)]
    assert [[token for token in row if token not in (-100, PAD)] for row in output.label_ids] == answers


def test_a_run_with_a_generation_config_resumes_to_the_same_weights_and_scores(tmp_path):
    def run(folder: str, **changed: Any) -> Any:
        schedule = {"max_steps": 6, "eval_strategy": "steps", "eval_steps": 2, "save_steps": 4}
        model = gpt(vocabulary=12)
        return copy_trainer(
            model,
            tmp_path / folder,
            train_dataset=copies(64),
            save_strategy="steps",
            **{**schedule, **changed},
        )

    whole = run("whole")
    whole.train()
    again = run("whole")
    again.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-4"))
    pairs_of_weights = zip(whole.model.parameters(), again.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs_of_weights)
    scores = [
        [row["eval_exact"] for row in trainer.state.log_history if "eval_exact" in row]
        for trainer in (whole, again)
    ]
    assert scores[0] == scores[1]
    assert len(scores[0]) == 3


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_decoders_text_is_what_it_generates_for_the_prompt_alone(tmp_path, side):
    model = gpt(initializer_range=0.5)
    model.generation_config.eos_token_id = ENDS
    data = copies(7)
    tokenizer = Digits()
    tokenizer.padding_side = side

    def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        width = max(len(row["input_ids"]) for row in rows)

        def fill(values: list[int], filling: int) -> list[int]:
            padding = [filling] * (width - len(values))
            return values + padding if side == "right" else padding + values

        return {
            "input_ids": torch.tensor([fill(row["input_ids"], PAD) for row in rows]),
            "attention_mask": torch.tensor([fill([1] * len(row["input_ids"]), 0) for row in rows]),
            "labels": torch.tensor([fill(row["labels"], -100) for row in rows]),
        }

    trainer = build(footplate, model, tmp_path, data_collator=collate)
    output = trainer.predict(data, max_new_tokens=8)
    model.eval()
    for row, generated in zip(data, output.predictions, strict=True):
        prompt = torch.tensor([row["input_ids"][: row["labels"].count(-100)]])
        alone = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=8)
        expected = alone[0, prompt.shape[1] :].tolist()
        assert generated.tolist() == expected + [PAD] * (len(generated) - len(expected))
    assert output.predictions.shape[1] == max(len(row[row != PAD]) for row in output.predictions)


def test_the_loss_of_a_decoder_is_that_of_the_whole_text(tmp_path):
    generating = copy_trainer(gpt(), tmp_path).evaluate()["eval_loss"]
    plain = copy_trainer(gpt(), tmp_path, predict_with_generate=False, compute_metrics=None).evaluate()
    assert generating == plain["eval_loss"]


def test_several_texts_per_prompt_and_outputs_with_scores_are_cut_as_well(tmp_path):
    trainer = copy_trainer(gpt(initializer_range=0.5), tmp_path, compute_metrics=None)
    call = {"num_beams": 2, "num_return_sequences": 2, "return_dict_in_generate": True, "output_scores": True}
    output = trainer.predict(copies(6), **call)
    assert output.predictions.shape[0] == 12
    assert output.predictions.shape[1] <= 4
    np.testing.assert_array_equal(
        output.predictions[::2], trainer.predict(copies(6), num_beams=2).predictions[:, :4]
    )


# ---- wrapped models and modules of one's own ----


@pytest.mark.parametrize("make", [t5, gpt], ids=["t5", "gpt"])
def test_an_adapter_generates_what_the_merged_model_generates(tmp_path, make):
    import peft

    kind = "SEQ_2_SEQ_LM" if make is t5 else "CAUSAL_LM"
    target = ["q", "v"] if make is t5 else ["c_attn"]
    adapted = peft.get_peft_model(
        make(),
        peft.LoraConfig(
            task_type=kind, r=4, target_modules=target, fan_in_fan_out=make is gpt, lora_dropout=0.0
        ),
    )
    data = pairs(8) if make is t5 else copies(8)
    config = transformers.GenerationConfig(
        max_new_tokens=7, eos_token_id=ENDS, pad_token_id=PAD, decoder_start_token_id=PAD, bos_token_id=2
    )
    arguments = {"max_steps": 5, "learning_rate": 0.1, "generation_config": config}
    trainer = build(footplate, adapted, tmp_path, data, train_dataset=data, **arguments)
    untrained = trainer.evaluate()
    trainer.train()
    output = trainer.predict(data)
    assert output.metrics["test_loss"] != untrained["eval_loss"]
    merged = build(footplate, adapted.merge_and_unload(), tmp_path, generation_config=config).predict(data)
    np.testing.assert_array_equal(output.predictions, merged.predictions)
    assert output.predictions.shape[1] <= 8


class Wrapper(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)


def test_a_model_inside_a_wrapper_generates(tmp_path):
    inside, bare = (
        build(footplate, model, tmp_path, generation_max_length=9).predict(pairs(8))
        for model in (Wrapper(t5()), t5())
    )
    np.testing.assert_array_equal(inside.predictions, bare.predictions)
    assert inside.metrics["test_loss"] == bare.metrics["test_loss"]


class Echo(nn.Module):
    """Says its input again, as often as it is told; knows nothing of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(
        self, input_ids: torch.Tensor, attention_mask: Any = None, labels: Any = None
    ) -> dict[str, Any]:
        return {"loss": self.weight * (input_ids.float().mean()), "logits": input_ids.float() * self.weight}

    def generate(self, input_ids: torch.Tensor, times: int = 1, **kwargs: Any) -> torch.Tensor:
        return input_ids.repeat(1, times)


def test_a_module_of_ones_own_generates_with_whatever_it_takes(tmp_path):
    data = pairs(5)
    trainer = build(footplate, Echo(), tmp_path, processing_class=Digits(), per_device_eval_batch_size=1)
    output = trainer.predict(data, times=2)
    assert [row[row != PAD].tolist() for row in output.predictions] == [row["input_ids"] * 2 for row in data]


def test_a_decoder_of_ones_own_says_that_its_loss_shifts_labels(tmp_path):
    class Decoder(Echo):
        loss_shifts_labels = True

        def generate(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            lengths = attention_mask.sum(1, keepdim=True)
            return torch.cat([input_ids, lengths], dim=1)

    data = copies(6)
    output = build(footplate, Decoder(), tmp_path, processing_class=Digits()).predict(data)
    assert output.predictions[:, 0].tolist() == [row["labels"].count(-100) for row in data]


def test_a_forward_that_hides_its_labels_still_has_its_prompt_cut_and_its_loss_given(tmp_path):
    class Hidden(nn.Module):
        loss_shifts_labels = True

        def __init__(self) -> None:
            super().__init__()
            self.inside = gpt()

        def forward(self, input_ids: torch.Tensor, **rest: Any) -> Any:
            return self.inside(input_ids, **rest)

        def generate(self, **inputs: Any) -> torch.Tensor:
            return self.inside.generate(**inputs)

    parts = {"processing_class": Digits(), "remove_unused_columns": False}
    call = {"max_new_tokens": 3, "pad_token_id": PAD}
    hidden, bare = (
        build(footplate, model, tmp_path, **parts).predict(copies(6), **call) for model in (Hidden(), gpt())
    )
    np.testing.assert_array_equal(hidden.predictions, bare.predictions)
    np.testing.assert_array_equal(hidden.label_ids, bare.label_ids)
    assert hidden.metrics["test_loss"] == bare.metrics["test_loss"]


def test_an_overridden_loss_and_a_loss_function_reach_the_evaluation_that_generates(tmp_path):
    class Doubled(Seq2SeqTrainer):
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False) -> Any:
            loss, outputs = super().compute_loss(model, inputs, return_outputs=True)
            return (2 * loss, outputs) if return_outputs else 2 * loss

    args = settings(footplate, tmp_path, generation_max_length=9)
    collate = footplate.DataCollatorForSeq2Seq(Digits())
    plain, doubled = (cls(model=t5(), args=args, data_collator=collate) for cls in (Seq2SeqTrainer, Doubled))
    loss = plain.predict(pairs(4)).metrics["test_loss"]
    assert doubled.predict(pairs(4)).metrics["test_loss"] == pytest.approx(2 * loss)

    def summed(outputs: Any, labels: Any, num_items_in_batch: Any) -> torch.Tensor:
        flat = outputs["logits"].flatten(0, 1), labels.flatten()
        return 3 * nn.functional.cross_entropy(*flat, reduction="sum") / num_items_in_batch

    shifting = footplate.DataCollatorForSeq2Seq(
        Digits(), model=t5()
    )  # the labels are taken out for the function
    own = Seq2SeqTrainer(model=t5(), args=args, data_collator=shifting, compute_loss_func=summed)
    assert own.predict(pairs(4)).metrics["test_loss"] == pytest.approx(3 * loss)


def test_a_prediction_step_of_its_own_takes_settings(tmp_path):
    trainer = build(footplate, t5(), tmp_path, pairs(4), generation_max_length=9)
    batch = next(iter(trainer.get_eval_dataloader()))
    _, generated, _ = trainer.prediction_step(trainer.model, batch, False, max_length=5)
    assert generated.shape[1] <= 5
    loss, generated, labels = trainer.prediction_step(trainer.model, batch, True)
    assert loss is not None
    assert generated is None
    assert labels is None
    padded = trainer._pad_tensors_to_max_len(torch.tensor([[7, 8]]), 4)
    assert padded.tolist() == [[7, 8, PAD, PAD]]


# ---- settings that cannot work ----


def no_pad() -> nn.Module:
    model = gpt(pad_token_id=None, eos_token_id=None)
    model.generation_config.eos_token_id = model.generation_config.pad_token_id = None
    return model


@pytest.mark.parametrize(
    ("make", "arguments", "named"),
    [
        (t5, {"prediction_loss_only": True}, "prediction_loss_only"),
        (t5, {"generation_config": "no/such/file.json"}, "generation_config"),
        (t5, {"generation_config": 7}, "generation_config"),
        (t5, {"generation_max_length": 0}, "generation_max_length"),
        (t5, {"generation_num_beams": 0}, "generation_num_beams"),
        (
            t5,
            {
                "generation_max_length": 9,
                "generation_config": transformers.GenerationConfig(max_new_tokens=3, pad_token_id=PAD),
            },
            "max_new_tokens",
        ),
        (
            t5,
            {
                "generation_num_beams": 2,
                "generation_config": transformers.GenerationConfig(num_return_sequences=3, num_beams=4),
            },
            "num_return_sequences",
        ),
        (
            t5,
            {"generation_max_length": 5, "generation_config": transformers.GenerationConfig(min_length=6)},
            "min_length",
        ),
        (lambda: nn.Linear(1, 1), {}, "predict_with_generate"),
        (no_pad, {}, "pad_token_id"),
        (gpt, {"generation_max_length": 3}, "generation_max_length"),
        (Echo, {"processing_class": Digits(), "generation_config": "no/such"}, "generation_config"),
    ],
)
def test_what_cannot_work_is_refused_by_its_name_before_anything_runs(tmp_path, make, arguments, named):
    with pytest.raises((ValueError, TypeError), match=named):
        build(footplate, make(), tmp_path, copies(6), **arguments)


def test_a_classifier_has_nothing_to_generate_with(tmp_path):
    config = transformers.BertConfig(
        vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    with pytest.raises(ValueError, match="predict_with_generate"):
        build(footplate, transformers.BertForSequenceClassification(config), tmp_path)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        ({"max_length": 9, "max_new_tokens": 5}, "max_new_tokens"),
        ({"num_return_sequences": 2}, "num_return_sequences"),
        ({"min_length": 12, "max_length": 9}, "min_length"),
    ],
)
def test_settings_of_a_call_that_contradict_each_other_are_refused(tmp_path, call, named):
    trainer = build(footplate, t5(), tmp_path, pairs(4), generation_max_length=9)
    with pytest.raises(ValueError, match=named):
        trainer.evaluate(**call)
    with pytest.raises(ValueError, match=named):
        trainer.predict(pairs(4), **call)


def test_a_generate_that_does_not_take_a_setting_is_named_before_step_1(tmp_path):
    class Fixed(Echo):
        def generate(self, input_ids: torch.Tensor) -> torch.Tensor:
            return input_ids

    with pytest.raises(ValueError, match="max_length"):
        build(footplate, Fixed(), tmp_path, processing_class=Digits(), generation_max_length=5)


def test_samples_without_a_prompt_are_refused(tmp_path):
    whole = [{"input_ids": row["input_ids"], "labels": row["input_ids"]} for row in copies(4)]
    with pytest.raises(ValueError, match="-100 over the prompt"):
        build(footplate, gpt(), tmp_path, whole)
    trainer = build(footplate, gpt(), tmp_path)
    with pytest.raises(ValueError, match="-100 over the prompt"):
        trainer.predict(whole)


def test_a_long_prompt_among_short_ones_is_named_when_it_comes(tmp_path):
    long = [{"input_ids": [4] * 12, "labels": [-100] * 11 + [1]}]
    trainer = build(footplate, gpt(), tmp_path, copies(4), generation_max_length=10)
    with pytest.raises(ValueError, match=r"generation_max_length\)=10 .* 11 tokens"):
        trainer.evaluate(long)


def test_a_metric_that_generation_does_not_give_is_refused_before_step_1(tmp_path):
    arguments = {"eval_strategy": "epoch", "metric_for_best_model": "rouge", "generation_max_length": 9}
    trainer = build(footplate, t5(), tmp_path, pairs(4), train_dataset=pairs(4), **arguments)
    with pytest.raises(ValueError, match="rouge"):
        trainer.train()
    assert trainer.state.global_step == 0


def test_settings_without_effect_and_text_that_nobody_looks_at_are_warned_of(tmp_path, caplog):
    build(footplate, t5(), tmp_path, predict_with_generate=False, generation_max_length=9)
    assert "generation_max_length has no effect" in caplog.text
    build(footplate, t5(), tmp_path, pairs(4), eval_strategy="epoch", compute_metrics=None)
    assert "the texts would not be used" in caplog.text


def test_arguments_that_say_nothing_about_generation_are_refused(tmp_path):
    with pytest.raises(TypeError, match="Seq2SeqTrainingArguments"):
        Seq2SeqTrainer(model=t5(), args=footplate.TrainingArguments(str(tmp_path)))


def test_batches_without_names_are_refused(tmp_path):
    parts = {"processing_class": Digits(), "data_collator": lambda rows: (torch.ones(len(rows), 2),)}
    trainer = build(footplate, Echo(), tmp_path, **parts, remove_unused_columns=False)
    with pytest.raises(TypeError, match="predict_with_generate"):
        trainer.predict(pairs(3))


# ---- settings that are None ----


def test_generation_settings_of_none_were_not_given(tmp_path):
    outputs = []
    for library in (footplate, transformers):
        trainer = build(library, t5(), tmp_path, pairs(8), generation_num_beams=2, generation_max_length=9)
        unset = {"num_beams": None, "max_length": None}
        assert trainer.evaluate(**unset)["eval_sum"] == trainer.evaluate()["eval_sum"]
        outputs.append(trainer.predict(pairs(8), **unset))
    assert_same_output(*outputs)


def own_evaluation(library: Any) -> Any:
    """A trainer as in the original's example for answers that are generated: it keeps settings by itself."""
    base = Seq2SeqTrainer if library is footplate else transformers.Seq2SeqTrainer

    class OwnEvaluation(base):
        def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix="eval", **gen_kwargs):
            gen_kwargs = gen_kwargs.copy()
            if gen_kwargs.get("max_length") is None and self.args.generation_max_length is not None:
                gen_kwargs["max_length"] = self.args.generation_max_length
            beams = gen_kwargs.get("num_beams")
            gen_kwargs["num_beams"] = self.args.generation_num_beams if beams is None else beams
            self._gen_kwargs = gen_kwargs
            loader = self.get_eval_dataloader(eval_dataset)
            return self.evaluation_loop(loader, "Evaluation", metric_key_prefix=metric_key_prefix)

    return OwnEvaluation


def test_a_subclass_that_writes_none_into_its_settings_generates(tmp_path):
    found = []
    for library in (footplate, transformers):
        usual = build(library, t5(), tmp_path, pairs(8), generation_max_length=9)
        parts = {"data_collator": usual.data_collator, "compute_metrics": token_counts}
        trainer = own_evaluation(library)(t5(), usual.args, eval_dataset=pairs(8), **parts)
        found.append(trainer.evaluate(num_beams=None).metrics["eval_sum"])
    assert found[0] == found[1]
