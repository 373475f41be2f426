"""What a tracker learns about a run when it begins: plain data, so that a journal can hold it."""

from __future__ import annotations

import logging
import os
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from footplate.resumed import ResumePoint
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
        name: Its readable name: `run_name`, else the name of `output_dir`.
        project: `args.project`.
        output_dir: Where the run keeps its files.
        logging_dir: Where trackers keep theirs.
        first_step: The step it resumes from; 0 at the start.
        max_steps: Updates it will make.
        settings: Every training argument, as plain values.
        defaults: The default of every training argument, of the version that ran.
        model: The class, sizes and configuration of the model.
        versions: Versions of Python and of the packages in `REPORTED_PACKAGES`.
        machine: The machine and the process it runs in.
        trial: Name of the trial, in a search; `name` is that of the search then.
        trial_params: The values that the trial has chosen, also those that no training argument has.
        service_id: The run's id at the tracker's service; None if it has not begun there.
        num_logs: How many logs the run had made when it began or resumed.
        num_sent: How many of its logs the tracker has received; those that a resume makes again are not sent.
        live_model: The model itself, for trackers that watch it; None when a run is replayed.
    """

    run_id: str
    name: str
    output_dir: str
    project: str = "huggingface"
    logging_dir: str | None = None
    first_step: int = 0
    max_steps: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    trial: str | None = None
    trial_params: dict[str, Any] = field(default_factory=dict)
    service_id: str | None = None
    num_logs: int = 0
    num_sent: int = 0
    live_model: Any = None

    def to_event(self) -> dict[str, Any]:
        """The run as the journal keeps it."""
        of_one_tracker = ("service_id", "num_sent", "live_model")
        # without the model: asdict would copy it
        kept = asdict(replace(self, live_model=None))
        return {name: value for name, value in kept.items() if name not in of_one_tracker}

    @classmethod
    def from_event(cls, event: Mapping[str, Any]) -> Run:
        """The run that a line of the journal describes; fields of other versions are ignored."""
        known = {f.name for f in fields(cls)}
        return cls(**{name: value for name, value in event.items() if name in known})

    @property
    def config(self) -> dict[str, Any]:
        """The model's configuration, a trial's values and the settings; a setting wins over the same name."""
        return {**self.model.get("config", {}), **self.trial_params, **self.settings}

    @property
    def config_and_size(self) -> dict[str, Any]:
        """`config` with the number of parameters."""
        return {**self.config, "model/num_parameters": self.model.get("num_parameters")}

    @property
    def trial_name(self) -> str:
        """The name, with the trial's name in a search."""
        return f"{self.name}-{self.trial}" if self.trial else self.name

    @property
    def search_name(self) -> str | None:
        """The name of the search that the run is a trial of: trackers group its trials by it."""
        return self.name if self.trial else None

    @property
    def resume_point(self) -> ResumePoint:
        """Where the run begins or resumes."""
        return ResumePoint(self.first_step, self.num_logs)


def describe_run(args: TrainingArguments, state: TrainerState, model: Any, run_id: str) -> Run:
    """Describe the run of these arguments, this state and this model.

    A library that has its own loop may call the callbacks with arguments and a model of its own classes.
    """
    assert args.output_dir is not None
    logging_dir = getattr(args, "logging_dir", None)
    return Run(
        run_id=run_id,
        name=getattr(args, "run_name", None) or Path(args.output_dir).resolve().name,
        project=getattr(args, "project", Run.project),
        output_dir=os.path.abspath(args.output_dir),
        # absolute: it is read on another thread, when the working folder may be another one
        logging_dir=os.path.abspath(os.path.expanduser(logging_dir)) if logging_dir else None,
        first_step=state.global_step,
        max_steps=state.max_steps,
        settings=args.to_dict() if hasattr(args, "to_dict") else {},
        defaults=find_defaults(type(args)) if is_dataclass(args) else {},
        model=_describe_model(model),
        versions=_find_versions(),
        machine=_describe_machine(),
        num_logs=len(state.log_history),
        trial=state.trial_name,
        trial_params={name: _as_plain(value) for name, value in (state.trial_params or {}).items()},
        live_model=model,
    )


def find_defaults(arguments: Any) -> dict[str, Any]:
    """The default of each field of a class of arguments, as a plain value."""
    found = {}
    for entry in fields(arguments):
        value = entry.default
        if value is MISSING:
            value = entry.default_factory() if entry.default_factory is not MISSING else None
        value = getattr(value, "value", value)  # an enum
        found[entry.name] = value if isinstance(value, (bool, int, float, str, list, dict)) else None
    return found


def _as_plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def _describe_model(model: Any) -> dict[str, Any]:
    if model is None:
        return {}
    described = {"class": type(unwrap_model(model)).__name__, "config": _describe_config(unwrap_model(model))}
    try:
        parameters = list(model.parameters())
    except Exception:  # an object around a module, or of which only a part is one
        return described
    return {
        **described,
        "num_parameters": sum(parameter.numel() for parameter in parameters),
        "num_trainable": sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
    }


def _describe_config(model: Any) -> dict[str, Any]:
    try:
        config = getattr(model, "config", None)
        to_dict = getattr(config, "to_dict", None)
        return to_dict() if callable(to_dict) else dict(config) if isinstance(config, Mapping) else {}
    except Exception as error:  # code of another library: an error in it must not stop training
        logger.warning("The configuration of the model cannot be reported: %r.", error)
        return {}


def _find_versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in REPORTED_PACKAGES:
        try:
            found[package] = _find_version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _find_version(package: str) -> str:
    """As `metadata.version`, which parses the whole description: up to 2 ms per package."""
    text = metadata.distribution(package).read_text("METADATA") or ""
    line = re.search(r"^Version:(.*)$", text, re.MULTILINE)  # a description comes after the headers
    return line[1].strip() if line is not None else metadata.version(package)


def _name_platform() -> str:
    """As `platform.platform()`, which on Linux starts a process to ask for the kind of processor."""
    if sys.platform != "linux":
        return platform.platform()
    machine = platform.uname()
    parts = (machine.system, machine.release, machine.machine, "with", "".join(platform.libc_ver()))
    return "-".join(part for part in parts if part)


def _describe_machine() -> dict[str, Any]:
    return {
        "platform": _name_platform(),
        "processor": platform.machine(),
        "num_cpus": os.cpu_count(),
        "host": platform.node(),
        "process": os.getpid(),
    }
