"""`footplate search`: find settings for a task, and keep the best model."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

USAGE = "footplate search TASK [SETTINGS.yaml] --space SPACE.yaml [--trials 20] [--flag value ...]"
# of every trial, unless they are given: an evaluation per epoch, and a checkpoint of the best one
DEFAULTS = {"eval_strategy": "epoch", "save_strategy": "best", "save_total_limit": "1"}


def add_command(commands: Any) -> None:
    """Add `search` to the commands."""
    parser = commands.add_parser(
        "search", help="Find settings for a task.", add_help=False, prefix_chars="\0"
    )
    parser.add_argument("words", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Search for the task that is named first; words that are not for the search are its flags."""
    parser = build_parser()
    words: list[str] = options.words
    if not words or {"-h", "--help"} & set(words):
        print(parser.format_help())
        return 0
    if words[0].endswith(".py"):
        raise ValueError(
            f"{words[0]} is a script, and a search needs its Trainer. Call its hyperparameter_search(...) "
            "there and run it, or name a task: `footplate tasks` lists them."
        )
    wanted, words = parser.parse_known_args(words)
    search_task(wanted, words)
    return 0


def build_parser() -> argparse.ArgumentParser:
    """The parser of what is for the search itself."""
    parser = argparse.ArgumentParser(
        prog="footplate search",
        usage=USAGE,
        description="Train a task with different settings; the best model is in --output_dir afterwards. "
        "Called again after a kill, it goes on where it stood.",
        epilog="Other flags are those of the task: footplate run TASK --help",
        allow_abbrev=False,
    )
    parser.add_argument("--space", help="A YAML or JSON file: names with lists of values or ranges.")
    parser.add_argument("--trials", type=int, default=20, help="How many trials in all (20).")
    parser.add_argument("--backend", help="optuna, random or grid; optuna where it is installed.")
    parser.add_argument("--timeout", type=float, help="Seconds after which no further trial begins.")
    parser.add_argument("--anew", action="store_true", help="Do not go on with a search in --output_dir.")
    return parser


def search_task(wanted: argparse.Namespace, words: list[str]) -> None:
    """Search, print the trials, and save the best model with what `footplate predict` needs.

    Args:
        wanted: What is for the search.
        words: The task and its flags.
    """
    from footplate import set_seed
    from footplate.tasks.common.catalog import find_recipe
    from footplate.tasks.common.memory import save_learned
    from footplate.tasks.common.models import load_model
    from footplate.tasks.common.parsing import parse_flags, read_settings, read_task_name, save_settings
    from footplate.tasks.common.running import build_job

    name, words = read_task_name(words)
    has_file = bool(words) and words[0].endswith((".yaml", ".yml", ".json"))
    given = read_settings(Path(words[0])) if has_file else {}
    recipe = parse_flags(find_recipe(name), add_defaults(words, given, int(has_file)))
    if recipe.has_own("run"):
        raise ValueError(
            f"The task {name} has a run of its own, which cannot be searched. Search in a script."
        )
    space = read_settings(Path(wanted.space)) if wanted.space is not None else None
    check_names(space, recipe.args)
    set_seed(recipe.args.seed)
    trainer = build_job(recipe).trainer
    trainer.model_init = lambda: load_model(recipe)
    best: Any = trainer.hyperparameter_search(
        space,
        n_trials=wanted.trials,
        backend=wanted.backend,
        timeout=wanted.timeout,
        resume=not wanted.anew,
        load_best=True,
    )
    trainer.save_model()
    if trainer.is_world_process_zero():
        folder = Path(recipe.args.output_dir)
        save_settings(recipe, name, folder)
        save_learned(recipe, folder)
        values = ", ".join(f"{key}={value}" for key, value in best.hyperparameters.items())
        print(f"{best.run_summary}\nThe best is trial {best.run_id}: {best.objective:.6g} with {values}.")
        print(f"Its model is in {folder}, its run in {folder / best.run_summary.best[0].folder}.")


def add_defaults(words: Sequence[str], given: Mapping[str, Any], num_files: int) -> list[str]:
    """The flags of a task with those that a search needs; a flag that is given, or is in the file, stays.

    Args:
        words: What was given: a file of settings first, if there is one.
        given: What is in the file.
        num_files: How many words the file is.
    """
    flags = [f"--{key}={value}" for key, value in DEFAULTS.items() if key not in given]
    return [*words[:num_files], *flags, *words[num_files:], "--do_train", "--do_eval"]


def check_names(space: Mapping[str, Any] | None, args: Any) -> None:
    """Refuse a name that is no setting of training: nothing else could use it here."""
    unknown = [name for name in space or {} if not hasattr(args, str(name).split(".")[0])]
    if unknown:
        from footplate.search.values import suggest_names

        raise ValueError(
            f"The space names {', '.join(unknown)}, which is no setting of training."
            f"{suggest_names(args, unknown)} `footplate run TASK --help-all` lists them."
        )
