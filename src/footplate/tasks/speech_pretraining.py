"""Pretrain wav2vec2 on sounds alone: tell a hidden moment from others of the same sound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from footplate import HfArg, PredictionOutput
from footplate.tasks import Batch, Row, TaskError
from footplate.tasks.common import contrast
from footplate.tasks.common.reading import split_first
from footplate.tasks.common.sounds import DurationFlags, SoundRecipe, join_configurations
from footplate.tasks.common.speech import SoundModelFlags, load_extractor


@dataclass
class PretrainingFlags(DurationFlags):
    """Which sounds are heard, and how much of each is hidden."""

    dataset_config_names: list[str] | None = HfArg(  # noqa: RUF009
        default=None, help="Configurations of a dataset, such as clean other."
    )
    dataset_split_names: list[str] | None = HfArg(  # noqa: RUF009
        default=None, help="One split for each of them, such as train.100 train.500."
    )
    validation_split_percentage: int = HfArg(default=1, help="Share of the first rows to evaluate on.")
    max_duration_in_seconds: float = HfArg(default=5.0, help="Hear no more than the beginning of a sound.")
    min_duration_in_seconds: float = HfArg(default=3.0, help="Leave out sounds of this length or shorter.")
    mask_time_prob: float | None = HfArg(
        default=None, help="Share of moments that is hidden (default: the model's)."
    )
    mask_time_length: int | None = HfArg(
        default=None, help="How many moments are hidden together (default: the model's)."
    )
    pad_to_multiple_of: int | None = HfArg(default=None, help="Pad sounds to a multiple of this.")


@dataclass
class PretrainingModelFlags(SoundModelFlags):
    """How sounds become codes, and which weights to start from."""

    freeze_feature_encoder: bool = HfArg(
        default=False, help="Do not train the layers that make features of sound."
    )
    max_gumbel_temperature: float = HfArg(default=2.0, help="How freely codes are chosen at first.")
    min_gumbel_temperature: float = HfArg(default=0.5, help="How freely they are chosen at least.")
    gumbel_temperature_decay: float = HfArg(default=0.999995, help="What is left of it after each update.")
    continue_pretraining: bool = HfArg(
        default=False, help="Start from the weights of the model; otherwise, from random ones."
    )


class SpeechPretraining(SoundRecipe):
    """Sounds without anything said about them."""

    summary = "Pretrain wav2vec2 on sounds alone, by telling hidden moments from others."
    example = (
        "--model_name_or_path MODEL --train_file sounds --mask_time_prob 0.65 --do_train --do_eval "
        "--learning_rate 5e-3 --output_dir out"
    )
    data_flags = PretrainingFlags
    model_flags = PretrainingModelFlags
    arguments = contrast.PretrainingArguments
    trainer = contrast.ContrastTrainer
    head = "AutoModelForPreTraining"
    first_flags = (
        "audio_column_name",
        "max_duration_in_seconds",
        "min_duration_in_seconds",
        "mask_time_prob",
    )
    old_flags: ClassVar[Mapping[str, str | None]] = {
        "max_train_steps": "max_steps",
        "num_warmup_steps": "warmup_steps",
        "saving_steps": "save_steps",
        "train_cache_file_name": None,
        "validation_cache_file_name": None,
    }
    always_splits = True
    data: PretrainingFlags
    start: PretrainingModelFlags

    def __init__(self, data: Any, start: Any, args: Any) -> None:
        super().__init__(data, start, args)
        args.label_names = ["mask_time_indices"]  # evaluations have a loss where these are given
        data.show_samples = 0  # predictions are vectors, in which there is nothing to read
        if args.do_train and not start.continue_pretraining:
            start.config_name = start.config_name or start.model_name_or_path
            start.feature_extractor_name = start.feature_extractor_name or start.model_name_or_path
            start.model_name_or_path = None

    # ---- rows ----

    def read_hub(self) -> dict[str, Any]:
        """All configurations and splits that are named, one after the other, in random order."""
        configs: Sequence[str | None] = self.data.dataset_config_names or [self.data.dataset_config_name]
        splits = self.data.dataset_split_names or [self.data.train_split_name]
        return {"train": join_configurations(self.data, self.start, configs, splits, self.args.seed)}

    def split_off(self, rows: Any) -> tuple[Any, Any]:
        """The first rows to evaluate on, and the others to learn from."""
        if not hasattr(rows, "__len__"):
            return super().split_off(rows)
        return split_first(rows, self.data.validation_split_percentage)

    def keeps(self, seconds: float) -> bool:
        """Whether a sound of this length is used; what is too long is cut."""
        return seconds > self.data.min_duration_in_seconds

    # ---- model ----

    def build_processor(self, texts: Iterable[str]) -> Any:
        """The feature extractor; a model that cannot be pretrained is refused."""
        extractor = load_extractor(self)
        contrast.check_stable(self.config, extractor)
        return extractor

    # ---- features ----

    def features(self, rows: Batch) -> Batch:
        """Sounds as the model takes them, no longer than the limit, and their lengths."""
        rate = self.extractor.sampling_rate
        limit = {"max_length": int(self.data.max_duration_in_seconds * rate), "truncation": True}
        inputs = [self.extractor(sound, sampling_rate=rate, **limit) for sound in self.sounds_of(rows)]
        sounds = [row[self.input_name][0] for row in inputs]
        return {self.input_name: sounds, "input_length": [len(sound) for sound in sounds]}

    def collator(self) -> Any:
        """Pad sounds, hide moments, and choose others to tell them from."""
        data, config = self.data, self.config
        probability = config.mask_time_prob if data.mask_time_prob is None else data.mask_time_prob
        length = config.mask_time_length if data.mask_time_length is None else data.mask_time_length
        return contrast.HidingCollator(self.extractor, config, probability, length, data.pad_to_multiple_of)

    def trainer_options(self, rows: Mapping[str, Any], features: Mapping[str, Any]) -> dict[str, Any]:
        """Let codes be chosen less and less freely."""
        flags, options = self.start, super().trainer_options(rows, features)
        limits = (flags.max_gumbel_temperature, flags.min_gumbel_temperature)
        return {**options, "callbacks": [contrast.GumbelCallback(*limits, flags.gumbel_temperature_decay)]}

    def answers(self, rows: Any, features: Any, output: PredictionOutput) -> list[Row]:
        """There are none."""
        raise TaskError(
            "A pretrained model gives no answers. Train it further, for instance with speech_recognition_ctc."
        )
