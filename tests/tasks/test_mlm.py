"""Hidden words: what is learned, from blocks and from lines, and the same losses as transformers."""

import pytest

from footplate.tasks import TaskError
from tasks import running_text, small
from tasks.running_text import COMMON, SAME_FLAGS, echoes, job_of, rhymes, train, write_text


def test_hidden_words_are_found(tmp_path):
    words = ("--line_by_line", "--max_seq_length", 14, "--num_train_epochs", 15, "--mlm_probability", 0.3)
    results = train(tmp_path, "mlm", "bert", *words, lines=echoes(200, 0))
    assert results["eval_accuracy"] > 0.9  # chance: 0.13
    assert small.results_of(tmp_path / "out")["perplexity"] == results["perplexity"]
    line = "four four <mask> four four four [MASK] four four four four four"
    filled, refused = small.answers_of(tmp_path / "out", line, "four four")
    assert filled["text"] == " ".join(["four"] * 12)
    assert [guess[0]["word"] for guess in filled["masks"]] == ["four", "four"]
    assert filled["masks"][0][0]["score"] > 0.5
    assert len(filled["masks"][0]) == 5
    assert "hides no word" in refused["error"]


def measure(prediction):
    counts = prediction.label_ids != -100
    return {"accuracy": float((prediction.label_ids[counts] == prediction.predictions[counts]).mean())}


@pytest.mark.parametrize("by_line", [False, True])
def test_losses_are_those_of_transformers_to_the_last_bit(tmp_path, by_line):
    from transformers import DataCollatorForLanguageModeling

    words = ("--max_seq_length", 16, "--mlm_probability", 0.2, *(["--line_by_line"] if by_line else []))
    train(tmp_path, "mlm", "bert", *words, *SAME_FLAGS)

    def features(rows, tokenizer):
        options = {"truncation": True, "max_length": 16} if by_line else {}
        tokens = rows.map(
            lambda part: tokenizer(part["text"], return_special_tokens_mask=True, **options),
            batched=True,
            remove_columns=["text"],
        )
        return tokens if by_line else tokens.map(running_text.blocks_of(16, has_labels=False), batched=True)

    running_text.train_by_transformers(
        *(tmp_path, "AutoModelForMaskedLM", "bert", features),
        *(lambda tokenizer: DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.2), measure),
        keep_linebreaks=False,
    )
    running_text.check_same_results(tmp_path)


def test_empty_lines_are_left_out_and_lines_are_cut_and_padded(tmp_path):
    file = write_text(tmp_path / "train.txt", ["one two", "", "   ", *rhymes(2, 0)])
    words = [*small.from_scratch("bert"), "--train_file", file, "--validation_file", file, *COMMON]
    words += ["--output_dir", tmp_path / "out", "--do_train", "--line_by_line", "--max_seq_length", 8]
    rows = job_of("mlm", *words).features["train"]
    assert [len(ids) for ids in rows["input_ids"]] == [4, 8, 8]
    rows = job_of("mlm", *words, "--pad_to_max_length").features["train"]
    assert [sum(mask) for mask in rows["attention_mask"]] == [4, 8, 8]
    assert [len(ids) for ids in rows["input_ids"]] == [8, 8, 8]


def test_a_tokenizer_without_a_mask_is_refused(tmp_path):
    from transformers import AutoTokenizer

    train(tmp_path, "mlm", "bert", "--max_seq_length", 16, "--max_steps", 1)
    folder = tmp_path / "without"
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    tokenizer.mask_token = None
    tokenizer.save_pretrained(folder)
    words = ["--model_name_or_path", tmp_path / "out", "--tokenizer_name", folder, "--do_train", *COMMON]
    words += ["--train_file", tmp_path / "train.txt", "--output_dir", tmp_path / "again"]
    with pytest.raises(TaskError, match=r"no mask token.*footplate run clm"):
        small.run("mlm", *words, "--max_seq_length", 16)
