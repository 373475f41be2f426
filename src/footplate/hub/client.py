"""One repository of the Hub, by `huggingface_hub`; errors come out in one sentence and without the token."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from footplate.integrations.guard import SetupError

HIDDEN = "<HUB_TOKEN>"
# the Hub's answers that a second attempt does not change: wrong request, token, right, name, size
_FINAL_ANSWERS = (400, 401, 402, 403, 404, 413, 422)

Files = Mapping[str, Path]  # by their path in the repository


class PushError(OSError):
    """The Hub did not take something; trying again may help."""


class RefusedError(PushError, SetupError):
    """The Hub refuses, and will refuse again until something is changed."""


class Repository:
    """A repository that a model is sent to; it is made when it is first needed.

    Args:
        name: `owner/name`, or only the name for one of the user whose token it is.
        token: Without it, that of the logged-in user.
        private: Whether a new repository is private; None: what is usual for the owner.
        revision: The branch to send to; made if it does not exist.
    """

    def __init__(
        self, name: str, token: str | None = None, private: bool | None = None, revision: str | None = None
    ) -> None:
        self.name, self.private, self.revision = name, private, revision
        self.repo_id: str | None = None  # with its owner, as soon as the Hub has said it
        self._token = token
        self._branches: set[str] = set()  # that exist for certain

    def __repr__(self) -> str:
        return f"Repository({self.repo_id or self.name!r}, revision={self.revision!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_token": None}  # a pickled Trainer must not carry it

    def create(self, token: str | None = None) -> str:
        """Make the repository unless it exists; return its name with the owner."""
        with self._plain_errors(token) as client:
            url = client.create_repo(self.name, private=self.private, exist_ok=True)
            self.repo_id = url.repo_id
        return str(self.repo_id)

    def send(self, files: Files, message: str, revision: str | None = None, token: str | None = None) -> Any:
        """Send files in one commit and return its `CommitInfo`; those that the Hub has are not sent again.

        Args:
            files: What to send.
            message: Of the commit.
            revision: Another branch than that of this object.
            token: Another token than that of this object.
        """
        repo_id = self.repo_id or self.create(token)
        branch = revision or self.revision
        with self._plain_errors(token) as client:
            from huggingface_hub import CommitOperationAdd

            if branch not in (None, "main", *self._branches):
                client.create_branch(repo_id, branch=branch, exist_ok=True)
                self._branches.add(str(branch))
            operations = [CommitOperationAdd(place, str(path)) for place, path in sorted(files.items())]
            return client.create_commit(repo_id, operations, commit_message=message, revision=branch)

    def find_missing(self, files: Files) -> dict[str, Path]:
        """Those of the files that the repository does not have, or has with other contents."""
        repo_id = self.repo_id or self.create()
        known: dict[str, str] = {}
        with self._plain_errors() as client:
            from huggingface_hub.errors import RevisionNotFoundError

            places = sorted(files)
            with contextlib.suppress(RevisionNotFoundError):
                for start in range(0, len(places), 500):
                    found = client.get_paths_info(
                        repo_id, places[start : start + 500], revision=self.revision
                    )
                    known.update((one.path, _hash_of(one)) for one in found if hasattr(one, "blob_id"))
        return {place: path for place, path in files.items() if known.get(place) not in _hashes(path)}

    @contextlib.contextmanager
    def _plain_errors(self, token: str | None = None) -> Iterator[Any]:
        """The client, without progress bars; what it raises becomes a `PushError` that names no token."""
        try:
            import huggingface_hub
            from huggingface_hub import utils
        except ImportError as error:
            raise ImportError("The Hub needs huggingface_hub: pip install huggingface_hub.") from error
        token = token or self._token
        had_bars = not utils.are_progress_bars_disabled()
        utils.disable_progress_bars()
        try:
            yield huggingface_hub.HfApi(token=token, library_name="footplate")
        except Exception as error:
            secrets = (token, huggingface_hub.get_token())
            raised = _translate(error, secrets)
        else:
            return
        finally:
            if had_bars:
                utils.enable_progress_bars()
        raise raised  # here, where the request and its headers are not part of the error any more


def _translate(error: Exception, secrets: tuple[str | None, ...]) -> PushError:
    """An error of the client as one of ours, in one line."""
    reason = error.__cause__ if type(error) is RuntimeError and error.__cause__ is not None else error
    lines = [line.strip() for line in str(reason).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("For more information")]
    text = " ".join(dict.fromkeys(lines[:3])) or type(reason).__name__
    if reason is not error:
        text = f"{error} {text}"
    for secret in secrets:
        if secret:
            text = text.replace(secret, HIDDEN)
    status = getattr(getattr(reason, "response", None), "status_code", None)
    is_final = status in _FINAL_ANSWERS or isinstance(reason, ValueError)
    kind = type(reason).__name__
    if kind in ("LocalTokenNotFoundError", "OfflineModeIsEnabled"):
        is_final = True
    if status == 401 or kind == "LocalTokenNotFoundError":
        text += " Set hub_token or HF_TOKEN, or run `hf auth login`."
    return (RefusedError if is_final else PushError)(text)


def _hash_of(entry: Any) -> str:
    return str(entry.lfs.sha256 if entry.lfs is not None else entry.blob_id)


def _hashes(path: Path) -> tuple[str, str]:
    """The two names that git has for the contents of a file: as a blob, and in its storage of large files."""
    blob, large = hashlib.sha1(f"blob {os.path.getsize(path)}\0".encode()), hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            blob.update(chunk)
            large.update(chunk)
    return blob.hexdigest(), large.hexdigest()
