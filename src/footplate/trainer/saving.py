"""How the Trainer saves itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from footplate import comm, rng
from footplate.arguments import TrainingArguments
from footplate.checkpoint import arguments as argument_files
from footplate.checkpoint import rotation, weights
from footplate.checkpoint.publish import Contents
from footplate.checkpoint.rotation import PREFIX_CHECKPOINT_DIR
from footplate.checkpoint.runs import belongs_to
from footplate.state import export_states
from footplate.trainer.run import Run
from footplate.trainer.sharing import Sharing, push_saved
from footplate.training import traits

if TYPE_CHECKING:
    from footplate.checkpoint.shard_saves import ShardedSave


class Saving(Sharing):
    """Sealed checkpoints, written while training goes on."""

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model so that `from_pretrained`, or footplate, can load it.

        Args:
            output_dir: The folder; default `args.output_dir`.
        """
        state = self._strategy.whole_state(self.model)  # with fsdp, all ranks take part
        if self.args.should_save:
            traits.call_with_declared(
                self._save,
                output_dir=output_dir or self._current_run.locate(str(self.args.output_dir)),
                state_dict=state,
            )
        if not _internal_call:
            push_saved(self)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """Write weights, configuration, processing class and arguments into a folder."""
        folder = output_dir or self.args.output_dir
        assert folder is not None
        os.makedirs(folder, exist_ok=True)
        weights.save_weights(self.model, folder, state_dict, self.args.max_shard_size)
        save_beside(self, folder)

    def _save_checkpoint(self, model: nn.Module, trial: Any, metrics: dict[str, float] | None = None) -> None:
        """Write everything that resuming needs into `checkpoint-<step>`, then let go of the oldest."""
        run, run_dir = self._current_run, self._get_output_dir(trial)
        step = self.state.global_step
        folder = run.anchor(os.path.join(run_dir, f"{PREFIX_CHECKPOINT_DIR}-{step}"))
        if metrics is not None:
            self._determine_best_metric(metrics, trial)
        run.clock.note_save()
        self.store_flos()
        ranks = gather_ranks(run, self.args)
        together = copy_together(self)
        if not self.args.should_save:
            if together is not None:
                run.saves.follow(together.follow, folder, saves_in_background(self))
            self.state.best_model_checkpoint = comm.broadcast_object(None)
            return
        run.saves.join()  # one copy, one write: the last one must be done with both
        rotation.make_way(folder, run.identity.run_id, run.saves.foreign_folders)

        def save_now(staging: str) -> None:
            traits.call_with_declared(self.save_model, output_dir=staging, _internal_call=True)
            if not self.args.save_only_model:
                self._save_optimizer_and_scheduler(staging)
                self._save_scaler(staging)
                self._save_rng_state(staging)

        def make_room() -> bool:
            saves = run.saves
            kept = [path for path in (self.state.best_model_checkpoint, saves.sealed_folder) if path]
            return rotation.make_room(run.anchor(run_dir), kept, run.identity.run_id, saves.sealed_names)

        contents = self._capture_contents(run_dir)
        contents.ranks = ranks
        best = comm.broadcast_object(self.state.best_model_checkpoint)
        self.state.best_model_checkpoint = best  # the first rank has looked for it on disk
        run.saves.write(
            folder,
            step,
            contents,
            self.model.state_dict() if together is None else {},
            save_model=save_now if together is None else together.lead,
            save_copy=self._save if together is None else lambda staging, _: together.lead(staging),
            after=lambda: self._rotate_checkpoints(output_dir=run.anchor(run_dir)),
            in_background=saves_in_background(self),
            make_room=make_room if self.args.save_makes_room else None,
            finish=None if together is None else together.finish,
        )

    def _capture_contents(self, run_dir: str) -> Contents:
        """The state of the run as it is now, apart from the model."""
        run = self._current_run
        self.state.num_input_tokens_seen += run.meter.drain_tokens()
        best_step = self.state.best_global_step
        if best_step is not None:
            best = os.path.join(run_dir, f"{PREFIX_CHECKPOINT_DIR}-{best_step}")
            is_now = best_step == self.state.global_step
            if is_now or belongs_to(Path(run.anchor(best)), run.identity.run_id):
                self.state.best_model_checkpoint = best
            elif Path(self.state.best_model_checkpoint or "").name != Path(best).name:
                self.state.best_model_checkpoint = None  # it was of an earlier best
        self.state.stateful_callbacks = export_states(
            [*run.stateful(self.control, self.callback_handler.callbacks), run.position_under(self.control)]
        )
        contents = Contents(self.state.to_json_text(), run_id=run.identity.run_id)
        if not self.args.save_only_model:
            contents.loader = run.feed.state()
            contents.optimizer = self.optimizer.state_dict() if not self._strategy.shards else None
            contents.schedule = self.lr_scheduler.state_dict()
            contents.rng = rng.capture()
            if self._strategy.scaler is not None:
                contents.scaler = self._strategy.scaler.state_dict()
        return contents


