"""`footplate.replay(run, step, script=...)`: one update of a run, made again and looked into."""

from __future__ import annotations

import json
import os
import pdb
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from footplate.instruments.compare import find_differences
from footplate.instruments.measures import UpdateMeasure
from footplate.replaying.folder import read_run
from footplate.replaying.result import Replay
from footplate.replaying.session import Session, Wanted
from footplate.replaying.sources import run_source
from footplate.trainer import Trainer

Script = str | os.PathLike[str] | Callable[[], Trainer]


def replay(
    run: str | os.PathLike[str],
    step: int,
    script: Script | None = None,
    arguments: Sequence[str] = (),
    *,
    is_module: bool = False,
    compare: str | os.PathLike[str] | None = None,
    save: str | os.PathLike[str] | None = None,
    from_start: bool = False,
    own_settings: bool = False,
    all_rows: bool = False,
    stops: bool = False,
) -> Replay:
    """Make one update of a run again, bit for bit, and look into it; the run's folder stays as it is.

    Args:
        run: The run's `output_dir`.
        step: The update, counted from 1.
        script: The script that trained, or a function that returns its Trainer; not needed for a run of
            `footplate run`.
        arguments: The arguments of the script.
        is_module: The script is the name of a module, as in `python -m`.
        compare: Another run, or a file that `save` wrote: where the same update begins to differ.
        save: A file to write what was measured to.
        from_start: Begin at the start of the run, even if a checkpoint should be there.
        own_settings: Take the settings that the run had, not those of the script.
        all_rows: Measure the loss of each row, however many there are.
        stops: Stop in the debugger inside the update, before the weights change.
    """
    record = read_run(run)
    record.check_step(step)
    wanted = Wanted(
        step=step,
        from_start=from_start,
        own_settings=own_settings,
        all_rows=all_rows,
        keeps_marks=compare is not None or save is not None,
        pause=stop_in_debugger if stops else None,
    )
    other = None
    if compare is not None:
        other = measure_other(Path(compare), step, script, arguments, is_module)
    with tempfile.TemporaryDirectory(prefix="footplate-replay-") as folder:
        session = Session(record, wanted, folder)
        with kept_process(), session.in_place():
            found = run_source(session, script, arguments, is_module)
    if other is not None:
        found = replace(found, other=str(compare), differences=find_differences(found.update, other))
    if save is not None:
        Path(save).write_text(json.dumps(found.update.to_dict()), encoding="utf-8")
    return found


def measure_other(
    other: Path, step: int, script: Script | None, arguments: Sequence[str], is_module: bool
) -> UpdateMeasure:
    """The same update of another run, with that run's own settings; or what was measured of it before."""
    if other.is_file():
        return load_measures(other)
    if callable(script):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "update.json")
            replay(other, step, script, save=path, own_settings=True)
            return load_measures(path)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError(
            f"--compare {other}: several processes replay one run at a time. Replay that one first with "
            "--save FILE, then compare with FILE."
        )
    read_run(other).check_step(step)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "update.json")
        words = [sys.executable, "-m", "footplate", "replay", str(other), "--step", str(step)]
        words += ["--own-settings", "--save", str(path), *(["-m"] if is_module else [])]
        words += [] if script is None else [os.fspath(script), *arguments]
        # another process: what the first run of the script left in this one must not change the second
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if not path.is_file():
            raise ValueError(f"The update of {other} could not be made again:\n{done.stderr or done.stdout}")
        return load_measures(path)


def load_measures(path: Path) -> UpdateMeasure:
    """What `save` wrote."""
    try:
        return UpdateMeasure.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ValueError(
            f"{path} does not hold what a replay measured. Give a run, or a file of --save."
        ) from None


@contextmanager
def kept_process() -> Iterator[None]:
    """Give `sys.argv` and the first place of `sys.path` back, which a script gets for itself."""
    words, place = sys.argv, sys.path[0]
    with ExitStack() as stack:
        stack.callback(sys.path.__setitem__, 0, place)
        stack.callback(setattr, sys, "argv", words)
        yield


def stop_in_debugger(replayer: Any) -> None:
    """Let the user look around inside the update."""
    trainer, model = replayer.trainer, replayer.trainer.model
    batches, outputs, measure = replayer.batches, replayer.outputs, replayer.measure
    print(
        f"Update {replayer.step}: gradients are computed, and the weights have not changed yet. There are "
        f"trainer, model, batches ({len(batches)}), outputs, measure (loss {measure.loss}). c goes on.",
        flush=True,
    )
    del replayer
    _ = trainer, model, outputs  # for the debugger
    pdb.Pdb().set_trace()
