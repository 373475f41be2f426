"""How the Trainer runs several trials at the same time, in processes that get a copy of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from footplate.search.desk import Desk
from footplate.search.objective import Objective
from footplate.search.outcomes import Outcome
from footplate.search.processes import Line, Worker, dump, environment, run_side_by_side
from footplate.search.session import Session
from footplate.search.trial import fixed_trial
from footplate.trainer.training import Training
from footplate.trainer.trial_runs import Caught, Start, release, run_one


def run_in_processes(
    trainer: Training,
    objective: Objective,
    desk: Desk,
    count: int,
    caught: Caught,
    ended: Callable[[Outcome], None],
) -> None:
    """Run trials in several processes until no further one begins.

    Args:
        trainer: The Trainer, of which each process gets a copy.
        objective: What trials are compared by.
        desk: Where trials come from.
        count: How many run at the same time.
        caught: Errors that end a trial only.
        ended: Called with each outcome.
    """
    release(trainer)
    args = trainer.args
    home, given = args.output_dir, trainer.hp_space
    args.output_dir, trainer.hp_space = os.path.abspath(str(home)), None  # only the search asks the space
    try:
        payload = dump(partial(serve, trainer, objective, caught, os.getcwd()))
    finally:
        args.output_dir, trainer.hp_space = home, given

    def start(place: int) -> Worker:
        log = Path(desk.record.folder, f"process-{place}.log")
        return Worker(payload, log, environment(place, count))

    run_side_by_side(desk, start, count, ended)


def serve(trainer: Any, objective: Objective, caught: Caught, folder: str, connection: Connection) -> None:
    """In another process: run the trials that come over the connection.

    Args:
        trainer: The copy of the Trainer.
        objective: What trials are compared by.
        caught: Errors that end a trial only; another one ends the process.
        folder: Where paths of the script begin.
        connection: The way to the search.
    """
    os.chdir(folder)
    line = Line(connection)
    start, session = Start(trainer), Session(objective, line)
    trainer._current_search = session
    connection.send(("ready",))
    while True:
        try:
            begun = connection.recv()
        except EOFError:
            return  # the search is over
        trial = fixed_trial(begun.number, begun.params, partial(line.choose, begun.number))
        session.tell(run_one(start, session, begun, trial, caught))
