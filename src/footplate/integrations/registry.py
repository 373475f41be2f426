"""Which callback a name in `report_to` stands for, and which trackers are installed."""

from __future__ import annotations

import difflib
import importlib
import logging
import os
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any, NamedTuple

from footplate.words import read_flag

logger = logging.getLogger(__name__)


class Tracker(NamedTuple):
    """Where the callback of a tracker is, and which packages it needs."""

    module: str
    callback: str
    packages: tuple[str, ...]  # one of them must be installed; of "a+b", both
    switch: str | None = None  # an environment variable that turns it off


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


_by_name: dict[str, type[Any]] = {}  # INTEGRATION_TO_CALLBACK, filled when asked for; users add to it


def build_trackers(report_to: str | Iterable[str] | None) -> list[type[Any]]:
    """The callback classes of the trackers that `report_to` names.

    Args:
        report_to: Names, one name, `"all"` for those that are installed, `"none"` or None.
    """
    names = [report_to] if isinstance(report_to, str) else list(report_to or [])
    if "all" in names:
        names = [*get_available_reporting_integrations(), *(name for name in names if name != "all")]
    wanted = [name for name in dict.fromkeys(names) if name != "none" and not _is_switched_off(name)]
    return [find_callback(name) for name in wanted]


get_reporting_integration_callbacks = build_trackers


def find_callback(name: str) -> type[Any]:
    """The callback class of a tracker; raises if there is no such tracker or its package is not installed."""
    if name == "neptune":
        raise ValueError(
            "report_to='neptune' is not possible any more: the service closed in March 2026. Use another, "
            "such as 'mlflow', 'wandb' or 'trackio'; events.jsonl and report.html are written without any."
        )
    if name in _by_name and name not in TRACKERS:
        return _by_name[name]
    if name not in TRACKERS:
        close = difflib.get_close_matches(name, TRACKERS, n=1, cutoff=0.5)
        meant = f" Did you mean {close[0]!r}?" if close else ""
        allowed = ", ".join(TRACKERS)
        raise ValueError(f"report_to={name!r} is not a tracker.{meant} Allowed are all, none, {allowed}.")
    tracker = TRACKERS[name]
    if not _is_installed(tracker):
        packages = " or ".join(tracker.packages).replace("+", " and ")
        raise ImportError(
            f"report_to={name!r} needs {packages}, which is not installed: pip install footplate[{name}]. "
            "Or remove it from report_to."
        )
    return _by_name.get(name) or _import_callback(tracker)


def find_named(name: str) -> Any:
    """The callback class of this name, whether or not its package is installed, or the table of all."""
    if name == "INTEGRATION_TO_CALLBACK":
        for tracker_name, tracker in TRACKERS.items():
            _by_name.setdefault(tracker_name, _import_callback(tracker))
        return _by_name
    for tracker in TRACKERS.values():
        if tracker.callback == name:
            return _import_callback(tracker)
    raise AttributeError(f"footplate.integrations has no {name!r}.")


def import_client(package: str, tracker: str | None = None) -> Any:
    """Import the package of a tracker; an error names the extra that installs it.

    Args:
        package: The package.
        tracker: The tracker's name in `report_to`, where it is not the package's.
    """
    tracker = tracker or package
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(
            f"report_to={tracker!r} needs {package}: pip install footplate[{tracker}]. ({error})"
        ) from error


def _import_callback(tracker: Tracker) -> type[Any]:
    module = importlib.import_module(f"footplate.integrations.{tracker.module}")
    found: type[Any] = getattr(module, tracker.callback)
    return found


def get_available_reporting_integrations() -> list[str]:
    """The trackers that `report_to="all"` stands for: installed, not turned off, usable in any script."""
    names = [name for name in TRACKERS if is_available(name) and name != "flyte"]  # works only inside a task
    if "mlflow" in names and "azure_ml" in names:
        names.remove("azure_ml")  # both reach the same service, and points would be there twice
    return names


def is_available(name: str) -> bool:
    """Whether a tracker can be used now; no package is imported to find out."""
    if turned_off_by(name) is not None:
        return False
    if name == "kubeflow":
        return os.getenv("KUBEFLOW_TRAINER_SERVER_URL") is not None
    return _is_installed(TRACKERS[name])


def turned_off_by(name: str) -> str | None:
    """The environment variable that turns this tracker off; None if it is not turned off."""
    switch = TRACKERS[name].switch if name in TRACKERS else None
    return switch if switch is not None and read_flag(switch) else None


def _is_switched_off(name: str) -> bool:
    switch = turned_off_by(name)
    if switch is not None:
        logger.warning("%s is in report_to, but %s=%s turns it off.", name, switch, os.environ[switch])
    return switch is not None


def _is_installed(tracker: Tracker) -> bool:
    choices = [package.split("+") for package in tracker.packages]
    return not choices or any(all(map(is_importable, packages)) for packages in choices)


def is_importable(package: str) -> bool:
    """Whether a package is installed; only the parents of a dotted name are imported."""
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # the parent of a dotted name is missing, or has no spec
        return False


# ---- the functions of the API that scripts import ----


def _check(name: str, is_usable: Callable[[], bool]) -> Callable[[], bool]:
    """Give a function the name and the docstring that it has in the API."""
    is_usable.__name__ = is_usable.__qualname__ = f"is_{name}_available"
    is_usable.__doc__ = f"Whether {name} can be used now."
    return is_usable


is_azureml_available = _check("azureml", lambda: is_available("azure_ml"))
is_clearml_available = _check("clearml", lambda: is_available("clearml"))
is_codecarbon_available = _check("codecarbon", lambda: is_available("codecarbon"))
is_comet_available = _check("comet", lambda: is_available("comet_ml"))
is_dagshub_available = _check("dagshub", lambda: is_available("dagshub"))
is_dvclive_available = _check("dvclive", lambda: is_available("dvclive"))
is_flyte_deck_standard_available = _check(
    "flyte_deck_standard", lambda: is_importable("flytekitplugins.deck")
)
is_flytekit_available = _check("flytekit", lambda: is_available("flyte"))
is_kubeflow_available = _check("kubeflow", lambda: is_available("kubeflow"))
is_mlflow_available = _check("mlflow", lambda: is_available("mlflow"))
is_neptune_available = _check("neptune", lambda: False)
is_optuna_available = _check("optuna", lambda: is_importable("optuna"))
is_ray_available = _check("ray", lambda: is_importable("ray"))
is_ray_tune_available = _check("ray_tune", lambda: is_importable("ray.tune"))
is_swanlab_available = _check("swanlab", lambda: is_available("swanlab"))
is_tensorboard_available = _check("tensorboard", lambda: is_available("tensorboard"))
is_trackio_available = _check("trackio", lambda: is_available("trackio"))
is_wandb_available = _check("wandb", lambda: is_available("wandb"))
