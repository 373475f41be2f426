import pytest
import torch

from footplate.demo.facts import FactsDataset, WordTokenizer, generate_examples
from footplate.demo.model import SpanReader, find_shared_words
from footplate.demo.spans import find_best_spans


@pytest.fixture
def model_and_batch():
    torch.manual_seed(0)
    examples, _ = generate_examples(num_train=16, num_held_out=0, seed=0)
    tokenizer = WordTokenizer(f"{example.question} {example.context}" for example in examples)
    rows = list(FactsDataset(examples, tokenizer).rows)
    batch = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    return SpanReader(len(tokenizer)), batch


def test_a_handful_of_updates_lowers_the_loss(model_and_batch):
    model, batch = model_and_batch
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    for _ in range(8):
        loss = model(**batch)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


def test_without_positions_there_are_logits_but_no_loss(model_and_batch):
    model, batch = model_and_batch
    with_loss = model(**batch)
    del batch["start_positions"], batch["end_positions"]
    without = model(**batch)
    assert set(without) == {"start_logits", "end_logits"}
    assert torch.equal(without["start_logits"], with_loss["start_logits"])


def test_an_untrained_model_answers_inside_the_context(model_and_batch):
    model, batch = model_and_batch
    outputs = model(**batch)
    spans = find_best_spans(outputs["start_logits"].detach().numpy(), outputs["end_logits"].detach().numpy())
    is_context = batch["token_type_ids"].gather(1, torch.from_numpy(spans))
    assert is_context.all()


def test_padding_does_not_change_the_answer(model_and_batch):
    model, batch = model_and_batch
    model.eval()
    inputs = {name: batch[name][:1] for name in ("input_ids", "token_type_ids", "attention_mask")}
    num_tokens = int(inputs["attention_mask"].sum())
    with torch.no_grad():
        padded = model(**inputs)["start_logits"][:, :num_tokens]
        bare = model(**{name: values[:, :num_tokens] for name, values in inputs.items()})["start_logits"]
    torch.testing.assert_close(padded, bare, rtol=1e-4, atol=1e-4)


def test_words_on_both_sides_are_marked():
    words = torch.tensor([[5, 6, 2, 6, 7, 6, 0]])
    is_context = torch.tensor([[0, 0, 0, 1, 1, 1, 0]])
    assert find_shared_words(words, is_context).tolist() == [[0, 1, 0, 1, 0, 1, 0]]
