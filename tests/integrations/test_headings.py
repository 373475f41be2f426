"""Under which heading trackers show a key."""

from __future__ import annotations

import pytest
from transformers.integrations.integration_utils import rewrite_logs as original

from footplate.integrations.headings import add_headings, rewrite_logs


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("loss", "train/loss"),
        ("eval_loss", "eval/loss"),
        ("test_f1", "test/f1"),
        ("train_loss", "train/train_loss"),
        ("evaluation", "train/evaluation"),
        ("eval_b_loss", "eval_b/loss"),
        ("korean_em", "korean/em"),
        ("mine/loss", "mine/loss"),
        ("eval_rouge/1", "eval_rouge/1"),
        ("_loss", "train/_loss"),
    ],
)
def test_a_key_has_one_heading(key, shown):
    assert add_headings({key: 1.0}, ("eval", "eval_b", "korean", "")) == {shown: 1.0}


def test_the_usual_keys_are_shown_as_the_original_shows_them():
    logs = {"loss": 1, "eval_loss": 2, "test_loss": 3, "learning_rate": 4, "epoch": 5, "train_runtime": 6}
    assert add_headings(logs) == rewrite_logs(logs) == original(logs)


def test_a_key_that_is_no_word_has_a_heading_too():
    assert add_headings({3: 1.0}) == {"train/3": 1.0}
