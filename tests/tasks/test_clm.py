"""Next tokens of running text: what is learned, how blocks are cut, and the same losses as transformers."""

import json
import math

import pytest

from footplate.tasks import TaskError
from tasks import running_text, small
from tasks.running_text import SAME_FLAGS, flags_of, job_of, rhymes, train, write_text


def test_the_next_word_is_learned(tmp_path):
    results = train(tmp_path, "clm", "gpt2", "--block_size", 32, "--num_train_epochs", 6)
    assert results["eval_accuracy"] > 0.8  # chance: 0.15 and less; the first word of a line cannot be known
    assert results["perplexity"] == math.exp(results["eval_loss"])
    written = small.results_of(tmp_path / "out")
    assert written["perplexity"] == results["perplexity"]
    assert {"train_samples", "eval_samples", "eval_accuracy", "epoch", "train_loss"} <= set(written)
    [answer] = small.answers_of(tmp_path / "out", "five six seven", flags=["max_new_tokens=1"])
    assert answer == {"text": "five six seven", "continuation": " eight"}
    long = " ".join(["one two three four five six seven eight"] * 40)  # more than the model has places for
    [answer] = small.answers_of(tmp_path / "out", long, flags=["max_new_tokens=1"])
    assert answer["continuation"] == " one"


def test_losses_are_those_of_transformers_to_the_last_bit(tmp_path):
    from transformers import default_data_collator

    train(tmp_path, "clm", "gpt2", "--block_size", 16, *SAME_FLAGS)

    def features(rows, tokenizer):
        tokens = rows.map(lambda part: tokenizer(part["text"]), batched=True, remove_columns=["text"])
        return tokens.map(running_text.blocks_of(16, has_labels=True), batched=True)

    def measure(prediction):
        labels, guesses = prediction.label_ids[:, 1:].reshape(-1), prediction.predictions[:, :-1].reshape(-1)
        return {"accuracy": float((labels == guesses).mean())}

    running_text.train_by_transformers(
        *(tmp_path, "AutoModelForCausalLM", "gpt2", features, lambda _: default_data_collator, measure),
        keep_linebreaks=True,
    )
    running_text.check_same_results(tmp_path)


def test_the_first_percent_of_rows_are_evaluated_on_and_samples_count_blocks(tmp_path):
    file = write_text(tmp_path / "train.txt", [f"line {number}" for number in range(100)])
    words = [*small.from_scratch("gpt2"), "--block_size", 8, "--validation_split_percentage", 10]
    words += flags_of(tmp_path, file)
    job = job_of("clm", *words)
    # rows are taken away even if nothing is evaluated: a run must not change because of --do_eval
    assert job.rows["train"][0]["text"] == "line 10\n"
    blocks = job.features["train"]
    assert job.recipe.processor.decode(blocks[0]["input_ids"]).startswith("line 10\nline 11")
    assert all(len(block) == 8 for block in blocks["input_ids"])
    assert blocks[0]["labels"] == blocks[0]["input_ids"]
    job = job_of("clm", *words, "--max_train_samples", 5, "--max_eval_samples", 1, "--do_eval")
    assert (len(job.features["train"]), len(job.features["validation"])) == (5, 1)
    assert list(job.rows["validation"]["text"]) == [f"line {number}\n" for number in range(10)]


@pytest.mark.parametrize(
    ("task", "kind", "length"), [("clm", "gpt2", "--block_size"), ("mlm", "bert", "--max_seq_length")]
)
def test_streamed_rows_train_and_evaluate(tmp_path, task, kind, length):
    words = (length, 16, "--streaming", "--max_steps", 30, "--max_eval_samples", 6)
    results = train(tmp_path, task, kind, *words)
    assert 0 < results["eval_loss"] < 4  # untrained: 5.7
    assert results["perplexity"] == math.exp(results["eval_loss"])


def test_a_stream_is_split_so_that_no_row_is_lost():
    from datasets import Dataset

    from footplate.tasks.common.reading import split_off

    rows = Dataset.from_dict({"number": list(range(250))}).to_iterable_dataset()
    train_rows, taken = (sorted(row["number"] for row in part) for part in split_off(rows, 5))
    assert taken == [*range(5), *range(100, 105), *range(200, 205)]
    assert sorted(train_rows + taken) == list(range(250))


def test_blocks_do_not_depend_on_the_number_of_cores(tmp_path, monkeypatch):
    from footplate.tasks.common import preparing

    file = write_text(tmp_path / "train.txt", rhymes(120, 0))
    words = [*small.from_scratch("gpt2"), "--block_size", 16, *flags_of(tmp_path, file)]
    made = []
    for rows_per_process in (1000, 50):
        monkeypatch.setattr(preparing, "ROWS_PER_PROCESS", rows_per_process)
        cache = ("--cache_dir", tmp_path / str(rows_per_process))
        made.append(job_of("clm", *words, *cache).features["train"][:])
    assert made[0] == made[1]


def test_text_shorter_than_a_block_names_the_remedy(tmp_path):
    with pytest.raises(TaskError, match=r"shorter than one block of 512 tokens.*--block_size"):
        train(tmp_path, "clm", "gpt2", "--block_size", 512, lines=rhymes(10, 0))


def test_a_row_without_text_is_named(tmp_path):
    rows = [{"text": "one two three"}, *({"text": "five six"} for _ in range(20)), {"text": None}]
    file = small.write_lines(tmp_path / "train.jsonl", rows)
    words = [*small.from_scratch("gpt2"), *flags_of(tmp_path, file, "--validation_file", file)]
    words += ["--block_size", 8, "--num_train_epochs", 1]
    with pytest.raises(TaskError, match=r"train\.jsonl: 1 of 22 rows .* row 22: there is no text in 'text'"):
        small.run("clm", *words)
    small.run("clm", *words, "--skip_bad_rows")
    assert json.loads((tmp_path / "out" / "train_results.json").read_text())["train_samples"] > 0
