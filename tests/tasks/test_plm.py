"""Tokens in any order: what is learned, and the same losses as transformers."""

import pytest

from footplate.tasks import TaskError
from tasks import running_text, small
from tasks.running_text import SAME_FLAGS, echoes, flags_of, job_of, rhymes, train, write_text


def test_tokens_are_predicted_from_the_others(tmp_path):
    words = ("--line_by_line", "--max_seq_length", 14, "--num_train_epochs", 5)
    results = train(tmp_path, "plm", "xlnet", *words, lines=echoes(200, 0))
    assert results["perplexity"] < 4  # chance: 8 words and the end
    assert small.results_of(tmp_path / "out")["perplexity"] == results["perplexity"]
    line = "four four four four four four"
    [answer] = small.answers_of(tmp_path / "out", line, flags=["max_new_tokens=2"])
    assert answer == {"text": line, "continuation": " four four"}


def test_losses_are_those_of_transformers_to_the_last_bit(tmp_path):
    from transformers import DataCollatorForPermutationLanguageModeling

    train(tmp_path, "plm", "xlnet", "--max_seq_length", 16, "--plm_probability", 0.2, *SAME_FLAGS)

    def features(rows, tokenizer):
        tokens = rows.map(lambda part: tokenizer(part["text"]), batched=True, remove_columns=["text"])
        return tokens.map(running_text.blocks_of(16, has_labels=False), batched=True)

    def collator(tokenizer):
        return DataCollatorForPermutationLanguageModeling(tokenizer, plm_probability=0.2, max_span_length=5)

    running_text.train_by_transformers(
        *(tmp_path, "AutoModelForCausalLM", "xlnet", features, collator, None), keep_linebreaks=False
    )
    running_text.check_same_results(tmp_path)


def test_xlnet_is_what_random_weights_are_of(tmp_path):
    file = write_text(tmp_path / "train.txt", rhymes(60, 0))
    start = ["--config_overrides", small.SIZES["xlnet"], "--train_tokenizer", "--vocab_size", 300]
    words = flags_of(tmp_path, file, "--max_seq_length", 16)
    assert job_of("plm", *start, *words).trainer.model.config.model_type == "xlnet"


def test_an_odd_length_is_refused_and_odd_lines_are_filled_up(tmp_path):
    with pytest.raises(TaskError, match="--max_seq_length 15: the length must be even"):
        train(tmp_path, "plm", "xlnet", "--max_seq_length", 15)
    file = write_text(tmp_path / "odd.txt", ["one", "one two", *rhymes(1, 0)])
    words = [*small.from_scratch("xlnet"), *flags_of(tmp_path / "odd", file, "--validation_file", file)]
    words += ["--line_by_line", "--max_seq_length", 8]
    job = job_of("plm", *words)
    assert [len(ids) for ids in job.features["train"]["input_ids"]] == [4, 4, 8]
    assert job.features["train"][0]["input_ids"][-1] == job.recipe.processor.pad_token_id
