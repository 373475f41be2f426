"""Before the first step, all ranks compare what must be the same everywhere."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from footplate.comm import broadcast_object, gather_objects, rank, world_size
from footplate.distributed.naming import join_names, name_ranks

logger = logging.getLogger(__name__)

MAX_VALUE = 200  # characters of a value that are shown and sent; a longer one is compared by its hash
MAX_DIFFERENCES = 20
MISSING = "(missing)"
LOOK_SECONDS = (0.0, 0.2, 0.5, 1.0, 2.0)  # network file systems show a new file late

# arguments that may differ: where a rank runs and writes, how it reads and what it shows
LOCAL_ARGUMENTS = frozenset(
    {
        *("local_rank", "output_dir", "logging_dir", "resume_from_checkpoint"),
        *("report_to", "run_name", "project", "trackio_space_id", "trackio_bucket_id"),
        *("trackio_static_space_id", "report", "show_samples", "disable_tqdm"),
        *("log_level", "log_level_replica", "hub_token", "debug", "skip_memory_metrics"),
        *("dataloader_num_workers", "dataloader_pin_memory", "dataloader_persistent_workers"),
        *("dataloader_prefetch_factor", "dataloader_multiprocessing_context"),
        "dataloader_prefetch_to_device",
        *("hang_timeout", "order_memory_limit", "eval_memory_limit"),
    }
)


def comparable_arguments(args_dict: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that must be the same on all ranks.

    Args:
        args_dict: All arguments by name, such as `args.to_dict()`.
    """
    return {name: value for name, value in args_dict.items() if name not in LOCAL_ARGUMENTS}


def check_agreement(facts: Mapping[str, Any]) -> None:
    """Raise the same ValueError on all ranks if their facts differ; every rank must call this.

    If they agree, this is one small collective.

    Args:
        facts: Plain values by name; a mapping is compared entry by entry.
    """
    if world_size() == 1:
        return
    own = flatten(facts)
    digest = hashlib.sha256(repr(sorted(own.items())).encode("utf-8", "backslashreplace")).hexdigest()
    if len(set(gather_objects(digest))) == 1:
        return
    # each rank compares itself with the first one, so that little is sent, however many ranks there are
    first = broadcast_object(own)
    found = gather_objects(find_differences(first, own))
    raise ValueError(describe_differences(first, found))


def flatten(facts: Mapping[str, Any], path: str = "") -> dict[str, str]:
    """All values by the names that lead to them, each as a short text that is the same for equal values."""
    flat = {}
    for name, value in facts.items():
        key = f"{path}: {name}" if path else str(name)
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, key))
        else:
            flat[key] = shorten(canonical(value))
    return flat


def canonical(value: Any) -> str:
    """A text that is equal for equal values in different processes."""
    if isinstance(value, Enum):
        return canonical(value.value)
    if isinstance(value, Mapping):
        items = sorted((canonical(key), canonical(item)) for key, item in value.items())
        return "{" + ", ".join(f"{key}: {item}" for key, item in items) + "}"
    if isinstance(value, (set, frozenset)):
        return "{" + ", ".join(sorted(canonical(item) for item in value)) + "}"
    if isinstance(value, (list, tuple)):  # the same where one came from a file, in which tuples are lists
        return "[" + ", ".join(canonical(item) for item in value) + "]"
    if isinstance(value, os.PathLike):
        return repr(os.fspath(value))
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))  # the address of an object says nothing


def shorten(text: str) -> str:
    """The text, or its beginning with a hash of the whole."""
    if len(text) <= MAX_VALUE:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:12]
    return f"{text[: MAX_VALUE - 50]}… ({len(text)} characters, hash {digest})"


