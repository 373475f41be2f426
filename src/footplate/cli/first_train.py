"""Ask a question where a script first calls `Trainer.train()`, and end it there."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn


def add_options(parser: argparse.ArgumentParser, answer: str) -> None:
    """Add what every such command takes: the script with its arguments, and the form of the answer.

    Args:
        parser: The parser of the command.
        answer: What is printed.
    """
    parser.add_argument("--json", action="store_true", help=f"Print {answer} as JSON.")
    parser.add_argument(
        "--drive",
        action="store_true",
        help="The script is written for the Trainer of transformers, as is taken of one that does not import "
        "footplate.",
    )
    parser.add_argument("script", help="A Python script that calls Trainer.train().")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="Arguments of the script.")


def check_is_script(script: str) -> None:
    """There is such a file."""
    if not Path(script).is_file():
        raise ValueError(f"{script!r} is not a file. Give the script that trains.")


class _Answered(BaseException):
    """Ends the script where it would train; not an Exception, which a script may catch."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer


def ask_at_first_train(
    options: argparse.Namespace,
    ask: Callable[..., Any],
    purpose: str,
    around: AbstractContextManager[Any] | None = None,
) -> Any:
    """What `ask` returns at the script's first `train()`; None if the script failed before.

    Args:
        options: The script and its arguments; whether it is to be driven, and what is printed is JSON.
        ask: Called with the Trainer and the arguments of `train()`.
        purpose: What was wanted, for the error if the script never trains.
        around: What the script runs in.
    """
    import footplate
    from footplate.cli.drive import drive, imports_footplate, replacing
    from footplate.trainer import Trainer
    from footplate.voice import install_voice

    def answer_instead(self: Trainer, *args: Any, **kwargs: Any) -> NoReturn:
        raise _Answered(ask(self, *args, **kwargs))

    install_voice()
    # the Trainer of transformers would train the whole run
    if options.drive or (not imports_footplate(options.script) and find_spec("transformers") is not None):
        footplate.take_over()
    try:
        with ExitStack() as stack:
            stack.enter_context(replacing(Trainer, train=answer_instead))
            if options.json:  # what the script prints must not be mixed with the answer
                stack.enter_context(redirect_stdout(sys.stderr))
            if around is not None:
                stack.enter_context(around)
            code = drive(options.script, options.arguments, is_module=False)
    except _Answered as found:
        return found.answer
    if code == 0:
        raise ValueError(
            f"{options.script} ended without calling Trainer.train(): there is nothing to {purpose}."
        )
    return None
