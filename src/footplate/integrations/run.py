"""What a tracker is told about a run when it begins: plain data, so that it can be told again later."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from footplate.wrappers import unwrap_model

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments
    from footplate.state import TrainerState

logger = logging.getLogger(__name__)

REPORTED_PACKAGES = ("footplate", "torch", "accelerate", "transformers", "datasets", "numpy", "safetensors")


@dataclass
class Run:
    """One training run, from its first begin to its last resume.

    Args:
        run_id: footplate's own name for the run; the same after a resume.
        name: What people call it: `run_name`, else the name of `output_dir`.
        project: `args.project`.
        output_dir: Where the run keeps its files.
        logging_dir: Where trackers keep theirs.
        first_step: The step it goes on from; 0 at the start.
        max_steps: Updates it will make.
        settings: Every training argument, as plain values.
        model: The class, sizes and configuration of the model.
        versions: Versions of Python and the packages that matter.
        machine: What it runs on.
        trial: Name of the trial, in a search.
        service_id: The tracker's own id of the run, where it has begun there before.
        num_logs: Logs that the run had made when it began or was resumed.
        num_sent: How many of its logs the tracker has got already; those made again are not sent again.
        live_model: The model itself, for trackers that watch it; absent when a run is replayed.
    """

    run_id: str
    name: str
    output_dir: str
    project: str = "huggingface"
    logging_dir: str | None = None
    first_step: int = 0
    max_steps: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    trial: str | None = None
    service_id: str | None = None
    num_logs: int = 0
    num_sent: int = 0
    live_model: Any = None

    def to_event(self) -> dict[str, Any]:
        """The run as the journal keeps it."""
        of_a_tracker = ("service_id", "num_sent", "live_model")
        kept = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in of_a_tracker}
        return asdict(Run(**kept), dict_factory=lambda pairs: {k: v for k, v in pairs if k in kept})

    @classmethod
    def from_event(cls, event: Mapping[str, Any]) -> Run:
        """A run from its line in the journal."""
        known = {f.name for f in fields(cls)}
        return cls(**{name: value for name, value in event.items() if name in known})

    @property
    def config(self) -> dict[str, Any]:
        """Settings and model configuration as one flat dictionary; the settings win."""
        return {**self.model.get("config", {}), **self.settings}


def describe_run(args: TrainingArguments, state: TrainerState, model: Any, run_id: str) -> Run:
    """The run that these arguments, this state and this model make."""
    assert args.output_dir is not None
    return Run(
        run_id=run_id,
        name=args.run_name or Path(args.output_dir).resolve().name,
        project=args.project,
        output_dir=os.path.abspath(args.output_dir),
        logging_dir=args.logging_dir,
        first_step=state.global_step,
        max_steps=state.max_steps,
        settings=args.to_dict(),
        model=_describe_model(model),
        versions=_find_versions(),
        machine=_describe_machine(),
        num_logs=len(state.log_history),
        trial=state.trial_name,
        live_model=model,
    )


def _describe_model(model: Any) -> dict[str, Any]:
    if model is None:
        return {}
    parameters = list(model.parameters())
    return {
        "class": type(unwrap_model(model)).__name__,
        "num_parameters": sum(parameter.numel() for parameter in parameters),
        "num_trainable": sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
        "config": _describe_config(unwrap_model(model)),
    }


def _describe_config(model: Any) -> dict[str, Any]:
    try:
        config = getattr(model, "config", None)
        to_dict = getattr(config, "to_dict", None)
        return to_dict() if callable(to_dict) else dict(config) if isinstance(config, Mapping) else {}
    except Exception as error:  # code of somebody else, and not worth a run
        logger.warning("The configuration of the model cannot be reported: %r.", error)
        return {}


def _find_versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in REPORTED_PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _describe_machine() -> dict[str, Any]:
    return {
        "platform": platform.platform(),
        "processor": platform.machine(),
        "num_cpus": os.cpu_count(),
        "host": platform.node(),
        "process": os.getpid(),
    }
