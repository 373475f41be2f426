"""What a replay runs to get its Trainer: a script, a function, or a task that the folder names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from footplate.cli.drive import drive, imports_footplate
from footplate.replaying.folder import TASK_FILE
from footplate.replaying.result import Replay
from footplate.replaying.session import Done, Refused, Session
from footplate.voice import install_voice


def run_source(session: Session, script: Any, arguments: Sequence[str], is_module: bool) -> Replay:
    """Run what trains, up to its first `train()`, which is the replay; raise if it does not come to one."""
    install_voice()
    try:
        if callable(script):
            script().train()
        elif script is not None:
            run_script(os.fspath(script), list(arguments), is_module)
        else:
            run_task_again(session)
    except Done as done:
        return done.found
    except Refused as refused:
        raise refused.error from refused.error.__cause__
    except SystemExit as end:
        if end.code:
            raise
    raise ValueError(
        f"{script or session.record.folder} ended without calling Trainer.train(): there is nothing to "
        "replay. Give the script and the arguments that trained."
    )


def run_script(script: str, arguments: list[str], is_module: bool) -> None:
    """Run a script; one that is written for the Trainer of transformers gets footplate's."""
    if not is_module and not Path(script).is_file():
        raise ValueError(f"{script!r} is not a file. Give the script that trained, or -m and a module.")
    if not is_own(script, is_module) and find_spec("transformers") is not None:
        import footplate

        footplate.take_over()
    code = drive(script, arguments, is_module)
    if code:
        raise SystemExit(code)  # the script failed, and its error was shown


def is_own(script: str, is_module: bool) -> bool:
    """Whether the script or module names footplate itself; so does what cannot be looked at."""
    spec = find_spec(script) if is_module else None
    file = script if not is_module else spec.origin if spec is not None else None
    return file is None or imports_footplate(file)


def run_task_again(session: Session) -> None:
    """Run the task of the folder as `footplate run run.yaml` does."""
    record = session.record
    if not record.is_task:
        raise ValueError(
            f"{record.folder} does not say which script trained: give it, with its arguments, as in "
            f"footplate replay {record.folder} --step {session.wanted.step} train.py --learning_rate 1e-4"
        )
    from footplate.tasks.common.catalog import find_recipe
    from footplate.tasks.common.parsing import parse_flags, read_settings
    from footplate.tasks.common.running import run_task

    settings = record.folder / TASK_FILE
    name = str(read_settings(settings)["task"])
    words = [str(settings), "--output_dir", session.folder, "--do_train", "True"]
    words += ["--resume_from_checkpoint", str(session.checkpoint)] if session.checkpoint is not None else []
    run_task(parse_flags(find_recipe(name), words), name)
