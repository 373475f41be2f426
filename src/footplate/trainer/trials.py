"""What a trial of a search changes in a run: settings, folder, name, and when it ends."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from footplate.arguments.checks import check_all
from footplate.arguments.notices import warn_once
from footplate.arguments.settle import settle
from footplate.state import TrainerState
from footplate.trainer.base import TrainerBase
from footplate.training import loss as losses
from footplate.training.code import USER_CODE
from footplate.training.facts import RunFacts, collect_facts

if TYPE_CHECKING:
    from footplate.search.session import Session


def set_up_trial(trainer: TrainerBase, session: Session) -> None:
    """Set folder and settings of the trial under way; what was made of the settings is made again."""
    from footplate.search.outcomes import MAXIMIZE
    from footplate.search.values import set_values, suggest_names

    args = trainer.args
    home = str(args.output_dir)
    args.run_name = args.run_name or os.path.basename(os.path.abspath(home))  # the group in trackers
    unknown = set_values(args, session.values)
    if unknown:
        warn_once(
            f"The search sets {', '.join(unknown)}, which TrainingArguments does not have: model_init(trial) "
            f"may use it, nothing else does.{suggest_names(args, unknown)}"
        )
    args.output_dir = os.path.join(home, session.name)
    args.push_to_hub = False  # one model of the search is shared, if any: the best, when its user says so
    if session.objective.metric and args.metric_for_best_model is None:
        args.metric_for_best_model = session.objective.metric  # its checkpoint is kept by rotation
        args.greater_is_better = session.objective.directions[0] == MAXIMIZE
    settle(args)
    check_all(args)
    if "neftune_noise_alpha" in session.values:
        trainer.neftune_noise_alpha = args.neftune_noise_alpha


def note_trial(state: TrainerState, trial: Any, session: Session | None) -> None:
    """Note in the state that the run is a trial, its name and its values."""
    state.is_hyper_param_search = trial is not None
    state.trial_name = state.trial_params = None
    if trial is not None:
        from footplate.search.spaces import hp_params

        state.trial_name = session.name if session is not None else None
        state.trial_params = dict(hp_params(trial))


def stop_pruned(trainer: TrainerBase) -> None:
    """End a run whose trial is pruned at the end of this update, on all ranks."""
    trainer.control.should_training_stop = True
    trainer.control.should_save = False
    trainer.args.load_best_model_at_end = False  # nobody looks at its weights


def adopt_model(trainer: TrainerBase, session: Session) -> None:
    """Read what depends on a trial's model, and note its facts: before it is made there is none."""
    if "label_smoothing_factor" in session.values:
        trainer.label_smoother = losses.find_smoother(trainer.args.label_smoothing_factor, trainer.model)
    code = {"trainer": type(trainer), **{name: getattr(trainer, name) for name in USER_CODE}}
    trainer._current_run.facts = RunFacts(collect_facts(trainer.train_dataset, trainer.model, code))
