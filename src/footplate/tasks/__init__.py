"""Tasks: one recipe each, and what they share. These names are public; a recipe uses no others."""

from footplate.tasks.common.flags import DataFlags, ModelFlags
from footplate.tasks.common.preparing import build_features
from footplate.tasks.common.problems import BadRow, TaskError
from footplate.tasks.common.reading import (
    check_file,
    files_of,
    limit_rows,
    read_hub,
    read_table,
    require_columns,
)
from footplate.tasks.common.recipe import Batch, Recipe, Row
from footplate.tasks.common.running import Job, build_job, check_columns, run_task, source_name

__all__ = [
    "BadRow",
    "Batch",
    "DataFlags",
    "Job",
    "ModelFlags",
    "Recipe",
    "Row",
    "TaskError",
    "build_features",
    "build_job",
    "check_columns",
    "check_file",
    "files_of",
    "limit_rows",
    "read_hub",
    "read_table",
    "require_columns",
    "run_task",
    "source_name",
]
