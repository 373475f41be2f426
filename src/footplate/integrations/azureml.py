"""Azure Machine Learning: its MLflow service, or a run of the older azureml-core."""

from __future__ import annotations

from inspect import signature
from typing import Any

from footplate.integrations.guard import SetupError
from footplate.integrations.mlflow import MLflowCallback
from footplate.integrations.registry import is_importable
from footplate.integrations.run import Run
from footplate.integrations.values import as_table, numbers


class AzureMLCallback(MLflowCallback):
    """Sends a run to Azure Machine Learning.

    With azureml-mlflow this is MLflow at an `azureml://` address, which a job has in `MLFLOW_TRACKING_URI`;
    MLflow's environment variables apply. With azureml-core alone it is the run that the job belongs to.

    Args:
        azureml_run: Your own run of azureml-core.
    """

    name = "azure_ml"

    def __init__(self, azureml_run: Any = None) -> None:
        super().__init__()
        self.azureml_run = azureml_run

    def open(self, run: Run) -> str | None:
        """Begin or continue the run at Azure."""
        if self.azureml_run is None and not is_importable("azureml.mlflow"):
            self.azureml_run = _find_core_run()
        if self.azureml_run is None:
            return super().open(run)
        self.learn(run, None)
        return str(self.azureml_run.id)

    def write(self, values: dict[str, Any], step: int) -> None:
        """Write numbers as metrics."""
        if self.azureml_run is None:
            super().write(values, step)
            return
        # outside a job, azureml-core has a substitute for a run whose log() takes no step
        place = {"step": step} if "step" in signature(self.azureml_run.log).parameters else {}
        for key, value in numbers(values).items():
            self.azureml_run.log(key, value, description=key, **place)

    def write_samples(self, rows: list[dict[str, Any]], source: str, step: int) -> None:
        """Write a table."""
        if self.azureml_run is None:
            super().write_samples(rows, source, step)
            return
        columns, cells = as_table(rows)
        table = {column: [row[place] for row in cells] for place, column in enumerate(columns)}
        self.azureml_run.log_table(f"{source}/samples", {**table, "step": [step] * len(cells)})

    def _find_uri(self, mlflow: Any, run: Run) -> str:
        """The address that is set; raises if none is, because it cannot be guessed."""
        if not mlflow.is_tracking_uri_set():
            raise SetupError(
                "MLFLOW_TRACKING_URI is not set. A job of Azure ML sets it; elsewhere set it to what "
                "`az ml workspace show --query mlflow_tracking_uri` prints."
            )
        return str(mlflow.get_tracking_uri())


def _find_core_run() -> Any:
    """The run of azureml-core that this process belongs to; outside a job, a substitute that only prints."""
    try:
        from azureml.core.run import Run as CoreRun
    except ImportError as error:
        raise ImportError(
            "report_to='azure_ml' needs azureml-mlflow: pip install footplate[azure_ml]."
        ) from error
    return CoreRun.get_context()
