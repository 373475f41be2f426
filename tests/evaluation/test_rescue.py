"""What metrics were given is kept if they fail, within limits and whatever goes wrong."""

from __future__ import annotations

import numpy as np
import pytest

from footplate.evaluation import rescue
from footplate.evaluation.rescue import rescue_predictions

ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)


def load(folder, name="eval"):
    return np.load(folder / "failed_evaluation" / f"{name}.npz")


def test_arrays_come_back_as_they_were_and_the_error_says_how(tmp_path, caplog):
    error = KeyError("f1")
    rescue_predictions(tmp_path, "eval", 7, error, predictions=ROWS, label_ids=ROWS[:, 0], indices=None)
    found = load(tmp_path)
    assert sorted(found) == ["label_ids", "predictions", "step"]
    assert np.array_equal(found["predictions"], ROWS)
    assert found["predictions"].dtype == np.float32
    assert found["step"] == 7
    (record,) = caplog.records
    for text in [record.getMessage(), *getattr(error, "__notes__", [record.getMessage()])]:
        assert f"numpy.load({str(tmp_path / 'failed_evaluation' / 'eval.npz')!r})" in text
        assert "at step 7" in text


def test_nested_results_get_names_and_objects_are_left_out(tmp_path):
    nested = {"logits": ROWS, "parts": (ROWS[0], [ROWS[1], None]), "words": np.array(["a", 1], dtype=object)}
    rescue_predictions(tmp_path, "eval", 1, ValueError(), predictions=nested, label_ids=None)
    assert sorted(load(tmp_path)) == [
        *("predictions.logits", "predictions.parts.0", "predictions.parts.1.0", "step")
    ]


def test_a_later_failure_replaces_an_earlier_one_of_the_same_set(tmp_path):
    for step in (1, 2):
        for name in ("eval_near", "eval_../far"):
            rescue_predictions(tmp_path, name, step, ValueError(), predictions=ROWS + step)
    folder = tmp_path / "failed_evaluation"
    assert sorted(path.name for path in folder.iterdir()) == ["eval____far.npz", "eval_near.npz"]
    assert load(tmp_path, "eval_near")["step"] == 2


def test_what_is_too_large_is_not_written(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(rescue, "MAX_BYTES", 10)
    rescue_predictions(tmp_path, "eval", 1, ValueError(), predictions=ROWS)
    assert "24 bytes, and at most 10 are written" in caplog.text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["a file", "a folder"])
def test_what_cannot_be_written_raises_nothing_and_leaves_no_draft(tmp_path, place, caplog):
    blocked = tmp_path / "failed_evaluation"
    if place == "a file":
        blocked.write_text("mine")
    else:
        (blocked / "eval.npz").mkdir(parents=True)
    rescue_predictions(tmp_path, "eval", 1, ValueError(), predictions=ROWS)
    assert "was not kept" in caplog.text
    assert [path for path in tmp_path.rglob("*") if path.name.startswith(".")] == []
