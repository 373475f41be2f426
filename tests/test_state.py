"""Tests of the run's state, its flags and their JSON form."""

import dataclasses
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from transformers.trainer_callback import ExportableState as OriginalExportableState

from footplate.state import ExportableState, TrainerControl, TrainerState, export_states


class Counter(ExportableState):
    def __init__(self, step=1):
        self.step = step
        self.count = 0

    def state(self):
        return {"args": {"step": self.step}, "attributes": {"count": self.count}}


def full_state(cls):
    return cls(
        epoch=1.5,
        global_step=30,
        max_steps=60,
        logging_steps=5,
        eval_steps=10,
        save_steps=10,
        train_batch_size=8,
        num_train_epochs=3,
        num_input_tokens_seen=1234,
        total_flos=1.5e15,
        log_history=[{"loss": 0.1 + 0.2, "step": 5}, {"eval_loss": 1e-300, "step": 10}],
        best_metric=0.1,
        best_global_step=20,
        best_model_checkpoint="out/checkpoint-20",
        is_local_process_zero=True,
        is_world_process_zero=False,
        is_hyper_param_search=True,
        trial_name="trial-3",
        trial_params={"learning_rate": 1e-4},
        stateful_callbacks={"TrainerControl": {"args": {"should_log": True}, "attributes": {}}},
    )


def test_fields_defaults_and_order_are_those_of_the_original():
    ours = [(field.name, field.default) for field in dataclasses.fields(TrainerState)]
    theirs = [(field.name, field.default) for field in dataclasses.fields(transformers.TrainerState)]
    assert ours == theirs
    assert dataclasses.asdict(TrainerState()) == dataclasses.asdict(transformers.TrainerState())


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (TrainerState, transformers.TrainerState),
        (transformers.TrainerState, TrainerState),
        (TrainerState, TrainerState),
    ],
)
def test_a_file_written_by_one_library_is_read_by_the_other(tmp_path, writer, reader):
    path = tmp_path / "trainer_state.json"
    written = full_state(writer)
    written.save_to_json(str(path))
    assert dataclasses.asdict(reader.load_from_json(str(path))) == dataclasses.asdict(written)


def test_both_libraries_write_the_same_bytes(tmp_path):
    full_state(TrainerState).save_to_json(tmp_path / "ours.json")
    full_state(transformers.TrainerState).save_to_json(tmp_path / "theirs.json")
    assert (tmp_path / "ours.json").read_bytes() == (tmp_path / "theirs.json").read_bytes()


def test_unknown_keys_in_a_file_are_left_out_and_missing_ones_have_defaults(tmp_path):
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"global_step": 7, "log_history": None, "from_the_future": [1]}))
    state = TrainerState.load_from_json(path)
    assert (state.global_step, state.log_history, state.save_steps) == (7, [], 500)
    assert not hasattr(state, "from_the_future")


def test_non_finite_numbers_survive_a_round_trip(tmp_path):
    state = TrainerState(log_history=[{"loss": math.nan, "grad_norm": math.inf, "x": -math.inf}])
    state.save_to_json(tmp_path / "state.json")
    (log,) = TrainerState.load_from_json(tmp_path / "state.json").log_history
    assert math.isnan(log["loss"])
    assert (log["grad_norm"], log["x"]) == (math.inf, -math.inf)


def test_arrays_and_tensors_in_the_log_are_written_as_numbers(tmp_path):
    tensor = torch.tensor(0.5, requires_grad=True) * 3
    state = TrainerState(
        log_history=[{"a": np.float32(0.25), "b": tensor, "c": np.arange(3), "d": np.int64(4)}]
    )
    state.save_to_json(tmp_path / "state.json")
    (log,) = TrainerState.load_from_json(tmp_path / "state.json").log_history
    assert log == {"a": 0.25, "b": 1.5, "c": [0, 1, 2], "d": 4}


def test_a_value_json_cannot_hold_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "state.json"
    TrainerState(global_step=3).save_to_json(path)
    with pytest.raises(TypeError, match="object"):
        TrainerState(global_step=4, log_history=[{"loss": object()}]).save_to_json(path)
    assert TrainerState.load_from_json(path).global_step == 3


@pytest.mark.parametrize("max_steps", [1, 7, 100, 333])
@pytest.mark.parametrize("interval", [None, 0.1, 0.25, 0.999, 1, 5, 500])
def test_steps_below_one_are_a_part_of_the_run_as_in_the_original(interval, max_steps):
    args = SimpleNamespace(logging_steps=interval, eval_steps=interval, save_steps=interval)
    ours, theirs = TrainerState(), transformers.TrainerState()
    ours.compute_steps(args, max_steps)
    theirs.compute_steps(args, max_steps)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)


def test_stateful_callbacks_become_plain_data_and_come_back():
    first, second, control = Counter(2), Counter(3), TrainerControl(should_save=True)
    second.count = 9
    state = TrainerState(stateful_callbacks=[first, control, second])
    assert state.stateful_callbacks == {
        "Counter": [
            {"args": {"step": 2}, "attributes": {"count": 0}},
            {"args": {"step": 3}, "attributes": {"count": 9}},
        ],
        "TrainerControl": control.state(),
    }
    restored = Counter.from_state(state.stateful_callbacks["Counter"][1])
    assert (restored.step, restored.count) == (3, 9)
    assert TrainerControl.from_state(state.stateful_callbacks["TrainerControl"]) == control


def test_exportables_of_transformers_are_exported_too():
    class Theirs(OriginalExportableState):
        def state(self):
            return {"args": {}, "attributes": {"x": 1}}

    assert export_states([Theirs()]) == {"Theirs": {"args": {}, "attributes": {"x": 1}}}


def test_an_object_without_a_state_is_refused_by_name():
    with pytest.raises(TypeError, match="ExportableState"):
        TrainerState(stateful_callbacks=[3.5])


def test_an_exportable_that_defines_no_state_says_so():
    class Forgetful(ExportableState):
        pass

    with pytest.raises(NotImplementedError, match=r"Forgetful.*state\(\)"):
        Forgetful().state()


def test_control_has_the_flags_resets_and_state_of_the_original():
    for reset in ("_new_training", "_new_epoch", "_new_step"):
        ours, theirs = (
            cls(True, True, True, True, True) for cls in (TrainerControl, transformers.TrainerControl)
        )
        getattr(ours, reset)()
        getattr(theirs, reset)()
        assert ours.state() == theirs.state()
    assert TrainerControl().state() == transformers.TrainerControl().state()


HISTORIES = [
    [],
    [{}],
    [{"loss": 0.1, "step": 1}, {"note": 'é\n}, {"', "nan": float("nan"), "none": None, "flag": True}],
    [{"loss": np.float32(1.5)}, {"list": [1, {"a": 2}], "empty": {}}],
    ["<log_history>", {"text": "<log_history>"}],
    [{"a": "},\n      {"}, {"b": 1}],
]


@pytest.mark.parametrize("history", HISTORIES)
def test_the_text_of_a_state_is_that_of_json(history):
    state = TrainerState(log_history=history, trial_name="<log_history>")
    values = json.loads(json.dumps(vars(state), default=lambda value: value.tolist()))
    assert state.to_json_text() == json.dumps(values, indent=2, sort_keys=True) + "\n"
