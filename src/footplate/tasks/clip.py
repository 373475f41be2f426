"""Bring pictures and their captions close to each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from footplate import HfArg, PredictionOutput, default_data_collator, set_seed
from footplate.tasks import Batch, Recipe, Row, check_columns
from footplate.tasks.common.images import ImageFlags, ImageModelFlags, ImageRecipe, decode_picture, name_of
from footplate.tasks.common.pairs import find_nearest, load_pair
from footplate.tasks.common.transforms import BICUBIC, center_crop, resize, to_pixels

CAPTION_COLUMNS = ("caption", "captions", "text", "sentence")
PARTS = ("logits_per_image", "logits_per_text", "text_model_output", "vision_model_output")


@dataclass
class ClipFlags(ImageFlags):
    """Which columns hold pictures and captions."""

    data_dir: str | None = HfArg(default=None, help="Folder of the pictures that a table names.")
    image_column: str | None = HfArg(default=None, help="Column of pictures (default: image_path, image).")
    caption_column: str | None = HfArg(default=None, help="Column of captions (default: caption, text).")
    max_seq_length: int = HfArg(default=128, help="Tokens of a caption; what is longer is cut off.")


@dataclass
class ClipModelFlags(ImageModelFlags):
    """Which parts of the model learn."""

    freeze_vision_model: bool = HfArg(default=False, help="Leave the part that sees as it is.")
    freeze_text_model: bool = HfArg(default=False, help="Leave the part that reads as it is.")


class Clip(ImageRecipe):
    """Pictures and captions, each with a vector; those that belong together become alike."""

    summary = "Bring pictures and their captions close to each other (CLIP, or a vision and a text model)."
    example = (
        "--model_name_or_path MODEL --train_file captions.csv --image_column image --caption_column caption "
        "--do_train --output_dir out"
    )
    data_flags = ClipFlags
    model_flags = ClipModelFlags
    first_flags = ("image_column", "caption_column")
    always_splits = False

    caption: str  # column of captions
    limit = Recipe.limit  # the first rows, in their order

    def given_column(self) -> str | None:
        """The column of pictures that a flag names."""
        return self.data.image_column or super().given_column()

    def picture_folder(self, path: str) -> str:
        """Where pictures are that a table names."""
        return self.data.data_dir or super().picture_folder(path)

    def learn(self, rows: Mapping[str, Any]) -> None:
        """Find the columns."""
        super().learn(rows)
        names = next(iter(rows.values())).column_names
        usual = next((name for name in CAPTION_COLUMNS if name in names), CAPTION_COLUMNS[0])
        self.caption = self.data.caption_column or usual
        check_columns(self, rows, [self.caption], [], "--caption_column")

    def find_problem(self, row: Row) -> str | None:
        """A picture that cannot be opened, a caption that is missing."""
        is_text = isinstance(row[self.caption], str) and row[self.caption].strip()
        return super().find_problem(row) or (None if is_text else "the caption is missing")

    def text_of(self, row: Row) -> list[str]:
        """The caption."""
        return [row[self.caption]]

    def build_processor(self, texts: Iterable[str]) -> Any:
        """A tokenizer and an image processor."""
        return load_pair(self, texts)

    def adjust(self, model: Any) -> Any:
        """The model; parts that are frozen do not learn."""
        parts = {"vision_model": self.start.freeze_vision_model, "text_model": self.start.freeze_text_model}
        for name, is_frozen in parts.items():
            if is_frozen:
                getattr(model, name).requires_grad_(False)
        # the original's script seeds here: what a model draws does not change the order of rows
        set_seed(self.args.seed)
        return model

    def stages(self, split: str) -> list[Any]:
        """Tokens are made in advance."""
        return [self.features]

    def features(self, rows: Batch) -> Batch:
        """The tokens of captions, beside the pictures."""
        tokens = self.processor.tokenizer(
            list(rows[self.caption]),
            max_length=min(self.data.max_seq_length, self.processor.tokenizer.model_max_length),
            padding="max_length",
            truncation=True,
        )
        names = ("input_ids", "attention_mask")
        return {**{name: tokens[name] for name in names}, self.image: rows[self.image]}

    def transform(self, split: str) -> Any:
        """The middle of each picture, in the size that the model takes."""
        return self.middle_parts

    def middle_parts(self, rows: Batch) -> Batch:
        """Pixels and tokens."""
        size, images = self.config.vision_config.image_size, self.processor.image_processor
        parts = [
            center_crop(resize(decode_picture(value), size, BICUBIC), size) for value in rows[self.image]
        ]
        names = ("input_ids", "attention_mask")
        made = {name: rows[name] for name in names if name in rows}
        return {"pixel_values": [to_pixels(part, images) for part in parts], **made}

    def collator(self) -> Any:
        """A batch that asks the model for its loss."""
        return collate

    def evaluation_options(self) -> dict[str, Any]:
        """Keep only the vectors: what compares pictures and captions of one batch does not fit together."""
        return {"ignore_keys": list(PARTS)}

    def answers(self, rows: Any, features: Any, output: PredictionOutput) -> list[Row]:
        """For each picture the caption among all that is nearest, and how alike they are."""
        texts, images = output.predictions[:2]
        found = find_nearest(images, texts, list(rows[self.caption]))
        return [
            {"image": name_of(value), "caption": caption, "likeness": likeness}
            for value, (caption, likeness) in zip(rows[self.image], found, strict=True)
        ]


def collate(rows: list[Any]) -> dict[str, Any]:
    """The batch of some rows."""
    return {**default_data_collator(rows), "return_loss": True}
