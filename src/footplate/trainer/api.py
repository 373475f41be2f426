"""The thin methods of the Trainer API: those that neither are joints nor call one."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

from torch import nn

from footplate import batch as batch_tools
from footplate import comm, rng
from footplate.arguments import TrainingArguments
from footplate.batch import find_length
from footplate.checkpoint import optimizer as optimizer_files
from footplate.checkpoint import rng as rng_files
from footplate.checkpoint import rotation, weights
from footplate.checkpoint import runs as run_folders
from footplate.checkpoint.named import check_usable
from footplate.checkpoint.rotation import PREFIX_CHECKPOINT_DIR
from footplate.checkpoint.shard_layout import is_sharded_checkpoint
from footplate.data import loader as loaders
from footplate.distributed.accelerator import build_accelerator, plan_accelerator, plan_loading
from footplate.evaluation import metrics as metric_tools
from footplate.state import TRAINER_STATE_NAME, rebuild_callbacks, restore_states
from footplate.trainer.base import TrainerBase
from footplate.trainer.trials import set_up_trial, stop_pruned
from footplate.training import tracing
from footplate.training.plan import Position, plan_training
from footplate.training.traits import get_model_param_count
from footplate.voice import say

if TYPE_CHECKING:
    from footplate.planning import RunPlan
    from footplate.report.history import History
    from footplate.report.page import Plot

logger = logging.getLogger(__name__)


def _forwarded(owner: str, name: str) -> Any:
    """An attribute that reads and writes that of its owner: ours asks the owner, users may ask either."""
    find_owner: Callable[[Any], Any] = attrgetter(owner) if owner else lambda trainer: trainer

    def write(self: Any, value: Any) -> None:
        setattr(find_owner(self), name, value)

    return property(attrgetter(f"{owner}.{name}" if owner else name), write)


def _missing(method: str, subject: str, remedy: str = "") -> Callable[..., NoReturn]:
    """A method of the API that says in one clear error that this version does not have it."""

    def refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"Trainer.{method}: {subject} not in this version of footplate. {remedy}".strip()
        )

    refuse.__name__, refuse.__doc__ = method, f"{subject} not in this version."
    return refuse


class TrainerApi(TrainerBase):
    """What a Trainer can be asked for besides training, evaluating and predicting."""

    # What subclasses of earlier years ask for: engines that are not in use here.
    use_apex = use_amp = use_cuda_amp = use_cpu_amp = do_grad_scaling = False
    is_model_parallel = is_deepspeed_enabled = is_fsdp_xla_enabled = False
    deepspeed = sharded_ddp = fsdp = scaler = _past = None

    _globalstep_last_logged = _forwarded("_current_run.meter", "last_logged_step")
    _total_loss_scalar = _forwarded("_current_run.meter", "total_loss")
    current_flos = _total_flos = _forwarded("_current_run.meter", "flos")
    _tr_loss = _forwarded("_current_run.meter", "loss")
    current_gradient_accumulation_steps = _forwarded("_current_run", "num_micro_batches")
    is_fsdp_enabled = _forwarded("_strategy", "shards")
    tokenizer = _forwarded("", "processing_class")  # its 4.x name

    # ---- construct ----

    @property
    def accelerator(self) -> Any:
        """The `Accelerator`, made when it is first asked for: plain training does without."""
        if self._accelerator is None:
            self.create_accelerator_and_postprocess()
            if self.is_in_train:
                self.accelerator.gradient_state._set_sync_gradients(self._current_run.is_last_micro_batch)
        return self._accelerator

    @accelerator.setter
    def accelerator(self, accelerator: Any) -> None:
        self._accelerator = accelerator

    def create_accelerator_and_postprocess(self) -> None:
        """Set `self.accelerator`."""
        options = self._build_accelerator_args(**plan_loading(self.args))
        self.accelerator = build_accelerator(self.args, options)

    def _build_accelerator_args(self, **kwargs: Any) -> dict[str, Any]:
        """The arguments of the `Accelerator`, with `kwargs` among them."""
        return plan_accelerator(self.args, self.model, **kwargs)

    def _prepare_context_parallel_inputs(
        self, model: nn.Module, inputs: Any
    ) -> tuple[Callable[[], Any], Any]:
        """The context of a step, and its inputs; sequences are not split over processes in this version."""
        return nullcontext, inputs

    # ---- data and optimizer ----

    def num_examples(self, dataloader: Any) -> int:
        """Samples a loader gives in one pass, as well as can be known."""
        return loaders.num_examples(dataloader, self.args.per_device_train_batch_size)

    def get_total_train_batch_size(self, args: TrainingArguments) -> int:
        """Samples in one update, over all processes."""
        size = loaders.micro_batch_size(args, args.train_batch_size)
        return size * args.gradient_accumulation_steps * args.world_size

    def set_initial_training_values(
        self, args: TrainingArguments, dataloader: Any
    ) -> tuple[int, int, int, float, int, int, int]:
        """The plan as the API names it: epochs, updates, examples, samples, batch sizes, batches, updates."""
        num_batches = find_length(dataloader)
        num_examples = self.num_examples(dataloader) if num_batches else None
        size = loaders.micro_batch_size(args, args.train_batch_size)
        plan = plan_training(args, num_batches, num_examples, size, num_ranks=args.world_size)
        return (
            plan.num_epochs,
            plan.updates_per_epoch,
            plan.num_examples,
            plan.num_train_samples,
            plan.total_batch_size,
            plan.batches_per_epoch,
            plan.max_steps,
        )

    def get_tp_size(self) -> int:
        """Processes that share one layer; here one."""
        return 1

    get_sp_size = get_cp_size = get_tp_size

    def _get_learning_rate(self) -> float:
        """The rate of the first parameter group."""
        return float(self.optimizer.param_groups[0]["lr"])

    def get_learning_rates(self) -> list[float]:
        """The rate of every parameter group."""
        if self.optimizer is None:
            raise ValueError("There is no optimizer yet: it is made by train() or create_optimizer().")
        return [group["lr"] for group in self.optimizer.param_groups]

    def get_optimizer_group(self, param: Any = None) -> Any:
        """The parameter group that holds `param`, or all of them."""
        if self.optimizer is None:
            raise ValueError("There is no optimizer yet: it is made by train() or create_optimizer().")
        if param is None:
            return [group["params"] for group in self.optimizer.param_groups]
        for group in self.optimizer.param_groups:
            if any(param is other for other in group["params"]):
                return group
        return None

    def get_num_trainable_parameters(self) -> int:
        """How many numbers training changes."""
        return get_model_param_count(self.model, trainable_only=True)

    def plan(self, world_size: int | None = None, sharding: str | None = None, **options: Any) -> RunPlan:
        """What a run would take: updates, disk, memory of each rank, traffic; nothing is trained.

        Args:
            world_size: The number of ranks; default: as many as run now.
            sharding: "none", "full_shard", "shard_grad_op" or "hybrid"; default: what `args.fsdp` says.
            **options: Others of `plan_run`: `memory="80GB"` of each device; `batch`, one micro-batch.
        """
        from footplate.trainer.planned import plan_training_of  # what it imports takes time

        return plan_training_of(self, world_size=world_size, sharding=sharding, **options)

    # ---- evaluate ----

    @cached_property
    def gather_function(self) -> Callable[[Any], Any]:
        """Joins the results of all processes; one that is set here is used by the next pass of evaluation."""
        gather: Callable[[Any], Any] = self.accelerator.gather_for_metrics
        return gather

    def torch_jit_model_eval(self, model: nn.Module, dataloader: Any, training: bool = False) -> nn.Module:
        """The model traced with the first batch of a loader; the model itself if torch cannot."""
        if training or dataloader is None:
            return model
        with rng.scoped():  # the pass that follows must draw the same numbers as without tracing
            inputs = self._prepare_inputs(next(iter(dataloader)))
        is_mixed = self.args.mixed_precision != "no"
        context = self.accelerator.autocast() if is_mixed else None
        return tracing.trace(model, batch_tools.without(inputs, self._held_back), context)

    def _nested_gather(self, tensors: Any, name: str | None = None) -> Any:
        """Tensors of all processes together; those of one process are all there are."""
        return comm.gather(tensors) if tensors is not None else None

    def _gather_and_numpify(self, tensors: Any, name: str | None = None) -> Any:
        """Tensors of all processes together, as arrays."""
        return comm.nested_numpify(comm.gather(tensors)) if tensors is not None else None

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        """Note in the state whether this evaluation is the best so far, and return it."""
        name = self.args.metric_for_best_model
        if name is None:
            return False
        best = metric_tools.find_best(
            metric_tools.read_metric(metrics, name), self.state.best_metric, bool(self.args.greater_is_better)
        )
        self.state.best_metric = best.value
        if best.is_new:
            self.state.best_global_step = self.state.global_step
        return best.is_new

    # ---- save and load ----

    def save_state(self) -> None:
        """Write `trainer_state.json` into `args.output_dir`."""
        if self.is_world_process_zero():
            folder = self._current_run.locate(str(self.args.output_dir))
            self.state.save_to_json(os.path.join(folder, TRAINER_STATE_NAME))

    def save_metrics(self, split: str, metrics: dict[str, float], combined: bool = True) -> None:
        """Write `<split>_results.json` and, unless told not to, add to `all_results.json`."""
        if self.is_world_process_zero():
            folder = self._current_run.locate(str(self.args.output_dir))
            metric_tools.save_metrics_file(folder, split, metrics, combined)

    def _sorted_checkpoints(
        self,
        output_dir: str | None = None,
        checkpoint_prefix: str = PREFIX_CHECKPOINT_DIR,
        use_mtime: bool = False,
    ) -> list[str]:
        """The checkpoints of a folder by step; `use_mtime` has no effect, since copies change times."""
        return [str(path) for path in rotation.find_checkpoints(output_dir or str(self.args.output_dir))]

    def _rotate_checkpoints(self, use_mtime: bool = False, output_dir: str | None = None) -> None:
        """Remove the oldest checkpoints beyond `args.save_total_limit`, never the best nor the latest."""
        run, limit = self._current_run, self.args.save_total_limit
        folder = run.anchor(output_dir or str(self.args.output_dir))
        kept = [path for path in (self.state.best_model_checkpoint, run.saves.sealed_folder) if path]
        run_id = run.identity.run_id if run.has_begun else None
        if run_id is not None and run_folders.overwrites(self.args) and run.plan.first_step == 0:
            rotation.remove_other_runs(folder, limit, run_id)
        rotation.rotate_checkpoints(folder, limit, kept, run_id, run.saves.sealed_names)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        """Load the weights of a checkpoint."""
        model = model if model is not None else self.model
        result = load_weights_of(model, resume_from_checkpoint, self._strategy.shards)
        self._issue_warnings_after_load(result)

    def _load_best_model(self) -> None:
        """Load the weights of the best checkpoint; without it, say so and keep those of the last update."""
        best = self.state.best_model_checkpoint
        folder = self._current_run.anchor(str(best))
        try:
            check_usable(folder, needs_state=False)
        except ValueError as error:
            logger.error(
                "THE BEST MODEL, OF UPDATE %s, IS NOT LOADED: %s The model in memory is that of the last "
                "update.",
                self.state.best_global_step,
                error,
            )
            return
        logger.info("Loading the best model, from %s (%s).", best, self.state.best_metric)
        self._issue_warnings_after_load(load_weights_of(self.model, folder, self._strategy.shards))

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """Save the state of optimizer and schedule."""
        optimizer_files.save_optimizer(self.optimizer, output_dir)
        optimizer_files.save_schedule(self.lr_scheduler, output_dir)

    def _save_scaler(self, output_dir: str) -> None:
        """Save the state of the gradient scaler, where there is one."""
        if self._strategy.scaler is not None:
            optimizer_files.save_scaler(self._strategy.scaler, output_dir)

    def _save_rng_state(self, output_dir: str) -> None:
        """Save the state of every random generator."""
        rng_files.save_rng(output_dir)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Load the state of optimizer and schedule, where the checkpoint has it."""
        if checkpoint is not None:
            load_optimizer_of(
                self.model, self.optimizer, self.lr_scheduler, checkpoint, self._strategy.shards
            )

    def _load_scaler(self, checkpoint: str | None) -> None:
        """Load the state of the gradient scaler, where there is one."""
        if checkpoint is not None and self._strategy.scaler is not None:
            optimizer_files.load_scaler(self._strategy.scaler, checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Set every random generator as it was at the checkpoint."""
        if checkpoint is not None:
            rng_files.load_rng(checkpoint)

    def _load_callback_state(self) -> None:
        """Give callbacks the state they had: a counter that starts again would make another run."""
        handler, stored = self.callback_handler, self.state.stateful_callbacks or {}
        if self.args.restore_callback_states_from_checkpoint:
            handler.callbacks = rebuild_callbacks(handler.callbacks, stored)
        left = restore_states(self._current_run.stateful(self.control, handler.callbacks), stored)
        missing = [name for name in left if name != Position.__name__]
        if missing:
            logger.warning(
                "The checkpoint has the state of callbacks that this Trainer does not have: %s. They are "
                "left out. Pass them as callbacks=[...] if the run should go on with them.",
                ", ".join(missing),
            )

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Name the weights that were missing or left over."""
        if load_result.missing_keys:
            logger.warning("Weights missing from the checkpoint: %s.", load_result.missing_keys)
        if load_result.unexpected_keys:
            logger.warning(
                "Weights of the checkpoint that the model does not have: %s.", load_result.unexpected_keys
            )

    def _get_output_dir(self, trial: Any = None) -> str:
        """The folder of this run."""
        return str(self.args.output_dir)

    # ---- log ----

    def store_flos(self) -> None:
        """Move the floating-point operations counted since the last call into the state."""
        self.state.total_flos += sum(comm.gather_objects(self._current_run.meter.flos))
        self._current_run.meter.flos = 0.0

    def log_metrics(self, split: str, metrics: dict[str, float]) -> None:
        """Print metrics as a table."""
        if self.is_world_process_zero():
            say(metric_tools.format_metrics_table(split, metrics), sys.stdout)

    def metrics_format(self, metrics: dict[str, float]) -> dict[str, Any]:
        """Metrics as a person reads them."""
        return metric_tools.metrics_format(metrics)

    @property
    def history(self) -> History:
        """The log history by column: `trainer.history["eval_loss"]`."""
        from footplate.report.history import History

        return History(self.state.log_history)

    def plot(self, height: int = 640) -> Plot:
        """The curves of the run: shows itself in a notebook, `.save(path)` writes a page.

        Args:
            height: Of the frame in a notebook, in pixels.
        """
        name = self.args.run_name or os.path.basename(os.path.abspath(str(self.args.output_dir)))
        from footplate.report.page import Plot

        return Plot(self.state.log_history, name, self.state.max_steps, height)

    # ---- callbacks and place ----

    def add_callback(self, callback: Any) -> None:
        """Add a callback, given as class or instance."""
        self.callback_handler.add_callback(callback)

    def pop_callback(self, callback: Any) -> Any:
        """Remove a callback and return it; None if it is not there."""
        return self.callback_handler.pop_callback(callback)

    def remove_callback(self, callback: Any) -> None:
        """Remove a callback."""
        self.callback_handler.remove_callback(callback)

    def end(self) -> None:
        """Close what needs all processes; in one process there is nothing to close."""

    def is_local_process_zero(self) -> bool:
        """Whether this is the first process of its machine."""
        return self.args.local_process_index == 0

    def is_world_process_zero(self) -> bool:
        """Whether this is the first process of all."""
        return self.args.process_index == 0

    # ---- not in this version: hardware, share ----

    ipex_optimize_model = _missing("ipex_optimize_model", "IPEX is", "Use torch_compile=True.")
    _save_tpu = _missing("_save_tpu", "Saving from a TPU is", "Use save_model().")

    # ---- search ----

    def _hp_search_setup(self, trial: Any) -> None:
        """Take over the values of a trial; without a search there is nothing to do."""
        self._trial = trial
        if self._current_search is not None and trial is not None:
            set_up_trial(self, self._current_search)
        self._train_batch_size = self.args.train_batch_size  # scripts set the best values and train again

    def _report_to_hp_search(self, trial: Any, step: int, metrics: dict[str, float]) -> None:
        """Tell the search about an evaluation, which may end the trial; without a search do nothing."""
        session = self._current_search
        if session is not None and trial is not None:
            self.objective = session.note(dict(metrics), step)
            if session.is_pruned:
                stop_pruned(self)


def load_weights_of(model: nn.Module, folder: str, shards: bool) -> Any:
    """Load the weights of a checkpoint, if either it or the model is in shards."""
    if not shards and not is_sharded_checkpoint(folder):
        return weights.load_weights(model, folder)
    from footplate.checkpoint.sharded import load_shards

    return load_shards(folder, model)


def load_optimizer_of(model: nn.Module, optimizer: Any, schedule: Any, folder: str, shards: bool) -> None:
    """Load the state of optimizer and schedule, if either the checkpoint or the model is in shards."""
    if not shards and not is_sharded_checkpoint(folder):
        optimizer_files.load_both(optimizer, schedule, folder)
        return
    from footplate.checkpoint.sharded import load_sharded_optimizer

    load_sharded_optimizer(folder, model, optimizer)
    optimizer_files.load_schedule(schedule, folder)
