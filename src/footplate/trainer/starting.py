"""How a run of the Trainer starts: its folder, what it resumes from, and that all ranks agree."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from footplate import comm
from footplate.arguments import TrainingArguments
from footplate.checkpoint import resume
from footplate.checkpoint import runs as run_folders
from footplate.checkpoint.lock import FolderInUse, FolderLock, take_folder
from footplate.checkpoint.rotation import remove_leftovers
from footplate.distributed.agreement import check_agreement, check_shared_folder, comparable_arguments
from footplate.distributed.hang import HangWatch
from footplate.trainer.base import TrainerBase
from footplate.trainer.run import Resume, Run
from footplate.training.code import USER_CODE
from footplate.training.facts import RunFacts, collect_facts
from footplate.training.plan import Extension


def own_folder(trainer: TrainerBase, stack: ExitStack, folder: str) -> FolderLock | None:
    """Take the folder of a run for as long as `stack` is open; None on ranks that write nothing."""
    lock, refusal = take_folder(stack, folder) if trainer.args.should_save else (None, None)
    if refusal is not None and trainer.args.save_on_each_node and comm.world_size() > 1:
        refusal = FolderInUse(
            f"{refusal} With save_on_each_node=True, the first process of every host writes into output_dir. "
            "If the hosts share this one, leave save_on_each_node unset."
        )
    comm.raise_together(refusal)
    if lock is not None and lock.is_held:
        remove_leftovers(folder, is_sole=True)
    return lock


def find_checkpoint(trainer: TrainerBase, wanted: Any, folder: str) -> str | None:
    """The checkpoint to resume from, as the first rank finds it."""
    overwrites = run_folders.overwrites(trainer.args)
    found: str | None = comm.ask_first(lambda: resume.find_checkpoint(wanted, folder, overwrites))
    if not trainer.args.save_on_each_node and (found is not None or trainer.args.save_strategy != "no"):
        check_shared_folder(folder, find_need(trainer.args, found))
    return found


def find_need(args: TrainingArguments, checkpoint: str | None) -> str | None:
    """Why all hosts must see the folder of a run; None if they can do without."""
    if checkpoint is not None:
        return f"every rank reads {checkpoint}"
    if args.load_best_model_at_end:
        return "with load_best_model_at_end every rank reads the best checkpoint at the end"
    return "with fsdp every rank writes a part of each checkpoint" if args.fsdp else None


def make_run(
    trainer: TrainerBase, lock: FolderLock | None, checkpoint: str | None, extension: Extension | None
) -> Run:
    """A new run, after all ranks have found that they mean the same one."""
    args, changes = trainer.args, resume.Differences()
    code = {"trainer": type(trainer), **{name: getattr(trainer, name) for name in USER_CODE}}
    facts = collect_facts(trainer.train_dataset, trainer.model, code)
    check_agreement({"arguments": comparable_arguments(args.to_dict()), **facts})
    if checkpoint is not None:
        changes = resume.review_resume(checkpoint, args.to_dict(), facts)
    # the first run keeps the name under which an evaluation before it was reported
    identity = None if trainer._current_run.has_begun else trainer._current_run.identity
    shared = trainer.callback_handler.extras
    run = Run(args, trainer._device, shared, identity, Resume(changes, extension, checkpoint), lock)
    run.identity.run_id = comm.broadcast_object(run.identity.run_id)
    run.facts, run.hang = RunFacts(facts), HangWatch(args.hang_seconds)
    return run
