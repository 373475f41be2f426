"""`footplate predict RUN --input FILE`: what a finished run says about new data."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path
from typing import Any


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    text = "Answer for new data with the model of a finished run."
    parser = commands.add_parser("predict", help=text, description=text)
    parser.add_argument("folder", metavar="RUN", help="The output_dir of a run, or one of its checkpoints.")
    parser.add_argument(
        "--input",
        required=True,
        metavar="FILE",
        help="Rows in a form that the task reads; - reads lines as they are typed, as text or JSON.",
    )
    parser.add_argument(
        "--output", metavar="FILE", help="Write one JSON object per row; default: print them."
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="flags",
        metavar="FLAG=VALUE",
        help="A flag of the task that differs from that of the run, such as max_new_tokens=20; repeatable.",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print or write the answers."""
    from footplate.tasks.common.answering import answer_lines, load_answerer

    logging.getLogger("footplate").setLevel(logging.ERROR)
    output_dir = str(Path(options.output).resolve().parent) if options.output else None
    answerer = load_answerer(options.folder, output_dir, options.flags)
    if options.input == "-":
        for answer in answer_lines(answerer, sys.stdin):
            print(json.dumps(answer, ensure_ascii=False), flush=True)
        return 0
    answers = answerer.answer(answerer.read(options.input))
    lines = "".join(json.dumps(answer, ensure_ascii=False) + "\n" for answer in answers)
    if options.output:
        Path(options.output).write_text(lines, encoding="utf-8")
        print(f"{len(answers)} answers in {options.output}")
    else:
        sys.stdout.write(lines)
    return 0
