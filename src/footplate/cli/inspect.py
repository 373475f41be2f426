"""`footplate inspect TASK --train_file FILE`: what rows become, before any training."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from typing import Any


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    text = "Show what the rows of a task become."
    parser = commands.add_parser("inspect", help=text, add_help=False, prefix_chars="\0")
    parser.add_argument("words", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print rows, features and figures."""
    from footplate.arguments.parser import take_option
    from footplate.tasks.common.catalog import find_recipe
    from footplate.tasks.common.inspecting import Painter, inspect_task
    from footplate.tasks.common.parsing import parse_flags, read_task_name

    words: list[str] = options.words
    if not words or {"-h", "--help"} & set(words):
        print("footplate inspect TASK --train_file FILE [--rows N] [flags of footplate run TASK]")
        return 0
    logging.getLogger("footplate").setLevel(logging.WARNING)
    name, words = read_task_name(words)
    counts, words = take_option(words, "--rows")
    num_rows = int(counts[-1]) if counts else 2
    with tempfile.TemporaryDirectory(prefix="footplate-") as folder:
        if not any(word.startswith("--output_dir") for word in words):
            words = [*words, "--output_dir", folder]
        recipe = parse_flags(find_recipe(name), words)
        files = recipe.files()
        recipe.args.do_train = "train" in files or recipe.data.dataset_name is not None
        recipe.args.do_eval, recipe.args.do_predict = "validation" in files, "test" in files
        for line in inspect_task(recipe, num_rows, Painter(sys.stdout.isatty())):
            print(line)
    return 0
