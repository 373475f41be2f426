"""Continuing a text: what is written is what `generate` writes; and what is wrong with flags."""

import pytest
import torch
import transformers

from footplate.tasks import TaskError
from footplate.tasks.common.contrastive import search_contrastively
from tasks import pretrained, small

COUNTING = "one two three four five six seven eight nine ten"


@pytest.fixture(scope="module")
def counter(tmp_path_factory):
    """A folder with a model that has learned to count."""
    folder = tmp_path_factory.mktemp("counter")
    texts = [" ".join(COUNTING.split()[start : start + 5]) for start in range(6)]
    pretrained.save_model(folder, "gpt2", "AutoModelForCausalLM", [f" {COUNTING}"] * 20, vocab_size=340)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        for text in texts:
            row = torch.tensor([tokenizer.encode(f" {text}", add_special_tokens=False)])
            model(row, labels=row).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    return folder


def write(folder, *words):
    return small.run("generation", "--model_name_or_path", folder, "--model_type", "gpt2", *words)


def texts_in(capsys):
    """The texts that were printed."""
    parts = capsys.readouterr().out.split("=== GENERATED SEQUENCE ")[1:]
    return [part.split("===\n", 1)[1].removesuffix("\n") for part in parts]


def test_a_text_goes_on_as_the_model_has_learned(counter, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert write(counter, "--prompt", " two three", "--length", 2, "--k", 1) == {}
    assert texts_in(capsys) == [" two three four five"]  # chance: 1 in 100,000
    assert list(tmp_path.iterdir()) == []  # no folder of results


def test_several_texts_are_those_of_generate_with_the_same_seed(counter, capsys):
    flags = ["--temperature", 1.5, "--k", 20, "--p", 0.95, "--repetition_penalty", 1.2, "--seed", 7]
    write(counter, "--prompt", " five", "--num_return_sequences", 3, "--length", 6, *flags, "--no_cuda")
    tokenizer = transformers.AutoTokenizer.from_pretrained(counter)
    model = transformers.AutoModelForCausalLM.from_pretrained(counter)
    row = tokenizer.encode(" five", add_special_tokens=False, return_tensors="pt")
    transformers.set_seed(7)
    written = model.generate(
        input_ids=row,
        max_length=6 + row.shape[1],
        temperature=1.5,
        top_k=20,
        top_p=0.95,
        repetition_penalty=1.2,
        do_sample=True,
        num_return_sequences=3,
    )
    expected = tokenizer.batch_decode(written, clean_up_tokenization_spaces=True)
    assert texts_in(capsys) == expected
    assert len(set(expected)) > 1


def test_a_text_ends_before_the_stop_word_and_hides_the_prefix(counter, capsys):
    flags = ["--prompt", " two", "--prefix", " one", "--k", 1, "--length", 3, "--stop_token", " five"]
    write(counter, *flags)
    write(counter, *flags[:-1], "zero", "--jit")  # a word that does not come up cuts nothing
    assert texts_in(capsys) == [" two three four", " two three four five"]


def test_contrastive_search_without_a_penalty_takes_the_likeliest_token(counter, capsys):
    write(counter, "--prompt", " two three", "--length", 3, "--k", 4, "--penalty_alpha", 0.01)
    assert texts_in(capsys) == [" two three four five six"]
    model = transformers.AutoModelForCausalLM.from_pretrained(counter)
    row = torch.tensor([[7, 8, 9]])
    greedy = model.generate(
        row, attention_mask=torch.ones_like(row), max_new_tokens=8, do_sample=False, pad_token_id=0
    )
    with torch.no_grad():
        assert torch.equal(search_contrastively(model, row, 8, 4, 0.0), greedy)
        assert not torch.equal(search_contrastively(model, row, 8, 4, 0.9), greedy)


def test_the_prompt_is_asked_for_and_long_ones_are_refused(counter, capsys, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda text: " two three")
    write(counter, "--length", 1, "--k", 1)
    assert texts_in(capsys) == [" two three four"]
    with pytest.raises(TaskError, match=r"The prompt has \d+ tokens, the model reads 128"):
        write(counter, "--prompt", " one" * 200)
    with pytest.raises(TaskError, match="--k 0: --penalty_alpha chooses among several words"):
        write(counter, "--prompt", " one", "--penalty_alpha", 0.6)
    with pytest.raises(TaskError, match="cannot be loaded from nowhere"):
        write("nowhere", "--prompt", " one")
