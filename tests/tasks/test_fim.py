"""Missing middles: how texts are taken apart, what is learned, and the same losses as transformers."""

import numpy as np
import pytest
import torch

from tasks import running_text, small
from tasks.running_text import COMMON, SAME_FLAGS, echoes, flags_of, job_of, rhymes, train, write_text

NAMES = ("<fim_prefix>", "<fim_middle>", "<fim_suffix>")


def test_words_are_learned_in_texts_that_are_taken_apart(tmp_path):
    results = train(tmp_path, "fim", "gpt2", "--block_size", 32, "--num_train_epochs", 6)
    assert results["eval_accuracy"] > 0.6  # chance: 0.15 and less; where a part begins cannot be known
    assert small.results_of(tmp_path / "out")["perplexity"] == results["perplexity"]


def test_a_gap_is_filled_in(tmp_path):
    words = ("--block_size", 32, "--num_train_epochs", 10, "--fim_rate", 0.9)
    train(tmp_path, "fim", "gpt2", *words, lines=echoes(200, 0))
    lines = ("four four four<FILL_ME> four four four", "two two two<FILL_ME> two two two", "no gap")
    *filled, refused = small.answers_of(tmp_path / "out", *lines, flags=["max_new_tokens=3"])
    assert [answer["middle"].split()[0] for answer in filled] == ["four", "two"]  # chance: one of eight each
    assert "write <FILL_ME> once" in refused["error"]


def take_apart(tokenizer, seed, fim_rate, fim_spm_rate):
    """The same change of texts, by the same draws."""
    draws = np.random.RandomState(seed)
    prefix, middle, suffix = tokenizer.convert_tokens_to_ids(list(NAMES))

    def change(ids):
        if not draws.binomial(1, fim_rate):
            return ids
        low, high = sorted(draws.randint(0, len(ids) + 1, 2))
        first, second, third = ids[:low], ids[low:high], ids[high:]
        third = third[: max(0, len(third) - 3)]
        if draws.binomial(1, fim_spm_rate):
            return [prefix, suffix, *third, middle, *first, *second]
        return [prefix, *first, suffix, *third, middle, *second]

    def apply(rows):
        ids = [change(row) for row in rows["input_ids"]]
        return {"input_ids": ids, "attention_mask": [[1] * len(row) for row in ids]}

    return apply


def test_losses_are_those_of_transformers_to_the_last_bit(tmp_path):
    from transformers import default_data_collator

    words = ("--block_size", 16, "--fim_rate", 0.8, "--fim_spm_rate", 0.4)
    train(tmp_path, "fim", "gpt2", *words, *SAME_FLAGS)

    def change(model, tokenizer):  # the tokenizer of the finished run knows the tokens already
        known = model.get_input_embeddings().weight.detach()[: len(tokenizer) - 4].clone()
        model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=1)
        apart = known - known.mean(0)
        covariance = 1e-5 * (apart.T @ apart) / len(known)
        drawn = torch.distributions.MultivariateNormal(known.mean(0), covariance_matrix=covariance)
        model.get_input_embeddings().weight.data[-4:] = torch.stack([drawn.sample() for _ in range(4)])

    def features(rows, tokenizer):
        tokens = rows.map(lambda part: tokenizer(part["text"]), batched=True, remove_columns=["text"])
        # datasets would hash the generator, which is not the same twice
        tokens = tokens.map(take_apart(tokenizer, 7, 0.8, 0.4), batched=True, new_fingerprint=f"a{len(rows)}")
        return tokens.map(running_text.blocks_of(16, has_labels=True), batched=True)

    def measure(prediction):
        labels, guesses = prediction.label_ids[:, 1:], prediction.predictions[:, :-1]
        return {"accuracy": float((labels == guesses).mean())}

    running_text.train_by_transformers(
        *(tmp_path, "AutoModelForCausalLM", "gpt2", features, lambda _: default_data_collator, measure),
        keep_linebreaks=True,
        change=change,
        num_new_tokens=4,
    )
    running_text.check_same_results(tmp_path)


@pytest.mark.parametrize("spm_rate", [0.0, 1.0])
def test_each_text_keeps_its_tokens_and_length(tmp_path, spm_rate):
    file = write_text(tmp_path / "train.txt", rhymes(60, 0))
    words = [*small.from_scratch("gpt2"), *flags_of(tmp_path, file, "--validation_file", file)]
    words += ["--block_size", 16, "--fim_rate", 1, "--fim_spm_rate", spm_rate]
    recipe = job_of("fim", *words).recipe
    tokens = recipe.processor("one two three four five six seven eight")["input_ids"]
    prefix, middle, suffix = recipe.processor.convert_tokens_to_ids(list(NAMES))
    kept = 0
    for _ in range(50):
        made = recipe.move_middle(tokens)
        assert made[0] == prefix
        at_suffix, at_middle = made.index(suffix), made.index(middle)
        assert at_suffix < at_middle
        if spm_rate:
            assert at_suffix == 1
            whole = made[at_middle + 1 :] + made[2:at_middle]
        else:
            whole = made[1:at_suffix] + made[at_middle + 1 :] + made[at_suffix + 1 : at_middle]
        assert whole == tokens[: len(whole)]  # what is lost is lost at the end
        kept += len(made) == len(tokens)
    assert kept > 20


def test_what_is_evaluated_on_does_not_depend_on_what_was_prepared_before(tmp_path):
    file = write_text(tmp_path / "train.txt", rhymes(60, 0))
    words = [*small.from_scratch("gpt2"), "--train_file", file, "--validation_file", file, *COMMON]
    words += ["--output_dir", tmp_path / "out", "--block_size", 16, "--do_train", "--do_eval"]
    first = job_of("fim", *words).features["validation"][:]
    again = job_of("fim", *words).features["validation"][:]
    assert first == again == job_of("fim", *words, "--overwrite_cache").features["validation"][:]
