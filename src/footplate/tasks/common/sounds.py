"""What all tasks on sound share: reading tables, folders and datasets, checking, leaving out by length."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from footplate import HfArg, PredictionOutput
from footplate.tasks.common.flags import DataFlags, ModelFlags
from footplate.tasks.common.linking import link_files, stamp_of
from footplate.tasks.common.predictions import save_json_lines
from footplate.tasks.common.problems import TaskError
from footplate.tasks.common.reading import FORMS, import_datasets, read_hub, read_table, require_columns
from footplate.tasks.common.recipe import Batch, Recipe, Row
from footplate.tasks.common.sound_files import find_bad_sound, load_sound, seconds_of

logger = logging.getLogger(__name__)

ENDINGS = (".wav", ".flac", ".mp3", ".ogg", ".opus", ".aif", ".aiff", ".au")
FILE_COLUMN = "file_name"  # of a table in a folder of sounds


@dataclass
class SoundFlags(DataFlags):
    """Where the sounds are."""

    train_split_name: str = HfArg(
        default="train", help="Splits of a dataset to learn from, such as train+validation."
    )
    eval_split_name: str = HfArg(default="validation", help="Splits of a dataset to evaluate on.")
    audio_column_name: str = HfArg(
        default="audio", help="Column of sounds; in a file: paths, from the folder that the file is in."
    )


@dataclass
class DurationFlags(SoundFlags):
    """Which sounds are too short or too long."""

    max_duration_in_seconds: float = HfArg(default=20.0, help="Leave out sounds of this length or longer.")
    min_duration_in_seconds: float = HfArg(default=0.0, help="Leave out sounds of this length or shorter.")
    preprocessing_only: bool = HfArg(
        default=False, help="Prepare the data and stop, so that a run of many processes finds it ready."
    )


class SoundRecipe(Recipe):
    """What tasks on sound share: reading, checking, and leaving out what is too short or too long."""

    data: SoundFlags
    rows_at_once = 32  # a second of sound is 16,000 numbers

    def adjust(self, model: Any) -> Any:
        """The model; layers that make features of sound do not learn, if a flag says so."""
        stays = getattr(self.start, "freeze_feature_encoder", False)
        if stays and hasattr(model, "freeze_feature_encoder"):
            model.freeze_feature_encoder()
        return model

    # ---- rows ----

    def read_file(self, path: str, split: str) -> Any:
        """The rows of a table with a column of paths, or of a folder of sounds."""
        column, label = self.data.audio_column_name, getattr(self.data, "label_column_name", "label")
        folder = Path(path)
        if not folder.is_dir():
            rows = read_table(path, split, self.data, self.start)
            require_columns(rows, [column], path, "--audio_column_name")
            return link_files(keep_encoded(rows, column), column, str(folder.parent.resolve()))
        tables = [folder / f"metadata{ending}" for ending in FORMS]
        table = next((file for file in tables if file.is_file()), None)
        if table is None:
            return list_folder(folder, column, label, self.start.cache_dir)
        rows = read_table(str(table), split, self.data, self.start)
        require_columns(rows, [FILE_COLUMN], str(table), "the first line of that file")
        return link_files(rows.rename_column(FILE_COLUMN, column), column, str(folder.resolve()))

    def read_hub(self) -> dict[str, Any]:
        """The splits of a dataset, by the names that the flags give; a folder may hold a folder for each."""
        folder = Path(self.data.dataset_name or "")
        if folder.is_dir() and any((folder / name).is_dir() for name in ("train", "validation", "test")):
            parts = [part for part in sorted(folder.iterdir()) if part.is_dir()]
            found = {part.name: self.read_file(str(part), part.name) for part in parts}
        else:
            found = super().read_hub()
            for name, part in found.items():
                require_columns(
                    part, [self.data.audio_column_name], f"the split {name}", "--audio_column_name"
                )
                found[name] = keep_encoded(part, self.data.audio_column_name)
        picked = {name: part for name, part in found.items() if name == "test"}
        if self.args.do_train:
            picked["train"] = join_splits(found, self.data.train_split_name, "train_split_name")
        if self.args.do_eval:
            picked["validation"] = join_splits(found, self.data.eval_split_name, "eval_split_name")
        return picked

    def find_problem(self, row: Row) -> str | None:
        """A sound that is missing, empty or broken."""
        return find_bad_sound(row[self.data.audio_column_name])

    # ---- features ----

    @property
    def extractor(self) -> Any:
        """What makes the model's inputs of sound."""
        return getattr(self.processor, "feature_extractor", self.processor)

    @property
    def input_name(self) -> str:
        """The name of the model's input."""
        return str(self.extractor.model_input_names[0])

    def sounds_of(self, rows: Batch) -> Iterator[np.ndarray]:
        """The sounds of some rows at the model's rate."""
        for value in rows[self.data.audio_column_name]:
            yield load_sound(value, self.extractor.sampling_rate)

    def keeps(self, seconds: float) -> bool:
        """Whether a sound of this length is used."""
        data: Any = self.data
        return bool(data.min_duration_in_seconds < seconds < data.max_duration_in_seconds)

    def stages(self, split: str) -> Sequence[Callable[[Batch], Batch]]:
        """Leave out rows by their length; when predicting, every row gets an answer."""
        if split == "test" or not isinstance(self.data, DurationFlags):
            return [self.features]
        return [self.features_of_kept]

    def features_of_kept(self, rows: Batch) -> Batch:
        """The features of the rows whose sound is neither too short nor too long."""
        seconds = [seconds_of(value) for value in rows[self.data.audio_column_name]]
        kept = [index for index, length in enumerate(seconds) if self.keeps(length)]
        return self.features({name: [values[index] for index in kept] for name, values in rows.items()})

    def trainer_options(self, rows: Mapping[str, Any], features: Mapping[str, Any]) -> dict[str, Any]:
        """Say how many rows were left out by their length; refuse to go on if none is left."""
        for split, part in features.items():
            if not hasattr(part, "__len__"):
                continue
            count = len(rows[split]) - len(part)
            if count > 0:
                text = (
                    f"{count:,} of {len(rows[split]):,} {split} rows are left out: their sound is too short "
                )
                text += "or too long (--min_duration_in_seconds, --max_duration_in_seconds)."
                if not len(part):
                    raise TaskError(text)
                logger.warning("%s", text)
        if getattr(self.data, "preprocessing_only", False):
            self.args.do_train = self.args.do_eval = self.args.do_predict = False
        return {}

    # ---- answers ----

    def row_of(self, line: str) -> Row:
        """A row for the path of a file."""
        return {self.data.audio_column_name: str(Path(line.strip()).resolve())}

    def save_predictions(self, rows: Any, features: Any, output: PredictionOutput, folder: Path) -> None:
        """One JSON value for each sound."""
        save_json_lines(self.answers(rows, features, output), folder)


