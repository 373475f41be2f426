"""Azure Machine Learning: its MLflow service, or a run of the older azureml-core."""

from __future__ import annotations

from importlib.util import find_spec
from inspect import signature
from typing import Any

from footplate.integrations.guard import SetupError
from footplate.integrations.known import as_table, numbers
from footplate.integrations.mlflow import MLflowCallback
from footplate.integrations.run import Run


class AzureMLCallback(MLflowCallback):
    """Sends a run to Azure Machine Learning.

    With azureml-mlflow it is MLflow at an `azureml://` address, which a job finds in `MLFLOW_TRACKING_URI`;
    MLflow's variables hold. With azureml-core alone it is the run that the job is part of.

    Args:
        azureml_run: A run of azureml-core of your own.
    """

    name = "azure_ml"
    package = "azureml"

    def __init__(self, azureml_run: Any = None) -> None:
        super().__init__()
        self.azureml_run = azureml_run

    def open(self, run: Run) -> str | None:
        """Begin the run at Azure, or go on with it."""
        if self.azureml_run is None and not _has("azureml.mlflow"):
            self.azureml_run = _find_core_run()
        if self.azureml_run is None:
            return super().open(run)
        self.learn(run, None)
        return str(self.azureml_run.id)

    def write(self, values: dict[str, Any], step: int) -> None:
        """Numbers as metrics."""
        if self.azureml_run is None:
            super().write(values, step)
            return
        # the stand-in of azureml-core outside a job knows no steps
        place = {"step": step} if "step" in signature(self.azureml_run.log).parameters else {}
        for key, value in numbers(values).items():
            self.azureml_run.log(key, value, description=key, **place)

    def write_samples(self, rows: list[dict[str, Any]], source: str, step: int) -> None:
        """A table."""
        if self.azureml_run is None:
            super().write_samples(rows, source, step)
            return
        columns, cells = as_table(rows)
        table = {column: [row[place] for row in cells] for place, column in enumerate(columns)}
        self.azureml_run.log_table(f"{source}/samples", {**table, "step": [step] * len(cells)})

    def _find_uri(self, mlflow: Any, run: Run) -> str:
        """What is set: Azure's address cannot be guessed."""
        if not mlflow.is_tracking_uri_set():
            raise SetupError(
                "MLFLOW_TRACKING_URI is not set. A job of Azure ML sets it; elsewhere give it what "
                "`az ml workspace show --query mlflow_tracking_uri` prints."
            )
        return str(mlflow.get_tracking_uri())


def _find_core_run() -> Any:
    """The run of azureml-core that this process is part of, or its stand-in that only prints."""
    try:
        from azureml.core.run import Run as CoreRun
    except ImportError as error:
        raise ImportError(
            "report_to='azure_ml' needs azureml-mlflow: pip install footplate[azure_ml]."
        ) from error
    return CoreRun.get_context()


def _has(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False
