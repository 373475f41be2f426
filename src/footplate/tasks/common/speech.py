"""What the tasks that write down speech share: processors, batches, transcripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from footplate import EvalPrediction, HfArg, PredictionOutput
from footplate.tasks.common.flags import ModelFlags
from footplate.tasks.common.models import import_transformers, load
from footplate.tasks.common.problems import TaskError
from footplate.tasks.common.recipe import Batch, Row
from footplate.tasks.common.sounds import DurationFlags, SoundRecipe

FRAMES_PER_SECOND = 50  # of Whisper's encoder


@dataclass
class SpeechFlags(DurationFlags):
    """Where the transcripts are."""

    text_column_name: str = HfArg(default="text", help="Column of transcripts.")


@dataclass
class SoundModelFlags(ModelFlags):
    """Which feature extractor to use, and what stays as it is."""

    feature_extractor_name: str | None = HfArg(
        default=None, help="A feature extractor, if it is not that of the model."
    )
    freeze_feature_encoder: bool = HfArg(
        default=True, help="Do not train the layers that make features of sound."
    )


class SpeechRecipe(SoundRecipe):
    """Sounds and their transcripts."""

    data: SpeechFlags

    def join_processor(self, tokenizer: Any) -> Any:
        """The model's feature extractor and a tokenizer in one."""
        return join_processor(self.config, load_extractor(self), tokenizer)

    def clean(self, text: str) -> str:
        """A transcript as it is to be written."""
        raise NotImplementedError

    def tokens_of(self, rows: Batch) -> Batch:
        """The tokens of transcripts, if they are known."""
        if self.data.text_column_name not in rows:
            return {}
        texts = [self.clean(text) for text in rows[self.data.text_column_name]]
        return {"labels": [self.tokenizer(text).input_ids for text in texts]}

    def measured(self) -> Sequence[str]:
        """What is measured: errors by words (wer), by characters (cer), or both."""
        return ["wer"]

    def metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """Errors by words or by characters."""
        said, heard = self.said(prediction.label_ids), self.heard(prediction.predictions)
        return measure_transcripts(self.measured(), said, heard)

    @property
    def tokenizer(self) -> Any:
        """What makes tokens of transcripts."""
        return self.processor.tokenizer

    def find_problem(self, row: Row) -> str | None:
        """A sound that cannot be used, or one without a transcript."""
        name = self.data.text_column_name
        if name in row and not isinstance(row[name], str):
            return f"the transcript in {name!r} is missing"
        return super().find_problem(row)

    def decode(self, ids: Any, **options: Any) -> list[str]:
        """Texts of rows of tokens, which are padded with -100."""
        padded = np.where(np.asarray(ids) == -100, self.tokenizer.pad_token_id, ids)
        texts: list[str] = self.tokenizer.batch_decode(padded, **options)
        return texts

    def heard(self, predictions: Any) -> list[str]:
        """The texts that a model gives."""
        raise NotImplementedError

    def said(self, labels: Any) -> list[str]:
        """The texts that it should give."""
        raise NotImplementedError

    def show(self, inputs: Any, labels: Any, predictions: Any) -> Row:
        """The length of the sound, what was said and what was heard."""
        prediction = self.heard(np.asarray(predictions)[None])[0]
        if labels is None:
            return {"input": describe_sound(inputs), "prediction": prediction}
        target = self.said(np.asarray(labels)[None])[0]
        correct = target == prediction
        shown = describe_sound(inputs)
        return {"input": shown, "target": target, "prediction": prediction, "correct": correct}

    def answers(self, rows: Any, features: Any, output: PredictionOutput) -> list[Row]:
        """The transcript."""
        return [{"text": text} for text in self.heard(output.predictions)]


def describe_sound(inputs: Any) -> str:
    """The shape of what the model gets, for people."""
    name = "input_values" if "input_values" in inputs else "input_features"
    return f"{name} {list(inputs[name].shape)}"


