"""What a finished run says about new rows."""

from __future__ import annotations

import atexit
import json
import logging
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from footplate.tasks.common.memory import load_recipe
from footplate.tasks.common.models import load_config, load_model, load_processor
from footplate.tasks.common.preparing import drop_bad_rows
from footplate.tasks.common.problems import TaskError
from footplate.tasks.common.reading import import_datasets
from footplate.tasks.common.recipe import Recipe, Row
from footplate.tasks.common.running import build_trainer, prepare

logger = logging.getLogger(__name__)


class Answerer(NamedTuple):
    """A recipe and its trained model."""

    recipe: Recipe
    model: Any

    def answer(self, rows: Any) -> list[Row]:
        """What the model says about each row, in the task's own terms."""
        if self.recipe.has_own("reply"):
            return self.recipe.reply(self.model.to(self.recipe.args.device).eval(), rows)
        features = {"test": prepare(self.recipe, rows, "test")}
        trainer = build_trainer(self.recipe, self.model, {"test": rows}, features)
        inputs = self.recipe.prediction_inputs("test", {"test": rows}, features)
        options = self.recipe.evaluation_options()
        output = trainer.predict(**inputs, metric_key_prefix="predict", **options)
        return self.recipe.answers(rows, features["test"], output)

    def read(self, path: str) -> Any:
        """The rows of a file that can be used."""
        return drop_bad_rows(self.recipe.read_file(path, "test"), self.recipe, path)

    def read_line(self, line: str) -> Any:
        """A row that was typed: JSON by column, or the text itself."""
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            row = None
        if not isinstance(row, dict):
            row = self.recipe.row_of(line)
        problem = self.recipe.find_problem(row)
        if problem is not None:
            raise TaskError(f"{line[:60]}: {problem}.")
        return import_datasets().Dataset.from_list([row])


def load_answerer(folder: str, output_dir: str | None = None, flags: Sequence[str] = ()) -> Answerer:
    """The model of a finished run, ready to answer.

    Args:
        folder: The `output_dir` of the run, or one of its checkpoints.
        output_dir: Where answers that are files go; default: a temporary folder.
        flags: Flags of the task that differ from those of the run, as `name=value`.
    """
    _, recipe = load_recipe(Path(folder), output_dir or make_temporary(), flags)
    recipe.config = load_config(recipe)
    recipe.processor = load_processor(recipe, ())
    return Answerer(recipe, load_model(recipe))


def make_temporary() -> str:
    """A folder that stays if answers are written into it, and else is gone when the process ends."""
    folder = tempfile.mkdtemp(prefix="footplate-")
    atexit.register(_remove_if_empty, folder)
    return folder


def _remove_if_empty(folder: str) -> None:
    with suppress(OSError):  # it has files, or somebody has removed it
        os.rmdir(folder)


def answer_lines(answerer: Answerer, lines: Iterable[str]) -> Iterator[Row]:
    """One answer for each line, as soon as it is typed; what is wrong with a line is an answer too."""
    for line in lines:
        if line.strip():
            try:
                yield answerer.answer(answerer.read_line(line.rstrip("\n")))[0]
            except (TaskError, KeyError) as error:
                yield {"error": str(error)}
