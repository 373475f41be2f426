"""Scores by length, beside those of the same questions measured alone."""

from __future__ import annotations

import pytest

from footplate.qa.by_length import describe_answers
from footplate.qa.scores import build_squad_metrics, compute_squad_metrics

GOLDS = ["bread", "blue maps", "the old red", "one two three four five", "a b c d e f g h i j", "", "tea"]
GIVEN = ["bread", "maps", "the old red", "five six", "", "", "tea and bread"]


def make(golds=GOLDS, given=GIVEN):
    examples = [
        {"id": str(i), "question": "who " * (4 * i + 1), "context": "word " * (60 * i + 3)}
        for i in range(len(golds))
    ]
    predictions = [{"id": str(i), "prediction_text": text} for i, text in enumerate(given)]
    references = [
        {"id": str(i), "answers": {"text": [text] if text else [], "answer_start": [0]}}
        for i, text in enumerate(golds)
    ]
    return examples, predictions, references


def test_each_bucket_has_the_scores_of_its_questions_alone():
    examples, predictions, references = make()
    kind, values = describe_answers(examples, predictions, references, None)
    assert kind == "answers"
    tables = values["tables"]
    assert [row[:2] for row in tables["answer"]] == [
        *[("1", 2), ("2", 1), ("3 to 4", 1), ("5 to 8", 1), ("9 or more", 1), ("no answer", 1)]
    ]
    whole = compute_squad_metrics(predictions, references, version_2_with_negative=True)
    assert (values["exact_match"], values["f1"]) == (round(whole["exact"], 2), round(whole["f1"], 2))
    alone = compute_squad_metrics(
        [predictions[0], predictions[6]], [references[0], references[6]], version_2_with_negative=True
    )
    assert tables["answer"][0][2:] == (round(alone["exact"], 2), round(alone["f1"], 2))
    assert tables["answer"][-1] == ("no answer", 1, 100.0, 100.0)


@pytest.mark.parametrize("name", ["question", "context"])
def test_lengths_of_texts_count_every_question_once(name):
    _, values = describe_answers(*make(), None)
    assert sum(row[1] for row in values["tables"][name]) == len(GOLDS)
    labels = {"question": ["1 to 5", "9 to 11", "12 to 15", "16 or more"]}
    labels["context"] = ["1 to 99", "100 to 149", "150 to 199", "200 to 299", "300 or more"]
    assert [row[0] for row in values["tables"][name]] == labels[name]


def test_without_unanswerable_questions_the_rules_of_version_1_hold():
    examples, predictions, references = make(["the", "tea"], ["an", "tea"])
    _, values = describe_answers(examples, predictions, references, None)
    whole = compute_squad_metrics(predictions, references)
    assert (values["exact_match"], values["f1"]) == (whole["exact_match"], whole["f1"])
    assert [row[0] for row in values["tables"]["answer"]] == ["1"]


def test_an_empty_right_answer_is_no_answer_of_one_word():
    examples, predictions, references = make(["tea", "tea"], ["", "tea"])
    references[0]["answers"]["text"] = [""]
    _, values = describe_answers(examples, predictions, references, None)
    assert [row[:2] for row in values["tables"]["answer"]] == [("1", 1), ("no answer", 1)]


def test_the_unit_is_that_of_the_metrics():
    examples, predictions, references = make(["我们 学校", "学校"], ["我们", "学校"])
    mixed = build_squad_metrics(unit="mixed")
    _, values = describe_answers(examples, predictions, references, mixed)
    assert [row[0] for row in values["tables"]["answer"]] == ["2", "3 to 4"]  # each Han character is a word
    whole = compute_squad_metrics(predictions, references, unit="mixed")
    assert values["f1"] == round(whole["f1"], 2)


def test_columns_that_are_not_there_have_no_table():
    examples, predictions, references = make()
    bare = [{"id": row["id"]} for row in examples]
    assert list(describe_answers(bare, predictions, references, None)[1]["tables"]) == ["answer"]


def test_no_questions_have_no_scores():
    assert describe_answers([], [], [], None) == ("answers", None)
