import re
from collections import Counter

import pytest
import torch

from footplate.demo.facts import RELATIONS, SEPARATOR, UNKNOWN, FactsDataset, WordTokenizer, generate_examples


@pytest.fixture(scope="module")
def examples():
    return generate_examples(num_train=400, num_held_out=100, seed=3)


@pytest.fixture(scope="module")
def tokenizer(examples):
    return WordTokenizer(f"{example.question} {example.context}" for example in examples[0])


def match_template(template, text):
    """The name and the value that make `text` of `template` (either may be absent), or None."""
    pattern = re.escape(template).replace(r"\{name\}", "(?P<name>[A-Z][a-z]+ [A-Z][a-z]+)")
    found = re.fullmatch(pattern.replace(r"\{value\}", "(?P<value>[A-Za-z0-9 ]+)"), text)
    return found and found.groupdict()


def read_facts(example):
    """What the passage states, as relation, name and value, found by its templates alone."""
    sentences = re.findall(r"[^.]+\.", example.context)
    return [
        (relation, found["name"], found["value"])
        for sentence in sentences
        for relation in RELATIONS
        for template in relation.statements
        if (found := match_template(template, sentence.strip())) and found["value"] in relation.values
    ]


def name_people(examples):
    return {name for example in examples for _, name, _ in read_facts(example)}


def test_the_same_seed_generates_the_same_examples(examples):
    assert generate_examples(400, 100, seed=3) == examples


def test_another_seed_generates_other_examples(examples):
    assert generate_examples(400, 100, seed=4) != examples


def test_every_question_has_one_answer_and_it_is_the_span(examples):
    for example in examples[0]:
        answers = []
        for relation, name, value in read_facts(example):
            if example.question in [form.format(name=name) for form in relation.value_questions]:
                answers.append(value)
            if example.question in [form.format(value=value) for form in relation.name_questions]:
                answers.append(name)
        assert answers == [example.answer]


def test_the_span_is_in_the_sentence_that_states_the_fact(examples):
    # a town may occur twice: as somebody's home and as another's birthplace
    for example in examples[0]:
        sentence_start = example.context.rfind(".", 0, example.answer_start) + 1
        sentence = example.context[
            sentence_start : example.context.index(".", example.answer_end) + 1
        ].strip()
        relations = [r for r in RELATIONS if any(match_template(t, sentence) for t in r.statements)]
        forms = [form for r in relations for form in (*r.value_questions, *r.name_questions)]
        assert any(match_template(form, example.question) for form in forms)


def test_every_passage_tells_the_same_of_three_people_of_whom_two_share_a_name(examples):
    for example in examples[0]:
        facts = read_facts(example)
        names = {name for _, name, _ in facts}
        assert len(facts) == 6
        assert len(names) == 3
        assert len({word for name in names for word in name.split()}) < 6
        assert sorted(Counter(id(relation) for relation, _, _ in facts).values()) == [3, 3]


def test_held_out_people_and_passages_do_not_occur_in_training(examples):
    train, held_out = examples
    assert name_people(train).isdisjoint(name_people(held_out))
    assert {example.context for example in train}.isdisjoint(example.context for example in held_out)


def test_offsets_cut_the_words_and_marks_out_of_the_text(tokenizer):
    text = "On 3 May 1901,  Ada Berg left."
    words = [text[start:end] for start, end in tokenizer.find_words(text)]
    assert words == ["On", "3", "May", "1901", ",", "Ada", "Berg", "left", "."]


def test_decoding_gives_the_encoded_text_back(examples, tokenizer):
    for example in examples[0][:50]:
        assert tokenizer.decode(tokenizer.encode(example.context)) == example.context
        assert tokenizer.decode(tokenizer.encode(example.question)) == example.question


def test_a_word_outside_the_vocabulary_is_unknown(tokenizer):
    assert tokenizer.encode("Ada zyzzyva")[1] == UNKNOWN
    assert tokenizer.encode("Ada zyzzyva")[0] != UNKNOWN


def test_labels_read_back_as_the_answers(examples, tokenizer):
    dataset = FactsDataset(examples[1], tokenizer)
    spans = [(int(row["start_positions"]), int(row["end_positions"])) for row in dataset]
    assert dataset.read_spans(spans, range(len(dataset))) == dataset.answers


def test_a_row_is_question_separator_context_padding(examples, tokenizer):
    row = FactsDataset(examples[0][:1], tokenizer)[0]
    ids, is_context, is_there = (row[name] for name in ("input_ids", "token_type_ids", "attention_mask"))
    num_question = len(tokenizer.encode(examples[0][0].question))
    assert ids[num_question] == SEPARATOR
    assert tokenizer.decode(ids[is_context == 1]) == examples[0][0].context
    assert torch.equal(is_context, is_there * (torch.arange(len(ids)) > num_question))
    assert not ids[is_there == 0].any()


def test_an_example_that_does_not_fit_is_refused(examples, tokenizer):
    with pytest.raises(ValueError, match="max_tokens is 20"):
        FactsDataset(examples[0][:1], tokenizer, max_tokens=20)
