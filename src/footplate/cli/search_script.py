"""`footplate search script.py`: the first `train()` of a script searches; it goes on with the best model."""

from __future__ import annotations

import argparse
import copy
import functools
import json
import math
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import device, nn

import footplate
from footplate import comm
from footplate.arguments import TrainingArguments
from footplate.arguments.settle import settle
from footplate.cli.drive import drive, imports_footplate, replacing
from footplate.cli.search import DEFAULTS, check_names, describe_best, read_options, read_space
from footplate.outputs import BestRun, IntervalStrategy, SaveStrategy, TrainOutput
from footplate.search.summary import SearchSummary, load_summary
from footplate.search.values import set_values
from footplate.trainer import Trainer
from footplate.trainer.preparing import find_saved_state
from footplate.trainer.trial_runs import RESULTS_NAME
from footplate.training.traits import takes_positional
from footplate.voice import install_voice, is_quiet, say


class _Refused(BaseException):
    """Ends the script with an error of the search; not an Exception, which a script may catch."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def search_script(wanted: argparse.Namespace, script: str, arguments: list[str]) -> int:
    """Run the script with a search in the place of its first `train()`; the exit code is the script's own.

    Args:
        wanted: What is for the search.
        script: The script.
        arguments: The script's arguments.
    """
    if not Path(script).is_file():
        raise ValueError(f"{script!r} is not a file. Give the script that trains, or the name of a task.")
    search = ScriptSearch(script, wanted, read_space(wanted.space))
    install_voice()
    if not search.is_own and find_spec("transformers") is not None:
        footplate.take_over()
    try:
        with replacing(Trainer, train=search.build_train(), hyperparameter_search=search.build_search()):
            code = drive(script, arguments, is_module=False)
    except _Refused as refused:
        raise refused.error from refused.error.__cause__
    except SystemExit as end:
        if end.code or search.trainer is not None:
            raise
        code = 0
    if code == 0 and search.trainer is None:
        raise ValueError(
            f"{script} ended without calling Trainer.train(), so nothing was searched. Let it build a "
            "Trainer and call its train(); an example script of transformers does so with --do_train."
        )
    return code


class ScriptSearch:
    """The search of one script, from its start to its end.

    Args:
        script: The script.
        wanted: What is for the search.
        space: The values to try by name; None for the default ones.
    """

    def __init__(self, script: str, wanted: argparse.Namespace, space: dict[str, Any] | None) -> None:
        self.script, self.wanted, self.space = script, wanted, space
        self.is_own = imports_footplate(script)
        self.trainer: Trainer | None = None  # whose train() is the search; None before it
        self.is_searching = False
        self._ignored_keys: Any = None  # what the script gave to train() for every evaluation

    def build_train(self) -> Any:
        """A `train()` that searches the first time; in a trial, and later, it trains."""
        train = Trainer.train

        @functools.wraps(train)
        def search_first(trainer: Trainer, *args: Any, **kwargs: Any) -> TrainOutput:
            if self.trainer is None:
                return self._search(trainer, *args, **kwargs)
            if self.is_searching and trainer is self.trainer:
                kwargs.setdefault("ignore_keys_for_eval", self._ignored_keys)
                return train(trainer, *args, **kwargs)
            if not self.is_searching:
                text = f"{self.script} calls train() again: only the first one is searched, this one trains."
                tell(trainer, text)
            return train(trainer, *args, **kwargs)

        return search_first

    def build_search(self) -> Any:
        """A `hyperparameter_search` that refuses to search where the script itself asks for it."""
        search = Trainer.hyperparameter_search

        @functools.wraps(search)
        def search_once(trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
            if self.is_searching:
                return search(trainer, *args, **kwargs)
            command = "python" if self.is_own else "footplate drive"
            raise _Refused(
                ValueError(f"{self.script} calls hyperparameter_search itself: run it with {command}.")
            )

        return search_once

    def _search(
        self,
        trainer: Trainer,
        resume_from_checkpoint: Any = None,
        trial: Any = None,
        ignore_keys_for_eval: Any = None,
        **kwargs: Any,
    ) -> TrainOutput:
        """Search where the script trains, leave the trainer with the best model, and return its result."""
        self.trainer, self._ignored_keys = trainer, ignore_keys_for_eval
        left_out = {"resume_from_checkpoint": resume_from_checkpoint, **kwargs}
        left_out = {name: value for name, value in left_out.items() if value}
        if left_out:
            words = ", ".join(f"{name}={value!r}" for name, value in left_out.items())
            tell(trainer, f"train({words}): the search leaves this out, each trial begins at its start.")
        try:
            check_can_search(trainer, self.space)
            best = self._run_trials(trainer)
        except (ValueError, NotImplementedError, ImportError, OSError) as error:
            raise _Refused(error) from error
        summary: SearchSummary = comm.ask_first(lambda: load_summary(str(trainer.args.output_dir)))
        checkpoint = Path(str(summary.best_checkpoint))  # it was loaded
        if trainer.is_world_process_zero():
            print(
                f"{describe_best(best, summary)}\nThe script goes on with its model, from {checkpoint}.",
                flush=True,
            )
        return adopt_best(trainer, best.hyperparameters, checkpoint)

    def _run_trials(self, trainer: Trainer) -> BestRun:
        """Search with the settings that a search needs; those of the script, and its model, come back."""
        args, model_init = trainer.args, trainer.model_init
        changed = choose_settings(args)
        kept = {name: getattr(args, name) for name in changed}
        if changed:
            words = (f"{name}={_show(changed[name])} (was {_show(kept[name])})" for name in changed)
            tell(trainer, f"To keep the best model of each trial: {', '.join(words)}.")
        model = trainer.model
        if model_init is None:
            trainer._move_model_to_device(model, device("cpu"))
            trainer.model_init = ModelCopies(model)
        self.is_searching = True
        try:
            vars(args).update(changed)
            best: Any = trainer.hyperparameter_search(self.space, **read_options(self.wanted))
        finally:
            self.is_searching = False
            vars(args).update(kept)
            trainer.model_init = model_init
        if model_init is None:
            give_back_model(trainer, model)
        found: BestRun = best
        return found


class ModelCopies:
    """A `model_init` that gives each trial a copy of one model.

    Args:
        model: The model as the script handed it to `train()`; the script may hold it too, so it stays whole.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __call__(self) -> nn.Module:
        """A copy of the model."""
        try:
            return copy.deepcopy(self.model)
        except Exception as error:
            raise _Refused(
                ValueError(
                    f"Each trial starts from a copy of the model, and {type(self.model).__name__} cannot be "
                    f"copied: {error}. Pass model_init=..., a function that returns the model, to the "
                    "Trainer instead of model=..."
                )
            ) from error


