"""What a run is, told by its events."""

from __future__ import annotations

import json
import math

import pytest

from footplate.report.data import RunData
from footplate.report.page import describe_runs
from footplate.report.plain import find_prefixes, split_key
from footplate.report.source import RunSource


def read(run, num_points=1000):
    source = RunSource(run.folder)
    source.update()
    return source.data.to_plain(num_points)


def curve(plain, split, metric):
    (found,) = [c for c in plain["curves"] if (c["split"], c["metric"]) == (split, metric)]
    return dict(zip(found["steps"], found["values"], strict=True))


def test_a_finished_run_is_told_whole(finished):
    plain = read(finished)
    assert (plain["status"], plain["step"], plain["max_steps"]) == ("finished", 100, 100)
    assert plain["name"] == "run"
    assert curve(plain, "train", "loss")[25] == 0.4
    assert curve(plain, "eval", "loss").keys() == {20, 40, 60, 80, 100}
    assert curve(plain, "eval", "f1")[100] == 50
    assert plain["summary"]["train_loss"] == 0.5
    assert plain["best"] == {"name": "eval loss", "step": 100, "value": 0.25}
    assert [w["message"][:9] for w in plain["warnings"]] == ["Beware of"]
    json.dumps(plain, allow_nan=False)  # strict JSON


def test_the_sum_of_a_run_is_no_point_of_its_loss(finished):
    assert curve(read(finished), "train", "loss")[100] == pytest.approx(0.2)


def test_a_run_that_ended_early_was_stopped_and_one_without_an_end_runs(written):
    written.begin()
    written.train(1, 30)
    assert read(written)["status"] == "running"
    written.end(30)
    assert read(written)["status"] == "stopped"


def test_a_resumed_run_makes_its_points_again_and_its_clock_leaves_out_the_pause(written):
    written.begin()
    written.train(1, 50)
    before = read(written)
    written.time += 100_000  # killed at 50, and resumed a day later
    written.begin(first_step=40)
    written.train(41, 100)
    plain = read(written)
    assert plain["resumed_at"] == [40]
    steps = next(c["steps"] for c in plain["curves"] if c["metric"] == "loss")
    assert steps == list(range(1, 101))
    seconds = plain["moments"][1]
    assert seconds == sorted(seconds)
    assert seconds[-1] < 2.2 * before["seconds"]
    assert [block["step"] for block in plain["samples"]] == [20, 40, 60, 80, 100]
    assert sum(plain["parts"]["parts"]["forward"]) == pytest.approx(0.3 * 100)


def test_another_run_in_the_folder_takes_the_place_of_the_first(finished):
    finished.begin("second")
    finished.log(1, loss=9.0)
    plain = read(finished)
    assert curve(plain, "train", "loss") == {1: 9.0}
    assert (plain["run_id"], plain["samples"], plain["warnings"]) == ("second", [], [])


def test_an_evaluation_by_itself_does_not_take_the_place_of_the_run(finished):
    before = read(finished)
    finished.begin("third", max_steps=0)
    finished.log(0, eval_loss=7.0)
    assert read(finished) == before


def test_a_folder_where_nobody_trains_shows_its_evaluations(written):
    written.begin(max_steps=0)
    written.log(0, eval_loss=7.0)
    assert curve(read(written), "eval", "loss") == {0: 7.0}


def test_prefixes_are_told_or_found_by_their_own_runtime(written):
    written.begin()
    logs = {"eval_news_loss": 1.0, "eval_news_runtime": 2.0, "eval_news_samples_per_second": 3.0}
    written.log(5, **logs)
    written.write("predict", step=5, logs={"held_out_f1": 0.5}, prefixes=["held_out"])
    written.log(6, **{"rewards/chosen": 1.0, "eval_rewards/chosen": 2.0})
    plain = read(written)
    assert curve(plain, "eval_news", "loss") == {5: 1.0}
    assert curve(plain, "held_out", "f1") == {5: 0.5}
    assert curve(plain, "train", "rewards/chosen") == {6: 1.0}
    assert curve(plain, "eval", "rewards/chosen") == {6: 2.0}
    assert find_prefixes({"a_runtime": 1, "b_runtime": 1, "b_samples_per_second": 1}) == ["b"]


def test_a_key_belongs_to_the_longest_prefix():
    assert split_key("eval_b_f1", ("eval", "eval_b")) == ("eval_b", "f1")
    assert split_key("evaluation", ("eval",)) == ("train", "evaluation")
    assert split_key("train_accuracy", ("eval",)) == ("train", "accuracy")


def test_speed_leaves_out_evaluations_and_saves(written):
    written.begin()
    written.log(10, loss=1.0)
    written.log(10, {"evaluation": 1.0}, eval_loss=1.0)
    written.log(20, loss=1.0)
    assert curve(read(written), "train", "updates_per_second") == {10: 10.0, 20: 10.0}


def test_checkpoints_are_there_or_not_and_one_is_best_and_one_is_last(finished):
    for step in (80, 100):
        (finished.folder / f"checkpoint-{step}").mkdir()
    shown = {c["step"]: c for c in read(finished)["checkpoints"]}
    assert [step for step, c in shown.items() if c["is_there"]] == [80, 100]
    assert shown[100]["is_best"]
    assert [step for step, c in shown.items() if c["is_last"]] == [100]


