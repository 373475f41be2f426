"""Every error and warning of footplate is on the page of messages, and those that a guide quotes exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import torch

import messages
import tiny
from footplate import DataCollatorWithPadding, Trainer, TrainingArguments
from footplate.qa.scores import compute_squad_metrics

ROOT = Path(__file__).parents[1]

# what is raised or logged there has no words of its own
PASSED_ON = {
    ("footplate.arguments.notices", "warn_once"): "words that the caller gives",
    ("footplate.arguments.values", "read_text"): "the errors of each type that was tried",
    ("footplate.cli.first_train", "answer_instead"): "no error: it carries an answer out of a script",
    ("footplate.cli.rehearse", "train_once"): "the exit code of a process",
    ("footplate.data.saved_state", "plain_copy"): "the name of a type, for the error around it",
    ("footplate.data.stream_watch", "_warn"): "words that the caller gives",
    ("footplate.integrations.guard", "_say"): "words that the caller gives",
    ("footplate.replaying.session", "replay_first"): "the error of the replay, for who asked for it",
    ("footplate.samples.callback", "_warn_once"): "words that the caller gives",
    ("footplate.seq2seq", "_describe_generation"): "words that the caller gives",
    ("footplate.tasks.common.parsing", "parse_flags"): "the error of the parser",
    ("footplate.tasks.common.scripts", "main"): "the exit code of a process",
    ("footplate.trainer.search", "ended"): "the end of a trial, with the words of its error",
    ("footplate.trainer.ray_trials", "run_ray_trial"): "the error of another process",
}


@pytest.fixture(scope="module")
def listed() -> list[messages.Message]:
    return messages.list_messages()


def find(listed, said):
    """The messages that say this, or part of it."""
    return [message for message in listed if messages.matches(message, str(said))]


def wrong_setting(tmp_path):
    TrainingArguments(str(tmp_path), eval_strategy="sometimes")


def unknown_setting(tmp_path):
    TrainingArguments(str(tmp_path), learning_rat=1)


def no_model(tmp_path):
    Trainer(args=TrainingArguments(str(tmp_path)))


def no_loss(tmp_path):
    rows = [{"input": torch.ones(1)} for _ in range(8)]
    Trainer(torch.nn.Linear(1, 1), TrainingArguments(str(tmp_path)), train_dataset=rows).train()


def no_checkpoint(tmp_path):
    trainer = tiny.build_trainer(tmp_path / "new", tiny.Regression(), tiny.regression_data(8))
    trainer.train(resume_from_checkpoint=True)


def no_data(tmp_path):
    Trainer(tiny.Regression(), TrainingArguments(str(tmp_path))).train()


def no_such_unit(tmp_path):
    compute_squad_metrics([], [], unit="letters")


def no_such_tracker(tmp_path):
    Trainer(tiny.Regression(), TrainingArguments(str(tmp_path), report_to="wanbd"))


def no_samples(tmp_path):
    DataCollatorWithPadding(None)([])


MISTAKES = [
    *(wrong_setting, unknown_setting, no_model, no_loss, no_checkpoint),
    *(no_data, no_such_unit, no_such_tracker, no_samples),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_the_error_of_a_mistake_is_on_the_page(mistake, tmp_path, listed):
    with pytest.raises((ValueError, TypeError, RuntimeError)) as raised:
        mistake(tmp_path)
    found = find(listed, raised.value)
    assert found, raised.value
    assert max(len(message.text.split()) for message in found) >= 5  # told by more than a word or two


def test_every_raise_and_every_warning_is_followed_to_its_words():
    package = messages.Package()
    lost = {
        (module, getattr(around, "name", ""))
        for module, tree in package.modules.items()
        for _, said, around, _ in messages.list_speakers(tree)
        if not package.find_words(said, around, module)
    }
    assert lost - set(PASSED_ON) == set(), "say it in words, or list it in PASSED_ON with the reason"
    assert set(PASSED_ON) <= lost


def test_a_message_is_read_from_every_form_of_code(tmp_path):
    (tmp_path / "data.py").write_text(
        "TEXT = 'the rows have no end'\n"
        "def explain(x):\n    '''A docstring is no message.'''\n    return f'a row of {x} is too long'\n"
        "def f(x):\n"
        "    raise ValueError(f'{x=} is not one of {x!r}. '\n        'Set it.')\n"
        "    raise TypeError(explain(x))\n"
        "    logger.warning('%s rows of %d are left out', x, x)\n"
        "    raise KeyError(TEXT)\n"
        "    raise refuse(x)\n"
        "def refuse(x) -> OSError:\n    text = f'{x} cannot be read here'\n    return OSError(text)\n"
    )
    found = {(message.kind, message.text) for message in messages.list_messages(tmp_path)}
    assert found == {
        ("ValueError", "x=… is not one of …. Set it."),
        ("TypeError", "a row of … is too long"),
        ("warning", "… rows of … are left out"),
        ("KeyError", "the rows have no end"),
        ("OSError", "… cannot be read here"),
    }


def test_the_page_links_each_message_to_the_settings_that_it_names(listed):
    page = messages.write_messages(listed, {"save_total_limit", "save_only_model"})
    line = next(line for line in page.splitlines() if "A checkpoint needs" in line)
    assert 'href="reference/settings.html#save_total_limit"' in line
    assert 'href="reference/settings.html#save_only_model"' in line
    assert page.count('<p class="message">') == len(listed)


def test_most_of_what_is_raised_is_listed(listed):
    """A reader of the source that lost half of it would pass the other tests."""
    raised = sum(
        isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
        for path in messages.SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    )
    assert len(listed) > raised > 500


def test_messages_that_the_guide_quotes_exist(listed):
    guide = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    quoted = re.findall(r"^\| `([^`]+)` \| ", guide, flags=re.MULTILINE)
    assert len(quoted) > 40
    texts = [message.text for message in listed]
    assert [words for words in quoted if not any(words.rstrip("…: ") in text for text in texts)] == []
