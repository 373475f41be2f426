"""Classify sounds: a table of files and labels, or one folder for each class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import randint
from typing import Any, ClassVar

import numpy as np

from footplate import DataCollatorWithPadding, HfArg
from footplate.tasks import Batch
from footplate.tasks.common.classes import ClassRecipe
from footplate.tasks.common.sounds import SoundFlags, SoundRecipe
from footplate.tasks.common.speech import SoundModelFlags, load_extractor


@dataclass
class AudioClassificationFlags(SoundFlags):
    """Which column holds the class, and how much of a sound is heard."""

    label_column_name: str = HfArg(default="label", help="Column of classes.")
    max_length_seconds: float = HfArg(
        default=20, help="Learn from a random part of this length, if a sound is longer."
    )


@dataclass
class AudioModelFlags(SoundModelFlags):
    """What the model gets beside the sound."""

    attention_mask: bool = HfArg(default=True, help="Tell the model which part of a sound is padding.")


class AudioClassification(ClassRecipe, SoundRecipe):
    """Sounds and their classes."""

    summary = "Classify sounds: a table of files and labels, or one folder for each class."
    example = (
        "--model_name_or_path MODEL --train_file sounds/train --validation_file sounds/validation "
        "--do_train --do_eval --output_dir out"
    )
    data_flags = AudioClassificationFlags
    model_flags = AudioModelFlags
    first_flags = ("audio_column_name", "label_column_name", "max_length_seconds")
    old_flags: ClassVar[Mapping[str, str | None]] = {
        "eval_file": "validation_file",
        "freeze_feature_extractor": "freeze_feature_encoder",
    }
    head = "AutoModelForAudioClassification"
    things = "sounds"
    usual_model = "facebook/wav2vec2-base"  # of the original's script, if there are no flags
    data: AudioClassificationFlags
    start: AudioModelFlags

    def __init__(self, data: Any, start: Any, args: Any) -> None:
        super().__init__(data, start, args)
        args.remove_unused_columns = False  # the model's inputs are made of columns that it does not take
        if not (start.model_name_or_path or start.model_type or start.config_name):
            start.model_name_or_path = self.usual_model

    def limit(self, rows: Any, count: int | None) -> Any:
        """So many sounds, chosen by chance: those of a folder come class by class."""
        return rows if count is None else super().limit(rows.shuffle(seed=self.args.seed), count)

    # ---- model ----

    def configure(self) -> dict[str, Any]:
        """The classes."""
        return {**self.labels.config, "finetuning_task": "audio-classification"}

    def build_processor(self, texts: Iterable[str]) -> Any:
        """The feature extractor."""
        return load_extractor(self, return_attention_mask=self.start.attention_mask)

    # ---- features ----

    def stages(self, split: str) -> Sequence[Callable[[Batch], Batch]]:
        """Nothing is made in advance: other parts of a sound are heard in each epoch."""
        return []

    def transform(self, split: str) -> Callable[[Batch], Batch]:
        """Random parts to learn from, whole sounds to evaluate on."""
        return self.random_parts if split == "train" else self.features

    def random_parts(self, rows: Batch) -> Batch:
        """A random part of each sound that is longer than the limit."""
        length = round(self.extractor.sampling_rate * self.data.max_length_seconds)
        return self.hear([pick_part(sound, length) for sound in self.sounds_of(rows)], rows)

    def features(self, rows: Batch) -> Batch:
        """Whole sounds."""
        return self.hear(list(self.sounds_of(rows)), rows)

    def hear(self, sounds: list[np.ndarray], rows: Batch) -> Batch:
        """What the model takes, and the numbers of classes."""
        inputs = self.extractor(sounds, sampling_rate=self.extractor.sampling_rate)
        return {self.input_name: inputs[self.input_name], **self.numbers_of(rows)}

    def collator(self) -> Any:
        """Pad sounds to the longest of a batch."""
        return DataCollatorWithPadding(self.processor)


def pick_part(sound: np.ndarray, length: int) -> np.ndarray:
    """A random part of a sound, or all of it if it is no longer."""
    if len(sound) <= length:
        return sound
    start = randint(0, len(sound) - length - 1)
    return sound[start : start + length]
