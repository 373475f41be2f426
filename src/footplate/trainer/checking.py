"""`Trainer.check()`: everything that `train()` will do, tried once in a few seconds, without a trace."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from footplate.checkpoint.planned import Checkpoints, plan_checkpoints
from footplate.checkpoint.snapshot import num_bytes
from footplate.integrations.reach import reach_trackers
from footplate.optim import schedules
from footplate.trainer.check_saving import try_saving
from footplate.trainer.check_update import try_update
from footplate.trainer.rehearsing import others_add_metrics
from footplate.trainer.staging import begin_run, on_stage
from footplate.training import advice, traits
from footplate.training.findings import CheckReport, Finding, Outcome, failed, not_tried, passed, warned
from footplate.training.rehearsal import CannotPutBack, describe_failure

if TYPE_CHECKING:
    from footplate.trainer.training import Training

ROWS_TO_GENERATE = 2  # for metrics; a whole batch of texts may take minutes


def check_trainer(trainer: Training, puts_back: bool = True, resumes: bool = False) -> CheckReport:
    """Try each part of a run, and say what came out.

    Args:
        trainer: The Trainer, which is afterwards as it was.
        puts_back: Leave model, data and the user's objects as they were; not needed where the process ends.
        resumes: The run may go on from a checkpoint, so that it writes fewer than are counted here.
    """
    refuse_several(trainer)
    began = time.perf_counter()
    report = CheckReport()
    folder, reports_to = str(trainer.args.output_dir), list(trainer.args.report_to or ())
    try:
        with on_stage(trainer, puts_back) as changed:
            report.findings += try_all(trainer, folder, resumes)
        report.findings += describe_trace(changed)
    except CannotPutBack as reason:
        report.findings.append(
            not_tried(
                "update, evaluation, saving",
                f"they would change something for good: {reason}. `footplate check` tries them in a process "
                "of their own",
            )
        )
    report.findings += try_trackers(reports_to)
    report.seconds = time.perf_counter() - began
    return report


def describe_trace(changed: list[str]) -> list[Finding]:
    """What the rehearsal has changed for good."""
    if not changed:
        return []
    text = (
        f"large tensors that your code writes to were changed and not put back: {advice.join_names(changed)}"
    )
    return [warned("no trace", text, ["register_buffer for these tensors", "`footplate check`"])]


def refuse_several(trainer: Training) -> None:
    """Refuse to rehearse alone what several processes do together."""
    args = trainer.args
    if args.world_size > 1 or args.sharding is not None:
        what = f"{args.world_size} processes" if args.world_size > 1 else "fsdp"
        raise ValueError(
            f"A rehearsal takes one process that holds the whole model, and this run has {what}. Run "
            "`footplate check script.py` without torchrun and fsdp; `footplate plan "
            "--ranks N` says what N processes would take."
        )


def try_all(trainer: Training, folder: str, resumes: bool) -> list[Finding]:
    """Every part that runs code of the user, in the order of a run."""
    findings: list[Finding] = []
    model = None
    if trainer.train_dataset is not None or not traits.is_ours(trainer.get_train_dataloader):
        model, loader, problem = prepare(trainer)
        findings += [problem] if problem is not None else try_update(trainer, model, loader)
    if trainer.eval_dataset is not None or evaluates(trainer.args):
        found = try_evaluations(trainer)
        findings += found if evaluates(trainer.args) else list(map(soften, found))
    if model is not None:
        findings += try_room_and_saving(trainer, model, folder, resumes)
    return findings


def try_room_and_saving(trainer: Training, model: Any, folder: str, resumes: bool) -> list[Finding]:
    """Whether the checkpoints have room, and one save where there is any."""
    try:
        saved = plan_saves(trainer)
    except OSError as error:
        unknown = not_tried("disk", f"what is free in {folder!r} cannot be read: {describe_failure(error)}")
        return [unknown, *try_saving(trainer, model)]
    room = check_room(saved, folder, trainer.args, resumes)
    findings = [room] if room is not None else []
    if saved.num_bytes > saved.disk_free:
        return [*findings, not_tried("saving", "not even one checkpoint has room")]
    return [*findings, *try_saving(trainer, model)]


def prepare(trainer: Training) -> tuple[Any, Any, Finding | None]:
    """Model, loader and optimizer, as `train()` makes them from the start; or why it cannot."""
    try:
        model, loader = begin_run(trainer)
    except Exception as error:
        return None, None, failed("preparation", describe_failure(error))
    return model, loader, None


# ---- evaluation ----


def try_evaluations(trainer: Training) -> list[Finding]:
    """One answer where the model generates, then a batch through the metrics."""
    args, generates = trainer.args, bool(getattr(trainer.args, "predict_with_generate", False))
    findings = []
    most = min(args.max_eval_samples or args.eval_batch_size, args.eval_batch_size)
    if generates and not args.prediction_loss_only:
        findings.append(guarded("generation", lambda: generate_one(trainer)))
        if findings[0].outcome is not Outcome.PASSED:
            return [*findings, not_tried("evaluation", "it generates, which failed")]
    rows = min(most, ROWS_TO_GENERATE) if generates else most
    vars(args).update(max_eval_samples=rows)
    try:
        metrics = trainer.evaluate()
    except Exception as error:
        text = f"failed on {rows} rows of each set: {describe_failure(error)}"
        fix = (
            ("compute_metrics", "eval_dataset") if trainer.compute_metrics is not None else ("eval_dataset",)
        )
        return [*findings, failed("evaluation", text, fix)]
    names = [name for name in metrics if not name.endswith(("_runtime", "_per_second", "_time"))]
    findings.append(
        passed("evaluation", f"{rows} rows of each set gave {advice.join_names(sorted(names), 8)}")
    )
    return [*findings, *check_best(trainer, metrics)]


def evaluates(args: Any) -> bool:
    """Whether the run itself evaluates; a script may do so when the run is over."""
    return args.eval_strategy != "no" or bool(args.eval_on_start)


def soften(finding: Finding) -> Finding:
    """A failed evaluation as a warning, for a run that would not have made it."""
    if finding.outcome is not Outcome.FAILED or finding.part == "best metric":
        return finding
    return warned(
        finding.part, f"{finding.text}; with eval_strategy='no' the run itself is fine", finding.settings
    )


def generate_one(trainer: Training) -> Finding:
    """The model's answer to one row."""
    vars(trainer.args).update(max_eval_samples=1)
    sets = trainer.eval_dataset
    loader = trainer.get_eval_dataloader(next(iter(sets)) if isinstance(sets, dict) else None)
    with trainer._evaluating():
        model = trainer._prepare_for_evaluation()
        _, answer, _ = trainer.prediction_step(model, next(iter(loader)), False)
    shape = " x ".join(map(str, getattr(answer, "shape", ())))
    return passed("generation", f"one answer of {shape} tokens")


