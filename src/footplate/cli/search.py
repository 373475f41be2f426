"""`footplate search`: find settings for a task or a script, and keep the best model."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from footplate.outputs import BestRun
    from footplate.search.summary import SearchSummary

USAGE = """footplate search TASK [SETTINGS.yaml] --space SPACE.yaml [--trials 20] [--flag value ...]
       footplate search SCRIPT.py --space SPACE.yaml [--trials 20] [--] [arguments of the script]"""
# of every trial, unless they are given: an evaluation per epoch, and a checkpoint of the best one
DEFAULTS = {"eval_strategy": "epoch", "save_strategy": "best", "save_total_limit": "1"}


def add_command(commands: Any) -> None:
    """Add `search` to the commands."""
    parser = commands.add_parser(
        "search", help="Find settings for a task or a script.", add_help=False, prefix_chars="\0"
    )
    parser.add_argument("words", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Search for the task or script that is named first; words that are not for the search are its own."""
    parser = build_parser()
    words: list[str] = options.words
    end = words.index("--") if "--" in words else len(words)
    words, own = words[:end], words[end + 1 :]
    if not words or {"-h", "--help"} & set(words):
        print(parser.format_help())
        return 0
    wanted, words = parser.parse_known_args(words)
    words += own
    if words and words[0].endswith(".py"):
        from footplate.cli.search_script import search_script

        return search_script(wanted, words[0], words[1:])
    search_task(wanted, words)
    return 0


def build_parser() -> argparse.ArgumentParser:
    """The parser of what is for the search itself."""
    parser = argparse.ArgumentParser(
        prog="footplate search",
        usage=USAGE,
        description="Train with different settings, and keep the best model. Of a task it is in --output_dir "
        "afterwards. A script runs as ever, but its first train() searches, and it goes on with the best "
        "model. Called again after a kill, both go on where they stood.",
        epilog="Other flags are those of the task (footplate run TASK --help) or of the script; what stands "
        "after -- is the script's in any case.",
        allow_abbrev=False,
        add_help=False,  # a script may have options that begin with -h
    )
    parser.add_argument("--space", help="A YAML or JSON file: names with lists of values or ranges.")
    parser.add_argument("--trials", type=int, default=20, help="How many trials in all (20).")
    parser.add_argument(
        "--backend", help="optuna, ray, wandb, random or grid; optuna where it is installed, else random."
    )
    parser.add_argument("--jobs", type=int, default=1, help="How many trials run at the same time (1).")
    parser.add_argument("--timeout", type=float, help="Seconds after which no further trial begins.")
    parser.add_argument(
        "--anew", action="store_true", help="Do not go on with an earlier search in the same output_dir."
    )
    return parser


def search_task(wanted: argparse.Namespace, words: list[str]) -> None:
    """Search, print the trials, and save the best model with what `footplate predict` needs.

    Args:
        wanted: What is for the search.
        words: The task and its flags.
    """
    from footplate import set_seed
    from footplate.search.summary import load_summary
    from footplate.tasks.common.catalog import find_recipe
    from footplate.tasks.common.memory import save_learned
    from footplate.tasks.common.models import load_model
    from footplate.tasks.common.parsing import parse_flags, read_settings, read_task_name, save_settings
    from footplate.tasks.common.running import build_job
    from footplate.trainer.starting import own_folder

    name, words = read_task_name(words)
    has_file = bool(words) and words[0].endswith((".yaml", ".yml", ".json"))
    given = read_settings(Path(words[0])) if has_file else {}
    recipe = parse_flags(find_recipe(name), add_defaults(words, given, int(has_file)))
    if recipe.has_own("run"):
        raise ValueError(
            f"The task {name} has a run of its own, which cannot be searched. Search in a script."
        )
    space = read_space(wanted.space)
    check_names(space, recipe.args, "`footplate run TASK --help-all` lists them.")
    set_seed(recipe.args.seed)
    trainer = build_job(recipe).trainer
    trainer.model_init = lambda: load_model(recipe)
    best: Any = trainer.hyperparameter_search(space, **read_options(wanted))
    folder = Path(recipe.args.output_dir)
    with ExitStack() as stack:
        own_folder(trainer, stack, str(folder))  # the search has let it go
        trainer.save_model()
        if trainer.is_world_process_zero():
            save_settings(recipe, name, folder)
            save_learned(recipe, folder)
    if trainer.is_world_process_zero():
        summary = load_summary(str(folder))
        print(describe_best(best, summary))
        print(f"Its model is in {folder}, its run in {folder / str(summary.best[0].folder)}.")


def read_options(wanted: argparse.Namespace) -> dict[str, Any]:
    """What `hyperparameter_search` is given."""
    return {
        "n_trials": wanted.trials,
        "backend": wanted.backend,
        "timeout": wanted.timeout,
        "n_jobs": wanted.jobs,
        "resume": not wanted.anew,
        "load_best": True,
    }


def describe_best(best: BestRun, summary: SearchSummary) -> str:
    """The trials, each in a line, and the best of them."""
    values = ", ".join(f"{key}={value}" for key, value in best.hyperparameters.items())
    return f"{summary}\nThe best is trial {best.run_id}: {best.objective:.6g} with {values}."


def read_space(path: str | None) -> dict[str, Any] | None:
    """The space of a file; None without one, for the default space."""
    from footplate.tasks.common.parsing import read_settings

    return read_settings(Path(path)) if path is not None else None


def add_defaults(words: Sequence[str], given: Mapping[str, Any], num_files: int) -> list[str]:
    """The flags of a task with those that a search needs; a flag that is given, or is in the file, stays.

    Args:
        words: What was given: a file of settings first, if there is one.
        given: What is in the file.
        num_files: How many words the file is.
    """
    flags = [f"--{key}={value}" for key, value in DEFAULTS.items() if key not in given]
    return [*words[:num_files], *flags, *words[num_files:], "--do_train", "--do_eval"]


def check_names(space: Mapping[str, Any] | None, args: Any, advice: str) -> None:
    """Refuse a name that is no setting of training, or one that a trial cannot change.

    Args:
        space: The values to try by name.
        args: The settings of training.
        advice: What to do about a name that is none.
    """
    from footplate.search.values import set_values, suggest_names

    # on a copy: it refuses what would fail in each trial
    unknown = set_values(copy.copy(args), dict.fromkeys(map(str, space or {})))
    if unknown:
        raise ValueError(
            f"The space names {', '.join(unknown)}, which is no setting of training."
            f"{suggest_names(args, unknown)} {advice}"
        )
