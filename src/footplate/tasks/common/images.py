"""What the tasks of pictures share: folders and tables of pictures, decoding, splits, the processor."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from footplate import HfArg, PredictionOutput
from footplate.tasks.common.flags import DataFlags, ModelFlags
from footplate.tasks.common.linking import link_files
from footplate.tasks.common.predictions import save_json_lines
from footplate.tasks.common.problems import TaskError
from footplate.tasks.common.reading import first_line, import_datasets, load_rows, require_columns
from footplate.tasks.common.recipe import Recipe, Row
from footplate.tasks.common.running import source_name
from footplate.tasks.common.transforms import import_pillow

IMAGE_COLUMNS = ("image", "img", "image_path", "pixel_values", "file_name", "path")  # in the order of choice
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")


@dataclass
class ImageFlags(DataFlags):
    """Where pictures are."""

    train_dir: str | None = HfArg(default=None, help="Folder of pictures to learn from.")
    validation_dir: str | None = HfArg(default=None, help="Folder of pictures to evaluate on.")
    test_dir: str | None = HfArg(default=None, help="Folder of pictures to predict.")
    train_val_split: float | None = HfArg(
        default=0.15, help="Share of the training pictures to evaluate on, if there are no others."
    )
    image_column_name: str | None = HfArg(
        default=None, help="Column of pictures (default: image, or what looks like it)."
    )


@dataclass
class ImageModelFlags(ModelFlags):
    """Which image processor to use."""

    image_processor_name: str | None = HfArg(
        default=None, help="An image processor, if it is not that of the model."
    )
    image_size: int | None = HfArg(default=None, help="Size of pictures for a model with random weights.")


class ImageRecipe(Recipe):
    """A task of pictures: they are transformed when they are read, anew in each epoch."""

    data_flags = ImageFlags
    model_flags = ImageModelFlags
    reader = "AutoImageProcessor"
    first_flags = ("train_dir", "validation_dir")
    old_flags: ClassVar[Mapping[str, str | None]] = {"feature_extractor_name": "image_processor_name"}
    always_splits = True
    split_flag = "train_val_split"
    seeds_split: ClassVar[bool] = False  # by --seed itself, or by the random state that it began
    usual_dataset: ClassVar[str | None] = None  # of the original's script, if there are no flags
    usual_model: ClassVar[str | None] = None
    data: Any
    start: Any

    image: str  # column of pictures

    def __init__(self, data: Any, start: Any, args: Any) -> None:
        super().__init__(data, start, args)
        args.remove_unused_columns = False  # pixels are made of columns that the model does not take
        if data.dataset_name is None and not self.files():
            data.dataset_name = self.usual_dataset
        if not (start.model_name_or_path or start.model_type or start.config_name):
            start.model_name_or_path = self.usual_model

    # ---- rows ----

    def files(self) -> dict[str, str]:
        """Folders and files, by split."""
        folders = {split: getattr(self.data, f"{split}_dir") for split in ("train", "validation", "test")}
        return {**super().files(), **{split: path for split, path in folders.items() if path}}

    def read_file(self, path: str, split: str) -> Any:
        """The pictures of a folder, or those that a table names; one picture is a row by itself."""
        if Path(path).is_dir() or getattr(self.data, f"{split}_dir") == path:
            return self.name_column(self.read_folder(path, split))
        if Path(path).suffix.lower() in PICTURES:
            return self.name_column(table_of({"image": [path]}))
        rows = super().read_file(path, split)
        column = find_image_column(rows, self.given_column(), path)
        return link_pictures(rows, column, self.picture_folder(path))

    def picture_folder(self, path: str) -> str:
        """Where pictures are that a table names: in its own folder."""
        return str(Path(path).parent)

    def name_column(self, rows: Any) -> Any:
        """The pictures of a folder under the name that they had when the model was trained."""
        name = getattr(self, "image", "image")
        return rows if name == "image" else rows.rename_column("image", name)

    def read_folder(self, path: str, split: str) -> Any:
        """The pictures of a folder; names of its folders are labels."""
        return read_folder(path, split, self.data, self.start)

    def given_column(self) -> str | None:
        """The column of pictures that a flag names."""
        name: str | None = self.data.image_column_name
        return name

    def read_hub(self) -> dict[str, Any]:
        """All splits of a dataset of the Hub; pictures are decoded later."""
        found = super().read_hub()
        return {
            split: keep_encoded(part, find_image_column(part, self.given_column(), split))
            for split, part in found.items()
        }

    def split_off(self, rows: Any) -> tuple[Any, Any]:
        """The pictures to learn from, and those to evaluate on."""
        share = self.data.train_val_split
        if not share and not self.args.do_eval:
            return rows, rows.select([])
        if not share:
            raise TaskError(
                "There are no pictures to evaluate on. Give --validation_dir or --train_val_split."
            )
        if not 0 < share < 1:
            raise TaskError(f"--train_val_split {share}: give a number between 0 and 1.")
        parts = rows.train_test_split(share, seed=self.args.seed if self.seeds_split else None)
        return parts["train"], parts["test"]

    def limit(self, rows: Any, count: int | None) -> Any:
        """So many pictures, chosen by chance: those of a folder come class by class."""
        return rows if count is None else super().limit(rows.shuffle(seed=self.args.seed), count)

    def learn(self, rows: Mapping[str, Any]) -> None:
        """Find the column of pictures."""
        first = next(iter(rows.values()))
        self.image = find_image_column(first, self.given_column(), source_name(self, next(iter(rows))))
        for split, part in rows.items():
            require_columns(part, [self.image], source_name(self, split), "--image_column_name")

    def find_problem(self, row: Row) -> str | None:
        """A picture that cannot be opened."""
        return find_broken_picture(row[self.image])

    # ---- features ----

    def stages(self, split: str) -> list[Any]:
        """Nothing is made in advance."""
        return []

    # ---- answers ----

    def row_of(self, line: str) -> Row:
        """The picture whose path was typed."""
        return {self.image: line.strip()}

    def save_predictions(self, rows: Any, features: Any, output: PredictionOutput, folder: Path) -> None:
        """One JSON value for each picture."""
        save_json_lines(self.answers(rows, features, output), folder)


# ---- reading ----


def find_image_column(rows: Any, given: str | None, source: str) -> str:
    """The column of pictures: the one that is named, else one with a usual name."""
    names = list(rows.column_names or [])
    if given is not None:
        require_columns(rows, [given], source, "--image_column_name")
        return given
    found = next((name for name in IMAGE_COLUMNS if name in names), None)
    if found is None:
        raise TaskError(f"{source} has no column of pictures. It has {names}. Name it: --image_column_name.")
    return found


def read_folder(path: str, split: str, data: DataFlags, start: ModelFlags) -> Any:
    """The pictures of a folder; if it has folders, their names are the column `label`."""
    pictures = find_pictures(path, f"{split}_dir")
    has_classes = all(Path(picture).parent != Path(path) for picture in pictures)
    rows = load_rows(
        "imagefolder",
        path,
        data,
        start,
        data_files={split: os.path.join(path, "**")},
        split=split,
        drop_labels=not has_classes,
    )
    rows = keep_encoded(rows, "image")
    feature = (rows.features or {}).get("label")
    if feature is None or not hasattr(feature, "int2str"):
        return rows

    def name_labels(part: dict[str, list[Any]]) -> dict[str, list[str]]:
        return {"label": feature.int2str(part["label"])}

    # names, not numbers: the folders of another split may be fewer, and so be numbered otherwise
    features = {**rows.features, "label": import_datasets().Value("string")}
    return rows.map(name_labels, batched=True, features=import_datasets().Features(features))


def find_pictures(path: str, flag: str) -> list[str]:
    """The pictures of a folder and its folders, in order."""
    folder = Path(path)
    if not folder.is_dir():
        raise TaskError(f"--{flag} {path}: there is no such folder.")
    found = sorted(str(file) for file in folder.rglob("*") if file.suffix.lower() in PICTURES)
    if not found:
        raise TaskError(f"--{flag} {path}: there are no pictures in this folder ({', '.join(PICTURES)}).")
    return found


def table_of(columns: dict[str, list[Any]]) -> Any:
    """Rows made of the paths of pictures."""
    datasets = import_datasets()
    features = datasets.Features({name: datasets.Image(decode=False) for name in columns})
    return datasets.Dataset.from_dict(columns, features=features)


def keep_encoded(rows: Any, column: str) -> Any:
    """The rows with a column of pictures as path and bytes: a broken one is then found row by row."""
    return rows.cast_column(column, import_datasets().Image(decode=False))


def link_pictures(rows: Any, column: str, folder: str) -> Any:
    """The rows of a table whose column names pictures, relative to a folder."""
    return keep_encoded(link_files(rows, column, folder), column)


# ---- decoding ----


def decode_picture(value: Any, mode: str | None = "RGB") -> Any:
    """A picture of Pillow.

    Args:
        value: Path and bytes as `datasets` gives them, a path, or a picture.
        mode: Its colours; None leaves them as they are.
    """
    opener = import_pillow().open
    from PIL import ExifTags, ImageOps

    if isinstance(value, Mapping):
        value = io.BytesIO(value["bytes"]) if value.get("bytes") is not None else value["path"]
    image = opener(value) if isinstance(value, (str, Path, io.BytesIO)) else value
    image.load()
    if image.getexif().get(ExifTags.Base.Orientation) is not None:
        image = ImageOps.exif_transpose(image)
    return image if mode is None or image.mode == mode else image.convert(mode)


def name_of(value: Any) -> str:
    """The path of a picture, for people."""
    path = value.get("path") if isinstance(value, Mapping) else value
    return str(path) if isinstance(path, (str, Path)) else "the picture"


def find_broken_picture(value: Any) -> str | None:
    """Why a picture cannot be used."""
    if value is None or (isinstance(value, Mapping) and value.get("bytes") is value.get("path") is None):
        return "the picture is missing"
    try:
        decode_picture(value)
    except FileNotFoundError:
        return f"there is no file {name_of(value)}"
    except Exception as error:  # Pillow raises errors of many kinds
        return f"{name_of(value)} cannot be opened as a picture ({first_line(error)})"
    return None


def find_hub_file(dataset: str | None, name: str, start: ModelFlags) -> str | None:
    """A file that lies beside a dataset of the Hub, if there is one."""
    if dataset is None:
        return None
    from huggingface_hub import hf_hub_download

    try:
        path = hf_hub_download(
            dataset, name, repo_type="dataset", cache_dir=start.cache_dir, token=start.token
        )
        return str(path)
    except Exception:  # no network, no such file: classes are counted in the data
        return None