def save_beside(trainer: Saving, folder: str) -> None:
    """Write what belongs to the weights: processing class and arguments."""
    processing: Any = trainer.processing_class or getattr(trainer.data_collator, "tokenizer", None)
    if hasattr(processing, "save_pretrained"):
        processing.save_pretrained(folder)
    argument_files.save_arguments(trainer.args.to_dict(), folder)


def copy_together(trainer: Saving) -> ShardedSave | None:
    """The shards of this rank, to be written by all ranks together; None if one rank holds everything."""
    strategy, args = trainer._strategy, trainer.args
    if not strategy.shards:
        return None
    from footplate.checkpoint.shard_saves import ShardedSave

    whole = strategy.whole_state(trainer.model) if args.save_full_model else None

    def write_rest(folder: str) -> None:
        if whole is not None:
            trainer._save(folder, whole)
            return
        for name in ("config", "generation_config"):  # what `from_pretrained` needs besides weights
            part: Any = getattr(trainer.model, name, None)
            if hasattr(part, "save_pretrained"):
                part.save_pretrained(folder)
        save_beside(trainer, folder)

    optimizer = None if args.save_only_model else trainer.optimizer
    return ShardedSave(trainer.model, optimizer, strategy.save_group, write_rest)


def gather_ranks(run: Run, args: TrainingArguments) -> list[dict[str, Any]] | None:
    """What differs from rank to rank, of all of them, where it is written; None in a single process."""
    if run.accord.is_alone or args.save_only_model:
        return None
    own = {"rng": rng.to_plain(rng.capture()), "loader": run.feed.state(), "sums": run.meter.sums_now()}
    if args.save_on_each_node:
        return comm.gather_objects(own)
    return comm.gather_objects_to_first(own)


# an override of one of these looks at the folder, or at the state of the run, at once
_SAVE_JOINTS = (
    *("save_model", "_save", "_save_checkpoint"),
    *("_save_optimizer_and_scheduler", "_save_scaler", "_save_rng_state"),
)


def saves_in_background(trainer: Saving) -> bool:
    """Whether training may go on while a checkpoint is written: not if somebody looks at it at once."""
    is_own = any(
        name in vars(trainer) or getattr(type(trainer), name) is not getattr(Saving, name)
        for name in _SAVE_JOINTS
    )
    is_watched = trainer.callback_handler.listens("on_save")
    return trainer.args.save_in_background and trainer.is_in_train and not is_own and not is_watched


def prepare_first_save(trainer: Saving) -> None:
    """Make the memory of the first copy while training goes on."""
    args = trainer.args
    writes = args.should_save and args.save_strategy != "no"
    if writes and not args.save_only_model and saves_in_background(trainer):
        state = {"model": trainer.model.state_dict(), "optimizer": trainer.optimizer.state_dict()}
        trainer._current_run.saves.prepare(state)