def test_the_best_follows_the_metric_that_decides(written):
    written.begin(settings={"metric_for_best_model": "f1"})
    written.train()
    assert read(written)["best"] == {"name": "eval f1", "step": 100, "value": 50}


def test_many_samples_of_much_text_stay_within_their_room(written):
    written.begin()
    for step in range(1, 400):
        rows = [{"input": "word " * 1000, "target": "x", "prediction": "y"}] * 40
        written.write("samples", step=step, source="eval", rows=rows)
    samples = read(written)["samples"]
    assert len(json.dumps(samples)) < 2_000_000
    assert samples[-1]["step"] == 399
    assert len(samples[0]["rows"]) == 20
    assert samples[0]["rows"][0]["input"].endswith("…")


def test_the_same_warning_is_shown_once_with_its_count(written):
    written.begin()
    for step in range(1000):
        written.write("warning", step=step, level="WARNING", message="Slow.")
    assert read(written)["warnings"] == [{"message": "Slow.", "level": "WARNING", "step": 0, "count": 1000}]


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"kind": "unknown"},
        {"kind": "log"},
        {"kind": "log", "step": "three", "logs": {"loss": 1.0}},
        {"kind": "log", "step": 3, "logs": [1, 2]},
        {"kind": "log", "step": 3, "logs": {"loss": "low", "flag": True, "nested": {"a": 1}}},
        {"kind": "log", "step": 3, "logs": {}, "seconds": {"forward": "long"}, "prefixes": "eval"},
        {"kind": "samples", "step": 3, "rows": ["text", None, {"a": [math.nan]}]},
        {"kind": "save", "step": 3},
        {"kind": "begin", "settings": 5, "model": None, "max_steps": "many", "name": None},
        {"kind": "begin", "settings": {"a": {"b": math.inf}}},
        {"kind": "tracker"},
        {"kind": "end", "metrics": None},
    ],
    ids=str,
)
def test_an_event_without_sense_does_no_harm(tmp_path, event):
    data = RunData(tmp_path)
    data.add(event)
    json.dumps(data.to_plain(10), allow_nan=False)


def test_a_run_that_fails_before_it_logs_does_not_push_aside_the_one_before(finished):
    before = read(finished)
    finished.begin("second")
    finished.write("warning", step=0, level="WARNING", message="too large")
    assert read(finished) == before


def test_a_run_that_begins_to_log_takes_the_page_with_its_warnings(finished):
    finished.begin("second")
    finished.write("warning", step=0, level="WARNING", message="too large")
    finished.log(1, loss=3.0)
    plain = read(finished)
    assert (plain["run_id"], plain["step"], plain["status"]) == ("second", 1, "running")
    assert curve(plain, "train", "loss") == {1: 3.0}
    assert [w["message"] for w in plain["warnings"]] == ["too large"]


def test_a_run_that_goes_on_after_another_failed_at_once_keeps_its_beginning(written):
    written.begin()
    written.train(1, 50)
    written.begin("second")
    written.begin("first", first_step=40)
    written.train(41, 60)
    plain = read(written)
    assert list(curve(plain, "train", "loss")) == list(range(1, 61))
    assert plain["resumed_at"] == [40]


def test_a_loss_of_which_nothing_was_finite_is_no_loss_of_zero(written):
    written.begin()
    written.log(1, loss=2.0)
    written.log(2, loss=0.0, nonfinite=1)
    written.log(3, loss=0.0)
    plain = read(written)
    assert curve(plain, "train", "loss") == {1: 2.0, 3: 0.0}
    (loss,) = [c for c in plain["curves"] if c["metric"] == "loss"]
    assert (loss["num_not_finite"], loss["not_finite"]) == (1, [2])


def test_the_best_of_one_set_among_several_is_found(written):
    written.begin(settings={"metric_for_best_model": "eval_dev_f1"})
    for step, f1 in ((1, 0.2), (2, 0.7), (3, 0.5)):
        scores = {"eval_dev_f1": f1, "eval_dev_runtime": 1.0, "eval_dev_samples_per_second": 1.0}
        written.log(step, **scores)
    assert read(written)["best"] == {"name": "eval_dev f1", "step": 2, "value": 0.7}


def test_a_number_that_no_float_can_hold_is_not_finite(written):
    written.begin()
    written.log(1, loss=10**400, eval_loss=2.0)
    plain = read(written)
    assert curve(plain, "eval", "loss") == {1: 2.0}
    (loss,) = [c for c in plain["curves"] if (c["split"], c["metric"]) == ("train", "loss")]
    assert loss["num_not_finite"] == 1


def test_of_many_rows_the_wrong_ones_are_kept(written):
    written.begin()
    rows = [{"input": str(i), "correct": i not in (5, 48)} for i in range(60)]
    written.write("samples", step=1, source="eval", rows=rows)
    source = RunSource(written.folder)
    source.update()
    (block,) = source.data.to_plain(100)["samples"]
    assert len(block["rows"]) == 20
    assert [row["input"] for row in block["rows"] if not row["correct"]] == ["5", "48"]


def test_a_run_brings_the_defaults_of_its_own_time(written):
    written.begin(defaults={"learning_rate": 5e-5})
    source = RunSource(written.folder)
    source.update()
    found = describe_runs([source.data], {"learning_rate": 1.0, "seed": 42})["defaults"]
    assert found == {"learning_rate": 5e-5, "seed": 42}
