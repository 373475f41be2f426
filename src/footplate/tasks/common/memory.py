"""What a run must remember so that its model can answer later: the task, its flags, what it learned."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from footplate.report.files import save_text
from footplate.tasks.common.catalog import find_recipe
from footplate.tasks.common.parsing import RUN_FILE, parse_flags, read_settings
from footplate.tasks.common.preparing import is_plain
from footplate.tasks.common.problems import TaskError
from footplate.tasks.common.recipe import Recipe

LEARNED_FILE = "task.json"


def save_learned(recipe: Recipe, folder: Path) -> None:
    """Write what the recipe has learned from the data: columns, classes."""
    learned = {name: value for name, value in vars(recipe).items() if is_plain(value)}
    folder.mkdir(parents=True, exist_ok=True)
    save_text(json.dumps(learned, indent=2, ensure_ascii=False), folder / LEARNED_FILE)


def load_recipe(folder: Path, output_dir: str, flags: Sequence[str] = ()) -> tuple[str, Recipe]:
    """The name and the recipe of a finished run, which starts from its model.

    Args:
        folder: The `output_dir` of the run, or one of its checkpoints.
        output_dir: Where to write what comes up.
        flags: Flags that differ from those of the run, as `name=value`.
    """
    home = folder if (folder / RUN_FILE).is_file() else folder.parent
    if not (home / RUN_FILE).is_file() or not (home / LEARNED_FILE).is_file():
        raise TaskError(f"{folder} is not the folder of a run of `footplate run`: it has no {RUN_FILE}.")
    adapter = folder / "adapter_config.json"
    if not (folder / "config.json").is_file() and not adapter.is_file():
        raise TaskError(f"{folder} holds no model. Has the run ended? Name one of its checkpoints.")
    name = str(read_settings(home / RUN_FILE)["task"])
    words = [str(home / RUN_FILE), "--output_dir", output_dir, "--report_to", "none", "--report", "false"]
    settings = {"do_train": False, "do_eval": False, "do_predict": False, "eval_strategy": "no"}
    words += ["--model_name_or_path", str(folder), *(f"--{key}={value}" for key, value in settings.items())]
    words += ["--load_best_model_at_end=False", "--disable_tqdm=True", "--save_strategy=no"]
    recipe = parse_flags(find_recipe(name), [*words, *(f"--{flag}" for flag in flags)])
    forget_origins(recipe, str(folder))
    if adapter.is_file():  # the rest of the model is where training took it
        recipe.start.config_name = json.loads(adapter.read_text(encoding="utf-8"))["base_model_name_or_path"]
    recipe.recall(json.loads((home / LEARNED_FILE).read_text(encoding="utf-8")))
    return name, recipe


def forget_origins(recipe: Recipe, folder: str) -> None:
    """Take everything from the folder, not from where training took it."""
    start: Any = recipe.start
    start.model_type = start.config_overrides = start.config_name = start.tokenizer_name = None
    start.train_tokenizer = False
    for name in ("image_processor_name", "feature_extractor_name", "tokenizer_name_or_path"):
        if hasattr(start, name):
            setattr(start, name, None)
