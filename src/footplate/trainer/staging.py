"""Where a rehearsal or a profile takes place: its own folder, no callbacks; afterwards all is put back."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from footplate import rng
from footplate.checkpoint.seal import rehearsal_prefix
from footplate.distributed.strategy import build_strategy
from footplate.trainer.run import Run
from footplate.training.keeping import KeptObjects, weights_of

if TYPE_CHECKING:
    from footplate.trainer.training import Training

# it is quiet, and tells nobody
QUIET: dict[str, Any] = {
    "push_to_hub": False,
    "save_on_error": False,
    "disable_tqdm": True,
    "show_samples": 0,
    "module_stats_steps": None,
}
# beside the user's wish for a rehearsal: it is quick too, and by itself
REHEARSAL: dict[str, Any] = {
    "dataloader_num_workers": 0,
    "dataloader_persistent_workers": False,
    "dataloader_prefetch_factor": None,
    "torch_compile": False,
    **QUIET,
}
_OF_THE_RUN = ("_current_run", "_strategy", "_memory_tracker", "_publisher", "_current_search")


@contextmanager
def on_stage(
    trainer: Training, puts_back: bool, settings: Mapping[str, Any] = REHEARSAL
) -> Iterator[list[str]]:
    """Let a Trainer act without a trace until the block ends; its target names what then stays changed.

    Args:
        trainer: The Trainer.
        puts_back: Set model, data and whatever the user's code refers to back; not needed where the process
            ends afterwards. Raises CannotPutBack at once if that is not possible.
        settings: What is set otherwise meanwhile.
    """
    handler = trainer.callback_handler
    owners = (vars(trainer), vars(handler), handler.extras, vars(trainer.args))
    before = [dict(owner) for owner in owners]
    kept = keep_all(trainer) if puts_back else None
    home = Path(str(trainer.args.output_dir))
    times = home.stat() if home.is_dir() else None
    changed: list[str] = []
    with (
        rng.scoped(),
        tempfile.TemporaryDirectory(
            prefix=rehearsal_prefix(), dir=home if times is not None else None
        ) as folder,
    ):
        try:
            set_stage(trainer, folder, settings)
            yield changed
        finally:
            trainer._current_run.saves.join()
            if kept is not None:
                kept.put_back()
                changed += [f"{list(one.shape)} of {one.dtype}" for one in kept.find_changed()]
            for owner, content in zip(owners, before, strict=True):
                owner.clear()
                owner.update(content)
    if times is not None:
        os.utime(home, ns=(times.st_atime_ns, times.st_mtime_ns))


def begin_run(trainer: Training) -> tuple[nn.Module, Any]:
    """Model and loader of a run on this stage, prepared as `train()` does from the start, with optimizer."""
    trainer._prepare_model_for_run(None, None)
    loader = trainer.get_train_dataloader()
    plan = trainer._plan_run(loader, None)
    trainer._begin_run(plan, loader, None)
    model = trainer._prepare_for_training(loader, None)
    trainer.is_in_train = True
    return model, loader


def keep_all(trainer: Training) -> KeptObjects:
    """The state of all that the rehearsal may change."""
    from footplate.integrations.base import TrackerCallback

    handler = trainer.callback_handler
    own = [value for name, value in vars(trainer).items() if name not in _OF_THE_RUN]
    trackers = [one for one in handler.callbacks if isinstance(one, TrackerCallback)]
    skipped = [trainer, handler, *trackers, *(getattr(trainer, name) for name in _OF_THE_RUN)]
    kind = type(trainer)
    methods = [getattr(base, name) for base in kind.__mro__ for name in vars(base) if _is_plain(base, name)]
    return KeptObjects(
        [*own, *handler.callbacks, *methods],
        weights_of(trainer.model, trainer.optimizer),
        without=[*skipped, *handler.recorders, *handler.reporters],
    )


def _is_plain(base: type[Any], name: str) -> bool:
    """Whether a class of the user's own holds a function of this name."""
    is_ours = str(base.__module__).startswith("footplate.")
    return not is_ours and base is not object and callable(vars(base)[name]) and not name.startswith("__")


def set_stage(trainer: Training, folder: str, settings: Mapping[str, Any]) -> None:
    """Send what is written into a folder, and what is told to nobody."""
    args = trainer.args
    vars(args).update({name: value for name, value in settings.items() if name in vars(args)})
    vars(args).update(output_dir=folder)
    # joints that are overridden are called, but for `log`: it may write anywhere
    vars(trainer).update(_event=_tell_nobody, log=_log_nothing, model_init=None, _eval_dataloaders={})
    # an override may ask the handler itself
    vars(trainer.callback_handler).update(_tell=_keep_control, call_event=_keep_control)
    trainer._strategy = build_strategy(args, lambda: trainer.accelerator, trainer._accelerator)
    trainer._current_run = Run(args, trainer._device, dict(trainer.callback_handler.extras))


def _tell_nobody(name: str, **kwargs: Any) -> None:
    """In the place of `_event`: no callback hears of a rehearsal."""


def _keep_control(event: str, args: Any, state: Any, control: Any, *rest: Any, **kwargs: Any) -> Any:
    """In the place of the handler's way to its callbacks."""
    return control


def _log_nothing(logs: dict[str, float], start_time: float | None = None) -> None:
    """In the place of `log`."""
