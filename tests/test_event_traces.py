"""Which events a run fires, in which order, with which flags; written out, and compared with the original."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import footplate
import tiny

EVENTS = [
    *("on_init_end", "on_train_begin", "on_epoch_begin", "on_step_begin", "on_substep_end"),
    *("on_pre_optimizer_step", "on_optimizer_step", "on_step_end", "on_epoch_end", "on_log", "on_evaluate"),
    *("on_predict", "on_prediction_step", "on_save", "on_push_begin", "on_train_end"),
]
FLAGS = ["should_log", "should_evaluate", "should_save", "should_epoch_stop", "should_training_stop"]


class Recorder:
    """Hears every event; notes its name, with `+flag` for each flag that is set."""

    def __init__(self) -> None:
        self.trace: list[str] = []

    def note(self, event: str, control: Any) -> None:
        flags = [flag.removeprefix("should_") for flag in FLAGS if getattr(control, flag)]
        self.trace.append("+".join([event.removeprefix("on_"), *flags]))


def _listener(event: str) -> Callable[..., None]:
    return lambda self, args, state, control, **kwargs: self.note(event, control)


for _event in EVENTS:
    setattr(Recorder, _event, _listener(_event))


def trace(
    library: Any,
    folder: Path,
    *,
    rows: int = 16,
    callbacks: tuple[Any, ...] = (),
    sets: Any = None,
    **settings: Any,
) -> list[str]:
    """The events of a whole run: 4 rows to a batch, so 16 rows are 4 batches."""
    data = tiny.regression_data(rows)
    recorder = Recorder()
    args = tiny.arguments(
        folder / library.__name__,
        library,
        **{"per_device_train_batch_size": 4, "logging_strategy": "no", "num_train_epochs": 1, **settings},
    )
    trainer: Any = library.Trainer(
        tiny.Regression(),
        args,
        train_dataset=data,
        eval_dataset=sets or data[:12],  # two batches of 8
        compute_metrics=lambda prediction: {"score": SCORES[trainer.state.global_step]},
        callbacks=[*(callback(library) for callback in callbacks), recorder],
    )
    trainer.train()
    return recorder.trace


SCORES = [
    9.0,
    5.0,
    4.0,
    4.5,
    4.2,
    3.0,
    2.0,
    1.0,
    0.0,
]  # by step: the best of the first five is that of step 2


def early_stopping(library: Any) -> Any:
    return library.EarlyStoppingCallback(early_stopping_patience=2)


TWO_SETS = {"near": tiny.regression_data(8), "far": tiny.regression_data(16)}
UPDATE = "pre_optimizer_step optimizer_step"

CASES: dict[str, dict[str, Any]] = {
    "steps": {
        "logging_strategy": "steps",
        "logging_steps": 2,
        "eval_strategy": "steps",
        "eval_steps": 2,
        "save_strategy": "steps",
        "save_steps": 3,
    },
    "epochs": {
        "rows": 8,
        "num_train_epochs": 2,
        "logging_strategy": "epoch",
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
    },
    "accumulation": {
        "rows": 20,
        "gradient_accumulation_steps": 2,
        "logging_strategy": "steps",
        "logging_steps": 1,
    },
    "early stop": {
        "num_train_epochs": 2,
        "callbacks": (early_stopping,),
        "eval_strategy": "steps",
        "eval_steps": 1,
        "metric_for_best_model": "score",
        "greater_is_better": False,
    },
    "several eval sets": {"rows": 8, "sets": TWO_SETS, "eval_strategy": "epoch"},
    "first step, delay and start": {
        "logging_strategy": "steps",
        "logging_steps": 3,
        "logging_first_step": True,
        "eval_strategy": "steps",
        "eval_steps": 1,
        "eval_delay": 4,
        "eval_on_start": True,
    },
    "max_steps inside an epoch": {"max_steps": 3, "eval_strategy": "epoch", "save_strategy": "steps"},
}

GOLDEN: dict[str, list[str]] = {
    "steps": [
        "init_end",
        "train_begin",
        "epoch_begin",
        f"step_begin {UPDATE} step_end",
        f"step_begin {UPDATE} step_end+log+evaluate",
        "log+evaluate prediction_step+evaluate prediction_step+evaluate log+evaluate evaluate",
        f"step_begin {UPDATE} step_end+save",
        "save",
        f"step_begin {UPDATE} step_end+log+evaluate+save+training_stop",
        "log+evaluate+save+training_stop",
        "prediction_step+evaluate+save+training_stop prediction_step+evaluate+save+training_stop",
        "log+evaluate+save+training_stop evaluate+save+training_stop save+training_stop",
        "epoch_end+training_stop",
        "log+training_stop",
        "train_end+training_stop",
    ],
    "epochs": [
        "init_end",
        "train_begin",
        "epoch_begin",
        f"step_begin {UPDATE} step_end",
        f"step_begin {UPDATE} step_end",
        "epoch_end+log+evaluate+save",
        "log+evaluate+save",
        "prediction_step+evaluate+save log+evaluate+save evaluate+save",
        "save",
        "epoch_begin",
        f"step_begin {UPDATE} step_end",
        f"step_begin {UPDATE} step_end+training_stop",
        "epoch_end+log+evaluate+save+training_stop",
        "log+evaluate+save+training_stop",
        "prediction_step+evaluate+save+training_stop log+evaluate+save+training_stop",
        "evaluate+save+training_stop",
        "save+training_stop",
        "log+training_stop",
        "train_end+training_stop",
    ],
    "accumulation": [  # five micro-batches: 2, 2, 1
        "init_end",
        "train_begin",
        "epoch_begin",
        f"step_begin substep_end {UPDATE} step_end+log log",
        f"step_begin substep_end {UPDATE} step_end+log log",
        f"step_begin {UPDATE} step_end+log+training_stop log+training_stop",
        "epoch_end+training_stop",
        "log+training_stop",
        "train_end+training_stop",
    ],
    "early stop": [  # worse at steps 3 and 4
        "init_end",
        "train_begin",
        "epoch_begin",
        f"step_begin {UPDATE} step_end+evaluate",
        "prediction_step+evaluate prediction_step+evaluate log+evaluate evaluate",
        f"step_begin {UPDATE} step_end+evaluate",
        "prediction_step+evaluate prediction_step+evaluate log+evaluate evaluate",
        f"step_begin {UPDATE} step_end+evaluate",
        "prediction_step+evaluate prediction_step+evaluate log+evaluate evaluate",
        f"step_begin {UPDATE} step_end+evaluate",
        "prediction_step+evaluate prediction_step+evaluate log+evaluate evaluate+training_stop",
        "epoch_end+training_stop",
        "log+training_stop",
        "train_end+training_stop",
    ],
    "several eval sets": [
        "init_end",
        "train_begin",
        "epoch_begin",
        f"step_begin {UPDATE} step_end",
        f"step_begin {UPDATE} step_end+training_stop",
        "epoch_end+evaluate+training_stop",
        "prediction_step+evaluate+training_stop log+evaluate+training_stop evaluate+training_stop",
        "prediction_step+training_stop prediction_step+training_stop",
        "log+training_stop evaluate+training_stop",
        "log+training_stop",
        "train_end+training_stop",
    ],
    "first step, delay and start": [
        "init_end",
        "train_begin",
        "prediction_step prediction_step log evaluate",
        "epoch_begin",
        f"step_begin {UPDATE} step_end+log log",
        f"step_begin {UPDATE} step_end",
        f"step_begin {UPDATE} step_end+log log",
        f"step_begin {UPDATE} step_end+evaluate+training_stop",
        "prediction_step+evaluate+training_stop prediction_step+evaluate+training_stop",
        "log+evaluate+training_stop evaluate+training_stop",
        "epoch_end+training_stop",
        "log+training_stop",
        "train_end+training_stop",
    ],
    "max_steps inside an epoch": [
        "init_end",
        "train_begin",
        "epoch_begin",
        f"step_begin {UPDATE} step_end",
        f"step_begin {UPDATE} step_end",
        f"step_begin {UPDATE} step_end+save+training_stop save+training_stop",
        "epoch_end+evaluate+training_stop",
        "prediction_step+evaluate+training_stop prediction_step+evaluate+training_stop",
        "log+evaluate+training_stop evaluate+training_stop",
        "log+training_stop",
        "train_end+training_stop",
    ],
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_fires_these_events_with_these_flags(case: str, tmp_path: Path) -> None:
    assert trace(footplate, tmp_path, **CASES[case]) == " ".join(GOLDEN[case]).split()


@pytest.mark.parametrize("case", CASES)
def test_the_original_fires_the_same_events_with_the_same_flags(case: str, tmp_path: Path) -> None:
    assert trace(transformers, tmp_path, **CASES[case]) == " ".join(GOLDEN[case]).split()


def trace_outside_training(library: Any, folder: Path, method: str) -> list[str]:
    recorder = Recorder()
    data = tiny.regression_data(12)
    options = {"callbacks": [recorder]}
    trainer = tiny.build_trainer(folder, tiny.Regression(), None, data, library, options)
    getattr(trainer, method)(data)
    return recorder.trace


@pytest.mark.parametrize("library", [footplate, transformers], ids=["footplate", "transformers"])
def test_evaluation_and_prediction_outside_a_run_fire_these_events(library: Any, tmp_path: Path) -> None:
    assert trace_outside_training(library, tmp_path, "evaluate") == [
        *("init_end", "prediction_step", "prediction_step", "log", "evaluate")
    ]
    assert trace_outside_training(library, tmp_path, "predict") == [
        *("init_end", "prediction_step", "prediction_step", "predict")
    ]


# Flags: who clears them, and who obeys.


class Steering(transformers.TrainerCallback):  # type: ignore[misc]
    """Sets flags at one event, each time or at one step."""

    def __init__(self, event: str, step: int | None = None, **flags: bool) -> None:
        def steer(args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if step is None or state.global_step == step:
                for flag, value in flags.items():
                    setattr(control, flag, value)

        setattr(self, event, steer)


def steer(event: str, step: int | None = None, **flags: bool) -> Callable[[Any], Steering]:
    return lambda library: Steering(event, step, **flags)


STEERED: dict[str, tuple[Callable[[Any], Steering], list[str]]] = {
    "the start of training clears a stop": (
        steer("on_init_end", should_training_stop=True),
        [
            "init_end+training_stop",
            "train_begin",
            "epoch_begin",
            f"step_begin {UPDATE} step_end",
            f"step_begin {UPDATE} step_end",
            "epoch_end",
            "epoch_begin",
            f"step_begin {UPDATE} step_end",
            f"step_begin {UPDATE} step_end+training_stop",
            "epoch_end+training_stop log+training_stop train_end+training_stop",
        ],
    ),
    "the start of an epoch clears the stop of the last": (
        steer("on_step_end", 1, should_epoch_stop=True),
        [
            "init_end train_begin",
            "epoch_begin",
            f"step_begin {UPDATE} step_end+epoch_stop",
            "epoch_end+epoch_stop",
            "epoch_begin",
            f"step_begin {UPDATE} step_end",
            f"step_begin {UPDATE} step_end",
            "epoch_end log train_end",
        ],
    ),
    "the start of a step clears what was asked before": (
        steer("on_epoch_begin", should_log=True, should_evaluate=True, should_save=True),
        [
            "init_end train_begin",
            "epoch_begin+log+evaluate+save",
            f"step_begin {UPDATE} step_end",
            f"step_begin {UPDATE} step_end",
            "epoch_end",
            "epoch_begin+log+evaluate+save",
            f"step_begin {UPDATE} step_end",
            f"step_begin {UPDATE} step_end+training_stop",
            "epoch_end+training_stop log+training_stop train_end+training_stop",
        ],
    ),
    "log, evaluation and save each clear their own flag": (
        steer("on_step_end", 1, should_log=True, should_evaluate=True, should_save=True),
        [
            "init_end train_begin",
            "epoch_begin",
            f"step_begin {UPDATE} step_end+log+evaluate+save",
            "log+evaluate+save",
            "prediction_step+evaluate+save log+evaluate+save evaluate+save",
            "save",
            f"step_begin {UPDATE} step_end",
            "epoch_end",
            "epoch_begin",
            f"step_begin {UPDATE} step_end",
            f"step_begin {UPDATE} step_end+training_stop",
            "epoch_end+training_stop log+training_stop train_end+training_stop",
        ],
    ),
    "a stop ends epoch and run": (
        steer("on_step_end", 1, should_training_stop=True),
        [
            "init_end train_begin",
            "epoch_begin",
            f"step_begin {UPDATE} step_end+training_stop",
            "epoch_end+training_stop log+training_stop train_end+training_stop",
        ],
    ),
    "a stop at the end of an epoch still evaluates": (
        steer("on_epoch_end", 2, should_evaluate=True, should_training_stop=True),
        [
            "init_end train_begin",
            "epoch_begin",
            f"step_begin {UPDATE} step_end",
            f"step_begin {UPDATE} step_end",
            "epoch_end+evaluate+training_stop",
            "prediction_step+evaluate+training_stop log+evaluate+training_stop evaluate+training_stop",
            "log+training_stop train_end+training_stop",
        ],
    ),
}


@pytest.mark.parametrize("library", [footplate, transformers], ids=["footplate", "transformers"])
@pytest.mark.parametrize("case", STEERED)
def test_flags_are_cleared_and_obeyed(case: str, library: Any, tmp_path: Path) -> None:
    callback, expected = STEERED[case]
    found = trace(library, tmp_path, rows=8, num_train_epochs=2, callbacks=(callback,))
    assert found == " ".join(expected).split()


@pytest.mark.parametrize("library", [footplate, transformers], ids=["footplate", "transformers"])
def test_a_stop_in_the_middle_of_an_update_makes_no_update(library: Any, tmp_path: Path) -> None:
    stop = steer("on_substep_end", 1, should_training_stop=True)
    found = trace(library, tmp_path, gradient_accumulation_steps=2, num_train_epochs=2, callbacks=(stop,))
    expected = [
        "init_end train_begin",
        "epoch_begin",
        f"step_begin substep_end {UPDATE} step_end",
        "step_begin substep_end+training_stop",
        "epoch_end+training_stop log+training_stop train_end+training_stop",
    ]
    assert found == " ".join(expected).split()


def test_a_control_that_is_returned_replaces_the_current_one(tmp_path: Path) -> None:
    class Replacing(footplate.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            return footplate.TrainerControl(should_training_stop=True) if state.global_step == 2 else None

    found = trace(footplate, tmp_path, callbacks=(lambda library: Replacing(),))
    assert found.count("step_end") + found.count("step_end+training_stop") == 2


# State: up to date when an event fires.


class Watching:
    """Calls a function at one event and keeps what it returns."""

    wants_step_data = True

    def __init__(self, event: str, look: Callable[..., Any]) -> None:
        self.seen: list[Any] = []
        setattr(self, event, lambda args, state, control, **kwargs: self.seen.append(look(state, **kwargs)))


def watch(folder: Path, event: str, look: Callable[..., Any], **settings: Any) -> list[Any]:
    watching = Watching(event, look)
    settings = {"metric_for_best_model": "score", "greater_is_better": False, **settings}
    trace(footplate, folder, callbacks=(lambda library: watching,), **settings)
    return watching.seen


def test_the_best_metric_counts_an_evaluation_after_on_evaluate_and_keywords_count_it_before(
    tmp_path: Path,
) -> None:
    seen = watch(
        tmp_path,
        "on_evaluate",
        lambda state, metrics, is_best, best_metric, **kwargs: (
            *(metrics["eval_score"], state.best_metric, state.best_global_step),
            *(is_best, best_metric),
        ),
        eval_strategy="steps",
        eval_steps=1,
    )
    assert seen == [
        (5.0, None, None, True, 5.0),
        (4.0, 5.0, 1, True, 4.0),
        (4.5, 4.0, 2, False, 4.0),
        (4.2, 4.0, 2, False, 4.0),
    ]


def test_an_evaluation_before_the_first_step_is_no_candidate_for_the_best(tmp_path: Path) -> None:
    seen = watch(
        tmp_path,
        "on_evaluate",
        lambda state, is_best, best_metric, **kwargs: (state.global_step, is_best, best_metric),
        eval_on_start=True,
        eval_strategy="epoch",
    )
    assert seen == [(0, False, None), (4, True, 4.2)]


def test_steps_and_epochs_are_counted_before_on_step_end(tmp_path: Path) -> None:
    seen = watch(tmp_path, "on_step_end", lambda state, **kwargs: (state.global_step, state.epoch))
    assert seen == [(1, 0.25), (2, 0.5), (3, 0.75), (4, 1.0)]
    seen = watch(tmp_path, "on_pre_optimizer_step", lambda state, **kwargs: (state.global_step, state.epoch))
    assert seen == [(0, 0), (1, 0.25), (2, 0.5), (3, 0.75)]


def test_the_history_has_an_entry_before_on_log(tmp_path: Path) -> None:
    seen = watch(
        tmp_path,
        "on_log",
        lambda state, logs, **kwargs: state.log_history[-1] == {**logs, "step": state.global_step},
        logging_strategy="steps",
        logging_steps=1,
    )
    assert seen == [True] * 5


def test_an_evaluation_that_a_callback_asks_for_is_no_candidate_for_the_best(tmp_path: Path) -> None:
    class Curious(transformers.TrainerCallback):  # type: ignore[misc]
        """Evaluates on easy data of its own, under the usual prefix and under another."""

        trainer: Any = None

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            for prefix in ("eval", "train"):
                self.trainer.evaluate(
                    [{"x": torch.ones(()), "labels": -torch.ones(())}], metric_key_prefix=prefix
                )

    best = []
    for library in (transformers, footplate):
        curious, data = Curious(), tiny.regression_data(16)
        settings = {"eval_strategy": "epoch", "metric_for_best_model": "loss", "num_train_epochs": 2}
        options = {"callbacks": [curious]}
        trainer = tiny.build_trainer(tmp_path, tiny.Regression(), data, data, library, options, **settings)
        curious.trainer = trainer
        trainer.train()
        best.append(trainer.state.best_metric)
    assert best[0] == best[1]


# Keyword arguments: everything of the original, and more.


def gather_kwargs(library: Any, folder: Path) -> tuple[Any, dict[str, dict[str, Any]]]:
    """A run with every event, and the keywords of the last time each was fired."""
    seen: dict[str, dict[str, Any]] = {}

    class Gathering:
        pass

    for event in EVENTS:

        def hear(
            self: Any, args: Any, state: Any, control: Any, *, event: str = event, **kwargs: Any
        ) -> None:
            seen[event] = kwargs

        setattr(Gathering, event, hear)
    data = tiny.regression_data(16)
    settings = {"gradient_accumulation_steps": 2, "eval_strategy": "epoch", "save_strategy": "epoch"}
    options = {"callbacks": [Gathering()], "processing_class": Words()}
    trainer = tiny.build_trainer(
        folder, tiny.Regression(), data, data[:12], library, options, num_train_epochs=1, **settings
    )
    trainer.train()
    trainer.predict(data[:4])
    return trainer, seen


class Words:
    """Stands for a tokenizer."""

    model_input_names = ["x"]

    def save_pretrained(self, folder: str, **kwargs: Any) -> None:
        pass


def test_callbacks_are_handed_all_that_the_original_hands_them(tmp_path: Path) -> None:
    _, expected = gather_kwargs(transformers, tmp_path / "transformers")
    trainer, found = gather_kwargs(footplate, tmp_path / "footplate")
    assert set(found) == set(expected) == set(EVENTS) - {"on_push_begin"}
    for event in found:
        assert set(expected[event]) <= set(found[event])
        own = {"trainer", "predictor", "note", "tokenizer", "inputs", "outputs", "loss", "is_round_end"}
        own |= {"is_best", "best_metric", "stopped_by"}
        own |= {"seconds", "run_id", "metric_prefixes", "plan", "resumed_from", "evaluation_prefix"}
        assert set(found[event]) - set(expected[event]) <= own
        assert found[event]["trainer"] is trainer
        assert found[event]["model"] is trainer.model
        assert found[event]["tokenizer"] is found[event]["processing_class"] is trainer.processing_class


def test_callbacks_are_handed_what_belongs_to_the_run(tmp_path: Path) -> None:
    trainer, found = gather_kwargs(footplate, tmp_path)
    assert found["on_init_end"]["optimizer"] is None
    for event in ("on_train_begin", "on_step_end", "on_train_end"):
        assert found[event]["optimizer"] is trainer.optimizer
        assert found[event]["lr_scheduler"] is trainer.lr_scheduler
        assert len(found[event]["train_dataloader"]) == 2
    assert len(found["on_evaluate"]["eval_dataloader"].dataset) == 12
    assert {"eval_loss", "eval_runtime", "epoch"} <= set(found["on_evaluate"]["metrics"])
    assert found["on_evaluate"]["is_round_end"] is True
    assert {"test_loss", "test_runtime"} <= set(found["on_predict"]["metrics"])
    assert {"train_loss", "train_runtime"} <= set(found["on_log"]["logs"])


@pytest.mark.parametrize(
    "event", ["on_substep_end", "on_pre_optimizer_step", "on_optimizer_step", "on_step_end"]
)
def test_step_events_see_the_batch_the_answer_and_the_loss(event: str, tmp_path: Path) -> None:
    def look(state: Any, model: Any, inputs: Any, outputs: Any, loss: Any, **kwargs: Any) -> Any:
        assert not loss.requires_grad
        assert torch.equal(loss, ((outputs["logits"] - inputs["labels"]) ** 2).mean())
        return inputs["x"].tolist()

    seen = watch(tmp_path, event, look, gradient_accumulation_steps=2, metric_for_best_model=None)
    order = torch.randperm(16, generator=torch.Generator().manual_seed(42)).tolist()
    rows = [tiny.regression_data(16)[index]["x"].item() for index in order]
    micro_batches = [rows[start : start + 4] for start in range(0, 16, 4)]
    is_first = event == "on_substep_end"  # the events of an update see its last micro-batch
    assert seen == (micro_batches[0::2] if is_first else micro_batches[1::2])


@pytest.mark.parametrize("event", ["on_train_begin", "on_epoch_end", "on_train_end", "on_evaluate", "on_log"])
def test_other_events_do_not_keep_a_batch_alive(event: str, tmp_path: Path) -> None:
    class Attentive:
        """Makes the loop hand out step data at all."""

        wants_step_data = True

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            assert kwargs["inputs"] is not None

    watching = Watching(
        event, lambda state, **kwargs: [kwargs[name] for name in ("inputs", "outputs", "loss")]
    )
    callbacks = (lambda library: Attentive(), lambda library: watching)
    trace(footplate, tmp_path, callbacks=callbacks, eval_strategy="epoch")
    assert watching.seen == [[None] * 3] * len(watching.seen) != []


def test_each_set_of_a_round_is_reported_and_then_the_round(tmp_path: Path) -> None:
    def look(state: Any, metrics: Any, is_best: bool, **kwargs: Any) -> Any:
        names = sorted(key for key in metrics if key.endswith("_score") or key.endswith("_loss"))
        return kwargs.get("is_round_end"), is_best, names

    case = {**CASES["several eval sets"], "metric_for_best_model": "far_score"}
    near, far = ["eval_near_loss", "eval_near_score"], ["eval_far_loss", "eval_far_score"]
    assert watch(tmp_path, "on_evaluate", look, **case) == [(False, False, near), (False, True, far)]
    assert watch(tmp_path, "on_round_end", look, **case) == [(None, True, [*far, "eval_loss", *near])]


def test_the_joint_loss_of_several_sets_is_returned_and_not_logged(tmp_path: Path) -> None:
    histories = []
    for library in (footplate, transformers):
        settings = {"eval_strategy": "epoch", "logging_steps": 1, "num_train_epochs": 2}
        data, folder = tiny.regression_data(16), tmp_path / library.__name__
        trainer = tiny.build_trainer(folder, tiny.Regression(), data, TWO_SETS, library, **settings)
        trainer.train()
        histories.append([plain(entry) for entry in trainer.state.log_history])
        if library is footplate:
            metrics = trainer.evaluate()
            expected = (8 * metrics["eval_near_loss"] + 16 * metrics["eval_far_loss"]) / 24
            assert metrics["eval_loss"] == pytest.approx(expected)
    assert histories[0] == histories[1]


def plain(entry: dict[str, Any]) -> dict[str, Any]:
    """A log entry without what takes time."""
    timed = ("_runtime", "_per_second", "_preparation_time")
    return {key: value for key, value in entry.items() if not key.endswith(timed)}


class Patience(transformers.TrainerCallback):  # type: ignore[misc]
    """A stopper as people write them: it compares with the best before this evaluation."""

    def __init__(self) -> None:
        self.num_worse = 0
        self.seen: list[tuple[Any, ...]] = []

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any, **kwargs: Any) -> None:
        self.seen.append((state.global_step, state.best_metric, metrics["eval_score"]))
        is_better = state.best_metric is None or metrics["eval_score"] < state.best_metric
        self.num_worse = 0 if is_better else self.num_worse + 1
        control.should_training_stop |= self.num_worse >= 2


STOPPERS = {
    "the original's": lambda library: transformers.EarlyStoppingCallback(2),
    "one of the user's own": lambda library: Patience(),
    "each library's": early_stopping,
}


@pytest.mark.parametrize("stopper", STOPPERS)
def test_a_stopper_stops_at_the_step_where_it_stops_in_the_original(stopper: str, tmp_path: Path) -> None:
    case = {**CASES["early stop"], "callbacks": (STOPPERS[stopper],)}
    ours, theirs = (trace(library, tmp_path, **case) for library in (footplate, transformers))
    assert ours == theirs
    assert sum(event.startswith("step_end") for event in ours) == 4


def test_the_list_of_callbacks_is_that_of_the_original(tmp_path: Path) -> None:
    lists = []
    for library in (footplate, transformers):
        data = tiny.regression_data(8)
        options = {"callbacks": [Patience]}
        folder = tmp_path / library.__name__
        trainer = tiny.build_trainer(folder, tiny.Regression(), data, None, library, options)
        lists.append(trainer.callback_handler.callback_list)
    assert lists[0].splitlines() == [line.strip() for line in lists[1].splitlines()]
    assert len(lists[0].splitlines()) == 3


def test_a_call_event_set_on_the_instance_hears_the_events_of_a_whole_run(tmp_path: Path) -> None:
    heard: list[list[str]] = []
    for library in (footplate, transformers):
        data, names = tiny.regression_data(8), []
        settings = {"eval_strategy": "epoch", "save_strategy": "epoch", "num_train_epochs": 1}
        folder = tmp_path / library.__name__
        trainer = tiny.build_trainer(folder, tiny.Regression(), data, data, library, **settings)
        handler = trainer.callback_handler
        call = handler.call_event

        def note(event: str, *args: Any, _call: Any = call, _names: Any = names, **kwargs: Any) -> Any:
            _names.append(event)
            return _call(event, *args, **kwargs)

        handler.call_event = note
        trainer.train()
        heard.append([name for name in names if name not in ("on_seal", "on_note")])
    assert heard[0] == heard[1]


def test_early_stopping_counts_a_round_of_several_sets_once(tmp_path: Path) -> None:
    case = {**CASES["early stop"], "metric_for_best_model": "eval_near_score", "sets": TWO_SETS}
    ours, theirs = (trace(library, tmp_path, **case) for library in (footplate, transformers))
    for found in (ours, theirs):
        assert sum(event.startswith("step_end") for event in found) == 4
