"""Write down speech letter by letter, with a model that hears letters in each moment (CTC)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from footplate import HfArg
from footplate.tasks import Batch, check_columns
from footplate.tasks.common.letters import CtcTrainer, build_letter_tokenizer, number_letters
from footplate.tasks.common.models import import_transformers, load
from footplate.tasks.common.speech import (
    SoundModelFlags,
    SpeechCollator,
    SpeechFlags,
    SpeechRecipe,
    check_measures,
)


@dataclass
class CtcFlags(SpeechFlags):
    """Which letters there are, and what is measured."""

    train_split_name: str = HfArg(default="train+validation", help="Splits of a dataset to learn from.")
    eval_split_name: str = HfArg(default="test", help="Splits of a dataset to evaluate on.")
    chars_to_ignore: list[str] | None = HfArg(default=None, help="Characters to leave out.")  # noqa: RUF009
    eval_metrics: list[str] = HfArg(  # noqa: RUF009
        default_factory=lambda: ["wer"], help="What to measure: wer, cer or both."
    )
    unk_token: str = HfArg(default="[UNK]", help="Token for letters that are not known.")
    pad_token: str = HfArg(default="[PAD]", help="Token for moments without a letter.")
    word_delimiter_token: str = HfArg(default="|", help="Token between words.")
    phoneme_language: str | None = HfArg(
        default=None, help="Write sounds of this language, such as en-us, in place of letters."
    )


@dataclass
class CtcModelFlags(SoundModelFlags):
    """How parts of the model are left out or hidden while it is trained."""

    attention_dropout: float = HfArg(default=0.0, help="Share of attention that is dropped.")
    activation_dropout: float = HfArg(default=0.0, help="Share of the inner activations that is dropped.")
    feat_proj_dropout: float = HfArg(default=0.0, help="Share of the projected features that is dropped.")
    hidden_dropout: float = HfArg(default=0.0, help="Share of each layer's output that is dropped.")
    final_dropout: float = HfArg(default=0.0, help="Share of the last layer's output that is dropped.")
    mask_time_prob: float = HfArg(default=0.05, help="Share of time that is hidden.")
    mask_time_length: int = HfArg(default=10, help="Length of a part that is hidden.")
    mask_feature_prob: float = HfArg(default=0.0, help="Share of features that is hidden.")
    mask_feature_length: int = HfArg(default=10, help="How many features are hidden together.")
    layerdrop: float = HfArg(default=0.0, help="Share of layers that is skipped.")
    ctc_loss_reduction: str = HfArg(default="mean", help="How losses of rows are joined: mean or sum.")
    ctc_zero_infinity: bool = HfArg(
        default=False, help="Count an infinite loss as 0: a text longer than its sound has one."
    )
    add_adapter: bool = HfArg(default=False, help="Add layers that shorten the sequence.")


SETTINGS = tuple(CtcModelFlags.__annotations__)  # each is a setting of the model's configuration


class SpeechRecognitionCtc(SpeechRecipe):
    """Sounds, and the letters of their transcripts."""

    summary = "Write down speech letter by letter (CTC: wav2vec2, HuBERT, WavLM, MMS)."
    example = (
        "--model_name_or_path MODEL --train_file train.csv --validation_file dev.csv "
        "--audio_column_name path --text_column_name sentence --do_train --do_eval --output_dir out"
    )
    data_flags = CtcFlags
    model_flags = CtcModelFlags
    first_flags: ClassVar[tuple[str, ...]] = (
        "audio_column_name",
        "text_column_name",
        "chars_to_ignore",
        "eval_metrics",
    )
    old_flags: ClassVar[Mapping[str, str | None]] = {
        "tokenizer_name_or_path": "tokenizer_name",
        "freeze_feature_extractor": "freeze_feature_encoder",
        "only_data_preprocessing": "preprocessing_only",
    }
    head = "AutoModelForCTC"
    trainer = CtcTrainer
    data: CtcFlags
    start: CtcModelFlags

    letters: list[str]

    def learn(self, rows: Mapping[str, Any]) -> None:
        """Collect the letters of all transcripts that are used."""
        check_measures(self.data.eval_metrics)
        name = self.data.text_column_name
        check_columns(self, rows, [], [name], "--text_column_name")
        counts = {"train": self.data.max_train_samples, "validation": self.data.max_eval_samples}
        letters: set[str] = set()
        for split in counts.keys() & rows.keys():
            texts = self.limit(rows[split], counts[split]).select_columns([name])
            letters.update(*(self.clean(row[name]) for row in texts if row[name] is not None))
        self.letters = sorted(letters)

    def clean(self, text: str) -> str:
        """A transcript in lower case, without characters to ignore; a word ends with a space."""
        ignored = "".join(self.data.chars_to_ignore or ())
        return (re.sub(f"[{ignored}]", "", text) if ignored else text).lower() + " "

    def configure(self) -> dict[str, Any]:
        """What is left out and hidden while the model is trained."""
        return {name: getattr(self.start, name) for name in SETTINGS}

    def build_processor(self, texts: Iterable[str]) -> Any:
        """A feature extractor and a tokenizer of letters."""
        tokenizer = self.load_tokenizer()
        self.config.update({"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id})
        return self.join_processor(tokenizer)

    def load_tokenizer(self) -> Any:
        """The tokenizer that is named; without training, the model's own; else one of the letters."""
        name = self.start.tokenizer_name or (None if self.args.do_train else self.start.model_name_or_path)
        if name is not None:
            return load(import_transformers().AutoTokenizer, name, self.start)
        return build_letter_tokenizer(number_letters(self.letters, self.data), self.data, self.args)

    def features(self, rows: Batch) -> Batch:
        """Sounds as the model takes them, their lengths, and the numbers of letters."""
        rate = self.extractor.sampling_rate
        sounds = [
            self.extractor(sound, sampling_rate=rate)[self.input_name][0] for sound in self.sounds_of(rows)
        ]
        lengths = [len(sound) for sound in sounds]
        return {self.input_name: sounds, "input_length": lengths, **self.tokens_of(rows)}

    def collator(self) -> Any:
        """Pad sounds and letters, each to the longest of a batch."""
        return SpeechCollator(self.processor)

    def heard(self, predictions: Any) -> list[str]:
        """The letters of each moment, joined to texts."""
        return self.decode(predictions)

    def said(self, labels: Any) -> list[str]:
        """The transcripts."""
        return self.decode(labels, group_tokens=False)

    def measured(self) -> list[str]:
        """What a flag names."""
        return self.data.eval_metrics