class SpeechCollator:
    """Pads sounds and, apart from them, labels, of which padding becomes -100.

    Args:
        processor: Its feature extractor pads sounds, its tokenizer labels.
        start: The token that a decoder begins with: the model adds it to labels, so it is cut from them.
        pad_to_multiple_of: Pad sounds to a multiple of this.
    """

    def __init__(
        self, processor: Any, start: int | None = None, pad_to_multiple_of: int | None = None
    ) -> None:
        self.processor, self.start, self.pad_to_multiple_of = processor, start, pad_to_multiple_of

    def __call__(self, rows: Sequence[Row]) -> Any:
        """The batch of some rows."""
        extractor, tokenizer = self.processor.feature_extractor, self.processor.tokenizer
        name = extractor.model_input_names[0]
        sounds = [{name: row[name]} for row in rows]
        multiple = {"pad_to_multiple_of": self.pad_to_multiple_of} if self.pad_to_multiple_of else {}
        batch = extractor.pad(sounds, padding="longest", return_tensors="pt", **multiple)
        if "labels" in rows[0]:
            texts = [{"input_ids": row["labels"]} for row in rows]
            padded = tokenizer.pad(texts, padding="longest", return_tensors="pt")
            labels = padded["input_ids"].masked_fill(padded["attention_mask"].ne(1), -100)
            if self.start is not None and bool((labels[:, 0] == self.start).all()):
                labels = labels[:, 1:]
            batch["labels"] = labels
        if "attention_mask" in rows[0]:
            batch["attention_mask"] = torch.tensor([row["attention_mask"] for row in rows])
        if "attention_mask" in batch:
            batch["attention_mask"] = batch["attention_mask"].long()
        return batch


def load_extractor(recipe: SoundRecipe, **options: Any) -> Any:
    """The feature extractor: that of the model or, for random weights, one that suits its configuration."""
    flags = recipe.start
    name = getattr(flags, "feature_extractor_name", None) or flags.model_name_or_path
    if name is None:
        return build_extractor(getattr(recipe.config, "encoder", recipe.config), **options)
    return load(import_transformers().AutoFeatureExtractor, name, flags, **options)


def build_extractor(config: Any, **options: Any) -> Any:
    """A feature extractor that suits a configuration."""
    from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING

    try:
        kind = FEATURE_EXTRACTOR_MAPPING[type(config)]
    except KeyError:
        raise TaskError(
            f"There is no feature extractor for a model of type {config.model_type}. Give "
            "--feature_extractor_name."
        ) from None
    found: dict[str, Any] = {}
    if hasattr(config, "feat_extract_norm"):  # group norm was trained without a mask of the padding
        found = {"return_attention_mask": config.feat_extract_norm == "layer"}
    elif config.model_type == "whisper":
        if config.max_source_positions % FRAMES_PER_SECOND:
            raise TaskError(
                f"max_source_positions={config.max_source_positions}: give a multiple of "
                f"{FRAMES_PER_SECOND}, which is a second of sound."
            )
        seconds = config.max_source_positions // FRAMES_PER_SECOND
        found = {"feature_size": config.num_mel_bins, "chunk_length": seconds}
    elif hasattr(config, "num_mel_bins") and hasattr(config, "max_length"):
        found = {"num_mel_bins": config.num_mel_bins, "max_length": config.max_length}
    return kind(**{**found, **options})


def join_processor(config: Any, extractor: Any, tokenizer: Any) -> Any:
    """Feature extractor and tokenizer as the processor of the architecture."""
    from transformers import Wav2Vec2Processor
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

    try:
        kind = PROCESSOR_MAPPING[type(config)]
    except KeyError:
        kind = Wav2Vec2Processor
    return kind(feature_extractor=extractor, tokenizer=tokenizer)


def check_measures(names: Sequence[str]) -> None:
    """Refuse what is not measured."""
    wrong = set(names) - {"wer", "cer"}
    if wrong:
        raise TaskError(f"--eval_metrics {' '.join(sorted(wrong))}: choose among wer and cer.")


def measure_transcripts(names: Sequence[str], said: list[str], heard: list[str]) -> dict[str, float]:
    """The share of words (wer) and of characters (cer) that are wrong, missing or too many."""
    import jiwer

    found = {"wer": jiwer.wer, "cer": jiwer.cer}
    return {name: float(found[name](said, heard)) for name in names}
