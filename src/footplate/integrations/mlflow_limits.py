"""What MLflow and the services behind it take: names, lengths, counts, and who may come in."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from footplate.integrations.guard import SetupError

AZURE_SCOPE = "https://management.azure.com/.default"


class Limits(NamedTuple):
    """How many parameters a run may have, and how long a value may be."""

    num_params: int | None
    value_length: int


def find_limits(tracker: str, uri: str, asked: str | None) -> Limits:
    """The limits of the service; `asked` is what the user allows.

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
    """Azure's client would open a browser where it finds no login: look for one first."""
    if not uri.startswith("azureml:") or has_token:
        return
    from azure.core.exceptions import ClientAuthenticationError
    from azure.identity import DefaultAzureCredential

    try:
        DefaultAzureCredential().get_token(AZURE_SCOPE)
    except ClientAuthenticationError as error:
        raise SetupError(
            "No Azure login is found: run `az login`, or set AZURE_CLIENT_ID, AZURE_TENANT_ID and "
            "AZURE_CLIENT_SECRET."
        ) from error


def clean_name(name: str) -> str:
    """A name that MLflow accepts: plain characters, no path that leads elsewhere."""
    plain = re.sub(r"[^\w.\- :/]", "_", name)
    return posixpath.normpath(f"/{plain}").lstrip("/")[:250] or "_"


def flatten(items: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Items of dictionaries within dictionaries, their names joined by dots."""
    for key, value in items:
        if isinstance(value, Mapping) and value:
            yield from flatten((f"{key}.{name}", inner) for name, inner in value.items())
        else:
            yield key, value


def in_batches(items: list[Any], size: int) -> Iterator[list[Any]]:
    """Pieces of a list, each as long as one request may be."""
    return (items[start : start + size] for start in range(0, len(items), size))