def find_differences(first: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """What this rank has in place of the first rank's values, the first few by name."""
    names = sorted({*first, *own})
    different = [name for name in names if first.get(name, MISSING) != own.get(name, MISSING)]
    return {name: own.get(name, MISSING) for name in different[:MAX_DIFFERENCES]}


def describe_differences(first: Mapping[str, str], found: Sequence[Mapping[str, str]]) -> str:
    """The message that lists each difference with the ranks that have each value.

    Args:
        first: The values of the first rank.
        found: For each rank, its values that differ from the first rank's.
    """
    names = sorted({name for differences in found for name in differences})
    lines = []
    for name in names[:MAX_DIFFERENCES]:
        holders: dict[str, list[int]] = {}
        for number, differences in enumerate(found):
            holders.setdefault(differences.get(name, first.get(name, MISSING)), []).append(number)
        values = [f"{value} on {name_ranks(ranks)}" for value, ranks in holders.items()]
        lines.append(f"  {name}: {join_names(values)}")
    if any(len(differences) == MAX_DIFFERENCES for differences in found) or len(names) > MAX_DIFFERENCES:
        lines.append(f"  There may be more; the first {len(lines)} are shown.")
    return (
        "The ranks do not agree on what to train:\n" + "\n".join(lines) + "\n"
        "Start every rank with the same arguments, data, model and code."
    )


# ---- a folder that all hosts must see ----


def find_shared_folder_problem(folder: str | os.PathLike[str]) -> str | None:
    """Why a folder is not one and the same for all ranks, in words; None if it is; every rank must call this.

    The first rank writes a small file there and the others look for it. If one launcher started all ranks on
    one machine, nothing is done.

    Args:
        folder: The folder; made if it does not exist.
    """
    if world_size() == 1 or os.environ.get("LOCAL_WORLD_SIZE") == str(world_size()):
        return None
    name, error = broadcast_object(_leave_file(Path(folder)) if rank() == 0 else None)
    try:
        is_seen = error is not None or _is_seen(Path(folder) / name)
        answers = gather_objects((socket.gethostname(), is_seen))
    finally:
        if rank() == 0:
            with contextlib.suppress(OSError):
                (Path(folder) / name).unlink()
    if error is not None:
        return f"Rank 0 on {answers[0][0]} cannot write into {os.fspath(folder)}: {error}"
    return describe_blind(os.fspath(folder), answers)


def check_shared_folder(folder: str | os.PathLike[str], reason: str | None) -> None:
    """Warn of a folder that the hosts do not share; every rank must call this.

    Args:
        folder: The folder that checkpoints are written into.
        reason: Why all hosts must see it, which makes it an error; None if they can do without.
    """
    problem = find_shared_folder_problem(folder)
    if problem is None:
        return
    remedy = "Or set save_on_each_node=True: then each host has whole checkpoints of its own."
    if reason is not None:
        raise ValueError(f"{problem} {remedy} It is needed here, because {reason}.")
    if rank() == 0:
        logger.warning(
            "%s %s As it is, only the host of rank 0 has the checkpoints, and no run on these hosts can "
            "resume from them.",
            *(problem, remedy),
        )


def describe_blind(folder: str, answers: Sequence[tuple[str, bool]]) -> str | None:
    """A text that names the hosts that do not see a file of the first rank; None if all do.

    Args:
        folder: Where the file is.
        answers: For each rank, its host and whether it saw the file.
    """
    blind = [number for number, (_, is_seen) in enumerate(answers) if not is_seen]
    if not blind:
        return None
    hosts = sorted({answers[number][0] for number in blind})
    return (
        f"{folder} is not shared between the hosts: what rank 0 writes on {answers[0][0]} is not seen on "
        f"{join_names(hosts)} ({name_ranks(blind)}). Set output_dir to a folder on a file system that all "
        "hosts share."
    )


def _leave_file(folder: Path) -> tuple[str, str | None]:
    """The name of a new file in the folder, and why it could not be written."""
    name = f".footplate-shared-{uuid.uuid4().hex}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    except OSError as error:
        return name, str(error)
    return name, None


def _is_seen(path: Path) -> bool:
    """Whether a file is there, looked for again and again for a few seconds."""
    for seconds in LOOK_SECONDS:
        time.sleep(seconds)
        try:
            if path.name in os.listdir(path.parent):  # listing makes a network file system ask its server
                return True
        except OSError:
            continue
    return False