def give_back_model(trainer: Trainer, model: nn.Module) -> None:
    """Put the weights of the trainer's model into the one that the script made, which it uses again."""
    model.load_state_dict(trainer.model.state_dict())
    trainer.model = trainer.model_wrapped = nn.Module()  # its memory is free before the other one moves
    trainer._set_model(model)
    trainer.callback_handler.model = model


def tell(trainer: Trainer, text: str) -> None:
    """Print a line, unless only errors are to be shown."""
    if trainer.args.should_log and not is_quiet():
        say(text, sys.stderr)


def _show(value: Any) -> str:
    return repr(getattr(value, "value", value))  # of an enum, what a user writes


# ---- before the search ----


def check_can_search(trainer: Trainer, space: Mapping[str, Any] | None) -> None:
    """Refuse a Trainer that cannot be searched, and names in the space that nothing would use."""
    if trainer.eval_dataset is None:
        raise ValueError(
            "A search compares trials by an evaluation, and the script's Trainer has no eval_dataset. Pass "
            "eval_dataset=... to it; an example script of transformers does so with --do_eval."
        )
    if trainer.optimizer is not None or trainer.lr_scheduler is not None:
        raise ValueError(
            "The script's Trainer has an optimizer or a schedule already, which belongs to one model, and "
            "each trial has a model of its own. Set optim=... and lr_scheduler_type=... in "
            "TrainingArguments, or pass optimizer_cls_and_kwargs=... to the Trainer, in the place of "
            "optimizers=..."
        )
    model_init = trainer.model_init
    if model_init is None or not takes_positional(model_init, 1):
        advice = (
            "Name a field of TrainingArguments, or pass a model_init(trial) that reads it to the Trainer."
        )
        check_names(space, trainer.args, advice)


def choose_settings(args: TrainingArguments) -> dict[str, Any]:
    """What a search needs and the script does not set: a checkpoint of the best evaluation."""
    changed: dict[str, Any] = {}
    if args.eval_strategy == IntervalStrategy.NO:
        changed["eval_strategy"] = IntervalStrategy(DEFAULTS["eval_strategy"])
    if not saves_evaluations(args, changed.get("eval_strategy", args.eval_strategy)):
        changed["save_strategy"] = SaveStrategy(DEFAULTS["save_strategy"])
        if args.save_total_limit is None:
            changed["save_total_limit"] = int(DEFAULTS["save_total_limit"])
    return changed


def saves_evaluations(args: TrainingArguments, eval_strategy: Any) -> bool:
    """Whether each evaluation that is the best so far has a checkpoint of the same update."""
    if args.save_strategy == SaveStrategy.STEPS and eval_strategy == IntervalStrategy.STEPS:
        steps, every = float(args.eval_steps or 0), float(args.save_steps)
        return steps == every or (every >= 1 and steps >= 1 and math.fmod(steps, every) == 0)
    is_epoch = args.save_strategy == SaveStrategy.EPOCH and eval_strategy == IntervalStrategy.EPOCH
    return is_epoch or args.save_strategy == SaveStrategy.BEST


# ---- after it ----


def load_output(folder: Path, global_step: int) -> TrainOutput:
    """What the `train()` of a trial gave; without its file, what is known of it."""
    try:
        metrics = json.loads(Path(folder, RESULTS_NAME).read_text(encoding="utf-8"))
        return TrainOutput(int(metrics.pop("global_step")), float(metrics["train_loss"]), metrics)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return TrainOutput(global_step, math.nan, {"train_loss": math.nan})


def adopt_best(trainer: Trainer, values: Mapping[str, Any], checkpoint: Path) -> TrainOutput:
    """Give the trainer settings and state of the best trial, as a card tells of them; return its result.

    Args:
        trainer: The trainer, with the best model.
        values: The settings of the best trial, by name.
        checkpoint: The checkpoint that was loaded.
    """
    set_values(trainer.args, values)
    settle(trainer.args)
    state = find_saved_state(str(checkpoint))
    if state is not None:
        state.is_local_process_zero = trainer.is_local_process_zero()
        state.is_world_process_zero = trainer.is_world_process_zero()
        trainer.state = state
    output: TrainOutput = comm.ask_first(lambda: load_output(checkpoint.parent, trainer.state.global_step))
    return output
