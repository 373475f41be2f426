"""DagsHub: its MLflow service and, if wanted, the files of the run in a repository there."""

from __future__ import annotations

import os
from typing import Any

from footplate.integrations.guard import SetupError
from footplate.integrations.inside import stays_inside
from footplate.integrations.mlflow import MLflowCallback
from footplate.integrations.registry import import_client
from footplate.integrations.run import Run
from footplate.words import read_flag


class DagsHubCallback(MLflowCallback):
    """Sends a run to the repository at DagsHub that `dagshub.init()` or `MLFLOW_TRACKING_URI` names.

    MLflow's environment variables apply. With `HF_DAGSHUB_LOG_ARTIFACTS` the files in `output_dir` are
    uploaded to `artifacts` on the branch `BRANCH` when training ends; this needs `DAGSHUB_USER_TOKEN` or an
    earlier login.
    """

    name = "dagshub"

    def open(self, run: Run) -> str | None:
        """Begin or continue the run at DagsHub, without asking the user for a key."""
        import_client("dagshub")
        return super().open(run)

    def end(self, metrics: dict[str, Any], step: int) -> None:
        """Finish the run, and upload its files if wanted."""
        super().end(metrics, step)
        if self.run is None or not read_flag("HF_DAGSHUB_LOG_ARTIFACTS"):
            return
        if stays_inside(self.run.output_dir, self.run.output_dir):
            from dagshub.upload import Repo

            owner, name = _find_repository(self._uri)
            branch = os.getenv("BRANCH") or "main"
            repository = Repo(owner=owner, name=name, branch=branch, token=_find_token())
            repository.directory("artifacts").add_dir(self.run.output_dir)

    def _find_uri(self, mlflow: Any, run: Run) -> str:
        """The address of the repository; sets a token for it if none is set."""
        if not mlflow.is_tracking_uri_set():
            raise SetupError(
                "No DagsHub repository is named: call dagshub.init(), or set MLFLOW_TRACKING_URI."
            )
        uri = str(mlflow.get_tracking_uri())
        _find_repository(uri)
        has_login = os.getenv("MLFLOW_TRACKING_USERNAME") or os.getenv("MLFLOW_TRACKING_TOKEN")
        if uri.startswith("http") and not has_login:
            os.environ["MLFLOW_TRACKING_TOKEN"] = _find_token()  # as dagshub.init() would
        return uri


def _find_repository(uri: str) -> tuple[str, str]:
    """Owner and name of the repository: the last two parts of the address."""
    *_, owner, name = ["", "", *uri.rstrip("/").split("/")]
    if not owner or not name.endswith(".mlflow"):
        raise SetupError(
            f"MLFLOW_TRACKING_URI={uri!r} does not name a DagsHub repository; an address looks like "
            "https://dagshub.com/<owner>/<repository>.mlflow."
        )
    return owner, name.removesuffix(".mlflow")


def _find_token() -> str:
    """A token from an earlier login; raises without one, because the client would open a browser."""
    import dagshub.auth

    try:
        return str(dagshub.auth.get_token(fail_if_no_token=True))
    except RuntimeError as error:
        raise SetupError(
            f"No DagsHub login: set DAGSHUB_USER_TOKEN, or run `dagshub login`. ({error})"
        ) from error
