"""What the Trainer tries before the first update: whether evaluation will give what is asked of it."""

from __future__ import annotations

import inspect
import logging
from itertools import islice
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from footplate import batch as batch_tools
from footplate import comm, rng
from footplate.checkpoint.planned import plan_checkpoints
from footplate.checkpoint.rotation import find_checkpoints_of
from footplate.data import columns
from footplate.evaluation import metrics as metric_tools
from footplate.evaluation.streaming import check_is_object
from footplate.state import find_unwritable
from footplate.trainer.evaluating import Evaluating, build_collector
from footplate.trainer.evaluation import BatchMetrics, BatchResult
from footplate.training import advice, checks, rehearsal, traits
from footplate.training.meter import Records
from footplate.training.modes import enter_training

if TYPE_CHECKING:
    from footplate.trainer.training import Training

logger = logging.getLogger(__name__)

# of these a trial of the longest rows takes about a hundredth; a shorter run tells soon enough by itself
NUM_UPDATES = 100

_JOINTS = (
    *("log", "evaluate", "evaluation_loop", "prediction_loop", "prediction_step", "compute_loss"),
    *("get_eval_dataloader", "compute_loss_context_manager", "_prepare_inputs"),
)


class Rehearsing(Evaluating):
    """One batch of each evaluation set, tried before hours go by; the run afterwards is the same."""

    def _check_evaluation(self, ignore_keys: list[str] | None) -> None:
        """Refuse a best metric that evaluation will not give; warn of metrics that fail and of no loss."""
        if self.args.eval_strategy == "no" or has_own_part(self):
            return
        check_is_object(self.compute_metrics)
        sets = self.eval_dataset if isinstance(self.eval_dataset, dict) else {"": self.eval_dataset}
        best, kept = self.args.metric_for_best_model, set(self._eval_dataloaders)
        with rng.scoped():
            if best is not None or self.compute_metrics is not None:
                found = checks.keys_without_metrics(sets)
                for name in sets:
                    keys = self._rehearse_metrics(name, ignore_keys)
                    found.update(f"{name}_{key}" if name else key for key in keys)
                    found.update({"loss", checks.ANY_KEY}.intersection(keys))  # a round has its own loss
                if best is not None:
                    is_sure = not others_add_metrics(self.callback_handler.callbacks)
                    checks.check_best_metric(best, found, self.label_names, is_sure)
            for name, dataset in sets.items():
                names = columns.names_of(dataset)
                if not self._gives_nothing(names) or not batch_tools.has_length(dataset):
                    continue
                for inputs in islice(self.get_eval_dataloader(name or None), 1):
                    # labels may be the collator's work, or there is a loss without labels
                    is_suspect = self._gives_nothing(batch_tools.keys_of(inputs))
                    model = self._prepare_for_evaluation()
                    if is_suspect and self.prediction_step(model, inputs, True)[0] is None:
                        logger.warning(checks.explain_no_labels(name, names, self.label_names))
        for key in self._eval_dataloaders.keys() - kept:
            del self._eval_dataloaders[key]  # starting workers draws a number, at the first evaluation
        enter_training(self.model_wrapped, self.optimizer)

    def _gives_nothing(self, keys: list[str]) -> bool:
        """Whether a batch with these keys has no labels, so that it gives neither a loss nor metrics."""
        names = self.label_names or batch_tools.known_labels(dict.fromkeys(keys))
        has_labels = bool(names) and any(name in keys for name in names)
        return bool(keys) and not has_labels and not self.can_return_loss

    def _rehearse_metrics(self, set_name: str, ignore_keys: list[str] | None) -> list[str]:
        """The keys that evaluation gives on the first batch of a set; ANY_KEY where that cannot be known."""
        dataset = self.eval_dataset[set_name] if set_name else self.eval_dataset
        if self.args.batch_eval_metrics or not batch_tools.has_length(dataset):
            return [checks.ANY_KEY]  # such a function counts what it is given; a stream may be read only once
        which = f"the evaluation set {set_name!r}" if set_name else "the evaluation set"
        try:
            with rehearsal.undisturbed(self.compute_metrics, self.preprocess_logits_for_metrics):
                return try_metrics(self, set_name, ignore_keys)
        except rehearsal.CannotPutBack as reason:
            logger.info("compute_metrics was not tried before training: %s.", reason)
        except Exception as error:
            logger.warning(checks.explain_failed_trial(which, rehearsal.describe_failure(error)))
        return [checks.ANY_KEY]


def try_metrics(trainer: Rehearsing, set_name: str, ignore_keys: list[str] | None) -> list[str]:
    """The keys that the first batch of a set gives."""
    model = trainer._prepare_for_evaluation()
    by_batch = BatchMetrics(trainer.compute_metrics, trainer.args, trainer._device)
    loader = trainer.get_eval_dataloader(set_name or None)
    folder = trainer._current_run.anchor(str(trainer.args.output_dir))
    collector = build_collector(loader, trainer.args, folder)
    with trainer._evaluating(set_name or trainer.eval_dataset) as evaluation:
        evaluation.records = Records()  # what a loss records now belongs in no log
        for inputs in islice(loader, 1):
            loss, logits, labels = trainer.prediction_step(model, inputs, False, ignore_keys=ignore_keys)
            logits = metric_tools.preprocess(trainer.preprocess_logits_for_metrics, logits, labels)
            num_rows = comm.find_batch_size(inputs)
            collector.add(losses=loss, predictions=logits, labels=labels, num_rows=num_rows)
            result = BatchResult(num_rows, loss, logits, labels)
            by_batch.update(inputs, result, evaluation.name, is_last=True)
        metrics = by_batch.compute() if by_batch.are_used else trainer._compute_metrics(collector)
    return [*metrics, *collector.loss_keys]