def check_best(trainer: Training, metrics: dict[str, float]) -> list[Finding]:
    """Whether the evaluation gives what decides on the best model, on the end and on the learning rate."""
    args, name = trainer.args, trainer.args.metric_for_best_model
    callbacks = trainer.callback_handler.callbacks
    stops_early = any(type(callback).__name__ == "EarlyStoppingCallback" for callback in callbacks)
    users = ["EarlyStoppingCallback"] if stops_early else []
    users += ["the schedule of the learning rate"] if schedules.follows_metric(trainer.lr_scheduler) else []
    needs = f" ({' and '.join(users)} watch{'es' if len(users) == 1 else ''} it)" if users else ""
    if stops_early and (name is None or args.eval_strategy == "no"):
        setting = "metric_for_best_model" if name is None else "eval_strategy"
        return [failed("best metric", f"EarlyStoppingCallback needs {setting}, which is not set", [setting])]
    if name is None and not users:
        return []
    key = f"eval_{(name or 'loss').removeprefix('eval_')}"
    if key not in metrics:
        given = advice.join_names(sorted(metrics), 12)
        text = f"metric_for_best_model={name!r} is not among what evaluation gives: {given}{needs}"
        may_be_added = others_add_metrics(callbacks) or not traits.is_ours(type(trainer).log)
        report = warned if may_be_added or not evaluates(args) else failed
        return [report("best metric", text, ["metric_for_best_model", "compute_metrics"])]
    odd = advice.check_direction(key, args.greater_is_better if name is not None else None, metrics[key])
    if odd:
        return [warned("best metric", odd + needs, ["greater_is_better", "metric_for_best_model"])]
    way = "greater" if args.greater_is_better else "smaller"
    return [passed("best metric", f"{key}={metrics[key]:.4g}, {way} is better")]


# ---- disk, trackers ----


def plan_saves(trainer: Training) -> Checkpoints:
    """The checkpoints of the whole run, by the state as it is now."""
    plan, args = trainer._current_run.plan, trainer.args
    optimizer_bytes = 0 if args.save_only_model else num_bytes(trainer.optimizer.state_dict())
    return plan_checkpoints(trainer.model, args, optimizer_bytes, plan.max_steps, plan.updates_per_epoch)


def check_room(saved: Checkpoints, folder: str, args: Any, resumes: bool) -> Finding | None:
    """Whether the disk has room for the checkpoints; None if there will be none."""
    if not saved.num_written:
        return None
    facts = (saved.disk_needed, saved.disk_free, saved.num_bytes, saved.num_kept, folder)
    text = advice.explain_room(*facts)
    if saved.disk_needed <= saved.disk_free:
        return passed("disk", text)
    if resumes:
        text += "; counted from the start, though a resumed run has written some of them already"
    report = warned if resumes else failed
    return report("disk", text, advice.mend_room(saved.disk_free, saved.num_bytes, saved.num_kept, args))


def try_trackers(names: list[str]) -> list[Finding]:
    """Whether the trackers can be used."""
    reached = reach_trackers(names)
    bad = [one for one in reached if one.problem]
    findings = [
        failed(
            "trackers",
            f"{one.name}: {one.problem}",
            [f"report_to without {one.name!r}", *_switches(one.name)],
        )
        for one in bad
    ]
    good = [f"{one.name}{f' at {one.address}' if one.address else ''}" for one in reached if not one.problem]
    return [*findings, *([passed("trackers", ", ".join(good))] if good else [])]


def _switches(name: str) -> list[str]:
    known = {
        "wandb": "WANDB_MODE=offline",
        "mlflow": "MLFLOW_TRACKING_URI",
        "swanlab": "SWANLAB_MODE=offline",
    }
    return [known[name]] if name in known else []


def guarded(part: str, attempt: Callable[[], Finding]) -> Finding:
    """What an attempt found, or the error that ended it."""
    try:
        return attempt()
    except Exception as error:
        settings = ["generation_max_length", "generation_config", "predict_with_generate"]
        return failed(part, describe_failure(error), settings)
