"""Which tracker a name in `report_to` means, and which of them are installed."""

from __future__ import annotations

import difflib
import importlib
import logging
import os
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any, NamedTuple

logger = logging.getLogger(__name__)

TRUE_WORDS = ("1", "ON", "YES", "TRUE")


class Tracker(NamedTuple):
    """Where a tracker's callback is, and what must be importable for it."""

    module: str
    callback: str
    packages: tuple[str, ...]  # one of them, or with "+", all of those
    switch: str | None = None  # a variable that turns it off


TRACKERS = {
    "azure_ml": Tracker("azureml", "AzureMLCallback", ("azureml.core", "azureml.mlflow")),
    "clearml": Tracker("clearml", "ClearMLCallback", ("clearml",)),
    "codecarbon": Tracker("codecarbon", "CodeCarbonCallback", ("codecarbon",)),
    "comet_ml": Tracker("comet", "CometCallback", ("comet_ml",)),
    "dagshub": Tracker("dagshub", "DagsHubCallback", ("dagshub+mlflow",)),
    "dvclive": Tracker("dvclive", "DVCLiveCallback", ("dvclive",)),
    "flyte": Tracker("flyte", "FlyteCallback", ("flytekit",)),
    "kubeflow": Tracker("kubeflow", "KubeflowCallback", (), "DISABLE_KUBEFLOW_INTEGRATION"),
    "mlflow": Tracker("mlflow", "MLflowCallback", ("mlflow",), "DISABLE_MLFLOW_INTEGRATION"),
    "swanlab": Tracker("swanlab", "SwanLabCallback", ("swanlab",)),
    "tensorboard": Tracker("tensorboard", "TensorBoardCallback", ("tensorboard", "tensorboardX")),
    "trackio": Tracker("trackio", "TrackioCallback", ("trackio",)),
    "wandb": Tracker("wandb", "WandbCallback", ("wandb",), "WANDB_DISABLED"),
}


def build_trackers(report_to: str | Iterable[str] | None) -> list[type[Any]]:
    """The callback classes of the trackers that `report_to` names.

    Args:
        report_to: Names, one name, `"all"` for whatever is installed, `"none"` or nothing.
    """
    names = [report_to] if isinstance(report_to, str) else list(report_to or [])
    if "all" in names:
        names = [*get_available_reporting_integrations(), *(name for name in names if name != "all")]
    wanted = [name for name in dict.fromkeys(names) if name != "none" and not _is_switched_off(name)]
    return [find_callback(name) for name in wanted]


get_reporting_integration_callbacks = build_trackers


def find_callback(name: str) -> type[Any]:
    """The callback class of one tracker, whose package must be installed."""
    if name == "neptune":
        raise ValueError(
            "report_to='neptune' is not possible any more: the service closed in March 2026. Take another, "
            "such as 'mlflow', 'wandb' or 'trackio'; the run's own events.jsonl and report.html need none."
        )
    if name not in TRACKERS:
        close = difflib.get_close_matches(name, TRACKERS, n=1, cutoff=0.5)
        meant = f" Did you mean {close[0]!r}?" if close else ""
        allowed = ", ".join(TRACKERS)
        raise ValueError(f"report_to={name!r} is no tracker.{meant} Allowed are all, none, {allowed}.")
    tracker = TRACKERS[name]
    if not _is_installed(tracker):
        packages = " or ".join(tracker.packages).replace("+", " and ")
        raise ImportError(
            f"report_to={name!r} needs {packages}, which is not installed: pip install footplate[{name}]. "
            "Or take it out of report_to."
        )
    return _import_callback(tracker)


def find_named(name: str) -> type[Any]:
    """The callback class of this name, whether or not its package is installed."""
    for tracker in TRACKERS.values():
        if tracker.callback == name:
            return _import_callback(tracker)
    raise AttributeError(f"footplate.integrations has no {name!r}.")


def _import_callback(tracker: Tracker) -> type[Any]:
    module = importlib.import_module(f"footplate.integrations.{tracker.module}")
    found: type[Any] = getattr(module, tracker.callback)
    return found


def get_available_reporting_integrations() -> list[str]:
    """The trackers that `report_to="all"` means: installed, not turned off, and able to work unasked."""
    names = [name for name in TRACKERS if is_available(name) and name != "flyte"]  # it needs a task around it
    if "mlflow" in names and "azure_ml" in names:
        names.remove("azure_ml")  # one service by two ways
    return names


def is_available(name: str) -> bool:
    """Whether a tracker could be used now; nothing is imported to find out."""
    if _turned_off_by(name) is not None:
        return False
    if name == "kubeflow":
        return os.getenv("KUBEFLOW_TRAINER_SERVER_URL") is not None
    return _is_installed(TRACKERS[name])


def _turned_off_by(name: str) -> str | None:
    """The variable that turns this tracker off, if it does."""
    switch = TRACKERS[name].switch if name in TRACKERS else None
    return switch if switch is not None and os.getenv(switch, "").upper() in TRUE_WORDS else None


def _is_switched_off(name: str) -> bool:
    switch = _turned_off_by(name)
    if switch is not None:
        logger.warning("%s is in report_to, but %s=%s turns it off.", name, switch, os.environ[switch])
    return switch is not None


def _is_installed(tracker: Tracker) -> bool:
    choices = [package.split("+") for package in tracker.packages]
    return not choices or any(all(map(_can_import, packages)) for packages in choices)


def _can_import(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # the parent of a dotted name is missing, or a stub stands in for it
        return False


# ---- the questions that scripts import ----


def _asker(name: str, ask: Callable[[], bool]) -> Callable[[], bool]:
    def is_there() -> bool:
        return ask()

    is_there.__name__ = is_there.__qualname__ = f"is_{name}_available"
    is_there.__doc__ = f"Whether {name} could be used now."
    return is_there


is_azureml_available = _asker("azureml", lambda: is_available("azure_ml"))
is_clearml_available = _asker("clearml", lambda: is_available("clearml"))
is_codecarbon_available = _asker("codecarbon", lambda: is_available("codecarbon"))
is_comet_available = _asker("comet", lambda: is_available("comet_ml"))
is_dagshub_available = _asker("dagshub", lambda: is_available("dagshub"))
is_dvclive_available = _asker("dvclive", lambda: is_available("dvclive"))
is_flyte_deck_standard_available = _asker("flyte_deck_standard", lambda: _can_import("flytekitplugins.deck"))
is_flytekit_available = _asker("flytekit", lambda: is_available("flyte"))
is_kubeflow_available = _asker("kubeflow", lambda: is_available("kubeflow"))
is_mlflow_available = _asker("mlflow", lambda: is_available("mlflow"))
is_neptune_available = _asker("neptune", lambda: False)
is_optuna_available = _asker("optuna", lambda: _can_import("optuna"))
is_ray_available = _asker("ray", lambda: _can_import("ray"))
is_ray_tune_available = _asker("ray_tune", lambda: _can_import("ray.tune"))
is_swanlab_available = _asker("swanlab", lambda: is_available("swanlab"))
is_tensorboard_available = _asker("tensorboard", lambda: is_available("tensorboard"))
is_trackio_available = _asker("trackio", lambda: is_available("trackio"))
is_wandb_available = _asker("wandb", lambda: is_available("wandb"))