def keep_encoded(rows: Any, column: str) -> Any:
    """The rows with sounds as paths or bytes: `datasets` would decode them with torchcodec."""
    datasets = import_datasets()
    if isinstance((rows.features or {}).get(column), datasets.Audio):
        return rows.cast_column(column, datasets.Audio(decode=False))
    return rows


def list_folder(folder: Path, column: str, label: str, cache_dir: str | None) -> Any:
    """One row for each sound below a folder; its class is the name of the folder that it is in."""
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in ENDINGS)
    if not files:
        raise TaskError(f"{folder}: there are no sounds in it. They end in one of {', '.join(ENDINGS)}.")
    table = [{column: str(file.resolve()), label: file.parent.name} for file in files]
    stamps = [stamp_of(str(file)) for file in files]
    return import_datasets().Dataset.from_generator(
        give_rows, gen_kwargs={"table": table, "stamps": stamps}, cache_dir=cache_dir
    )


def give_rows(table: list[Row], stamps: list[Any]) -> Iterator[Row]:
    """The rows of a table; the stamps are given so that a change of the files makes another dataset."""
    yield from table


def join_splits(found: Mapping[str, Any], names: str, flag: str) -> Any:
    """The splits `a+b` of a dataset, one after the other."""
    wanted = names.split("+")
    missing = [name for name in wanted if name not in found]
    if missing:
        raise TaskError(f"--{flag} {names}: there is no split {missing[0]!r}. There are {sorted(found)}.")
    return import_datasets().concatenate_datasets([found[name] for name in wanted])


def join_configurations(
    data: SoundFlags, start: ModelFlags, configs: Sequence[str | None], splits: Sequence[str], seed: int
) -> Any:
    """The sounds of several configurations of a dataset, in random order.

    Args:
        data: Name the dataset and the column of sounds.
        start: Where to keep what is downloaded.
        configs: The configurations.
        splits: One split `a+b` for each of them.
        seed: Of the order.
    """
    if len(configs) != len(splits):
        raise TaskError(
            f"--dataset_config_names names {len(configs)} and --dataset_split_names {len(splits)}: give "
            "one split for each configuration."
        )
    column, parts = data.audio_column_name, []
    for config, split in zip(configs, splits, strict=True):
        part = join_splits(read_hub(data, start, config), split, "dataset_split_names")
        parts.append(keep_encoded(part, column).select_columns([column]))
    joined = import_datasets().concatenate_datasets(parts)
    return joined.shuffle(seed=seed) if len(parts) > 1 else joined