def has_own_part(trainer: Evaluating) -> bool:
    """Whether a trial would run code of a subclass, which may count its calls or add to the metrics."""
    if not all(traits.is_ours(getattr(trainer, name)) for name in _JOINTS):
        return True
    if traits.is_ours(type(trainer)):
        return False
    # a subclass may measure by a method of its own, or a library by a function of its own
    function = inspect.unwrap(getattr(trainer.compute_metrics, "__func__", trainer.compute_metrics))
    is_method = getattr(trainer.compute_metrics, "__self__", None) is trainer
    return is_method or (isinstance(function, FunctionType) and not rehearsal.is_users(function.__code__))


def others_add_metrics(callbacks: list[Any]) -> bool:
    """Whether a callback of the user's own may add to the metrics, which it is handed."""
    events = [getattr(callback, name, None) for callback in callbacks for name in ("on_log", "on_evaluate")]
    return not all(traits.is_ours(method) for method in events if method is not None)


# ---- all that is tried before step 1 ----


def rehearse(trainer: Training, model: nn.Module, loader: Any, ignore_keys: list[str] | None) -> None:
    """What costs little of the run and calls nothing that a subclass or a callback could notice."""
    if trainer.args.rehearsal == "off":
        return
    plan = trainer._current_run.plan
    if plan.max_steps - plan.first_step >= NUM_UPDATES:
        from footplate.trainer.longest_first import try_longest  # what a short run has no use for

        try_longest(trainer, model, loader)
    trainer._check_evaluation(ignore_keys)
    if trainer.args.should_save and trainer.args.save_strategy != "no":
        warn_of_states(trainer)
        warn_of_room(trainer)


def rehearse_fully(trainer: Training, resumes: bool) -> None:
    """Try everything before the run begins, and refuse to begin if something failed."""
    from footplate.trainer.checking import check_trainer  # what a plain start has no use for

    if trainer.args.world_size > 1 or trainer.args.sharding is not None:
        logger.warning(
            "rehearsal='full' tries nothing here: it takes one process that holds the whole model. Run "
            "`footplate check script.py` without torchrun."
        )
        return
    report = check_trainer(trainer, resumes=resumes)
    is_whole = all(finding.outcome == "passed" for finding in report.findings)
    # a tracker that does not answer is switched off, and training goes on
    parts = ", ".join(
        one.part for one in report.findings if one.outcome == "failed" and one.part != "trackers"
    )
    level = logging.ERROR if parts else logging.INFO if is_whole else logging.WARNING
    logger.log(level, "The rehearsal:\n%s", report)
    if parts:
        raise ValueError(
            f"The rehearsal failed before the first update: {parts}.\n{report}\nTo train all the same, set "
            "rehearsal='quick' or rehearsal='off'."
        )


def warn_of_states(trainer: Rehearsing) -> None:
    """Warn of callbacks whose state no checkpoint can hold; the states are those that the run began with."""
    for name, reason in find_unwritable(trainer.state.stateful_callbacks or {}).items():
        logger.warning(
            "The state of the callback %s cannot be saved: %s. The first checkpoint will fail. Let its "
            "state() give numbers, text, lists and dictionaries.",
            name,
            reason.rstrip("."),
        )


def warn_of_room(trainer: Rehearsing) -> None:
    """Warn if the disk has too little room for the checkpoints of the run, as far as their size is known."""
    args, plan = trainer.args, trainer._current_run.plan
    if trainer._strategy.shards:
        return
    try:
        saved = plan_checkpoints(
            trainer.model,
            args,
            least_bytes(trainer.optimizer),
            plan.max_steps,
            plan.updates_per_epoch,
            plan.first_step,
            count_present(trainer),
        )
    except OSError:  # of a disk that cannot be asked nothing is known
        return
    if saved.disk_needed <= saved.disk_free:
        return
    facts = (saved.disk_needed, saved.disk_free, saved.num_bytes, saved.num_kept, str(args.output_dir))
    mended = advice.mend_room(saved.disk_free, saved.num_bytes, saved.num_kept, args, saved.num_present)
    fixes = ", ".join(mended)
    logger.warning("The disk is too small: %s. To fix this: %s.", advice.explain_room(*facts), fixes)


def count_present(trainer: Rehearsing) -> int:
    """The checkpoints of a resumed run that make way for new ones."""
    run, limit = trainer._current_run, trainer.args.save_total_limit
    if limit is None or not run.plan.first_step:
        return 0
    folder = run.anchor(str(trainer.args.output_dir))
    return len(find_checkpoints_of(folder, run.identity.run_id))


def least_bytes(optimizer: Any) -> int:
    """What an optimizer's state takes at least: two values for each weight with Adam, nothing if unknown."""
    optimizer = getattr(optimizer, "optimizer", optimizer)  # without Accelerate's wrapper
    if not isinstance(optimizer, torch.optim.Adam):  # AdamW is one too
        return 0
    return sum(2 * value.nbytes for group in optimizer.param_groups for value in group["params"])
