"""What MLflow and services that speak its protocol accept: names, lengths, counts and logins."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from footplate.integrations.guard import SetupError

AZURE_SCOPE = "https://management.azure.com/.default"


class Limits(NamedTuple):
    """How many parameters a run may have, and how long a value may be."""

    num_params: int | None
    value_length: int


def find_limits(tracker: str, uri: str, asked: str | None) -> Limits:
    """The limits of the service, and of the user.

    Args:
        tracker: The tracker's name.
        uri: Where the run is sent.
        asked: `MLFLOW_MAX_LOG_PARAMS`.
    """
    from mlflow.utils.validation import MAX_PARAM_VAL_LENGTH

    is_azure = tracker == "azure_ml" or uri.startswith("azureml:")
    most = int(asked) if asked and asked.isdigit() else 200 if is_azure else None
    return Limits(most, 500 if is_azure else MAX_PARAM_VAL_LENGTH)


def check_login(uri: str, has_token: bool) -> None:
    """Raise if there is no Azure login: Azure's client would open a browser."""
    if not uri.startswith("azureml:") or has_token:
        return
    from azure.core.exceptions import ClientAuthenticationError
    from azure.identity import DefaultAzureCredential

    try:
        DefaultAzureCredential().get_token(AZURE_SCOPE)
    except ClientAuthenticationError as error:
        raise SetupError(
            "There is no Azure login: run `az login`, or set AZURE_CLIENT_ID, AZURE_TENANT_ID and "
            "AZURE_CLIENT_SECRET."
        ) from error


def clean_name(name: str) -> str:
    """The name with only characters that MLflow accepts, and as a path that stays inside its folder."""
    plain = re.sub(r"[^\w.\- :/]", "_", name)
    return posixpath.normpath(f"/{plain}").lstrip("/")[:250] or "_"


def in_batches(items: list[Any], size: int) -> Iterator[list[Any]]:
    """The list in parts of at most `size`, one for each request."""
    return (items[start : start + size] for start in range(0, len(items), size))
