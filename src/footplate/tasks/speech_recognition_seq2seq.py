"""Write down speech with a model that listens, then writes (Whisper, speech encoder-decoders)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from footplate import HfArg, Seq2SeqTrainer, Seq2SeqTrainingArguments
from footplate.tasks import Batch, Row, TaskError, check_columns
from footplate.tasks.common.models import import_transformers, load
from footplate.tasks.common.speech import SoundModelFlags, SpeechCollator, SpeechFlags, SpeechRecipe
from footplate.tasks.common.transcribers import fit_configuration, set_language
from footplate.tasks.common.vocabulary import TRANSLATORS, train_tokenizer


@dataclass
class WrittenFlags(SpeechFlags):
    """What is written."""

    eval_split_name: str = HfArg(default="test", help="Splits of a dataset to evaluate on.")
    do_lower_case: bool = HfArg(default=True, help="Write in lower case.")
    language: str | None = HfArg(
        default=None, help="Language of the speech, such as hindi, for a model of many languages."
    )
    speech_task: str = HfArg(  # a line `task` of a file of settings is the recipe's name
        default="transcribe", help="What such a model does: transcribe, or translate to English."
    )


@dataclass
class WritingModelFlags(SoundModelFlags):
    """What does not learn, and what is hidden."""

    freeze_encoder: bool = HfArg(default=False, help="Do not train the part that listens.")
    apply_spec_augment: bool = HfArg(
        default=False, help="Hide parts of the sound while Whisper is trained (with --config_overrides)."
    )


class SpeechRecognitionSeq2Seq(SpeechRecipe):
    """Sounds, and the words of their transcripts."""

    summary = "Write down or translate speech with a model that listens, then writes (Whisper)."
    example = (
        "--model_name_or_path MODEL --train_file train.csv --validation_file dev.csv --language hindi "
        "--do_train --do_eval --predict_with_generate --generation_max_length 225 --output_dir out"
    )
    data_flags = WrittenFlags
    model_flags = WritingModelFlags
    arguments = Seq2SeqTrainingArguments
    trainer = Seq2SeqTrainer
    first_flags = ("audio_column_name", "text_column_name", "language", "predict_with_generate")
    old_flags: ClassVar[Mapping[str, str | None]] = {
        "task": "speech_task",
        "forced_decoder_ids": None,  # --language and --task say the same
        "suppress_tokens": None,
    }
    head = "AutoModelForSpeechSeq2Seq"
    data: WrittenFlags
    start: WritingModelFlags
    args: Seq2SeqTrainingArguments

    def learn(self, rows: Mapping[str, Any]) -> None:
        """Check that there are transcripts."""
        check_columns(self, rows, [], [self.data.text_column_name], "--text_column_name")

    def text_of(self, row: Row) -> list[str]:
        """The transcript, as it is written."""
        return [self.clean(row[self.data.text_column_name])]

    def clean(self, text: str) -> str:
        """A transcript, in lower case unless a flag says otherwise."""
        return text.lower() if self.data.do_lower_case else text

    # ---- model ----

    def build_processor(self, texts: Iterable[str]) -> Any:
        """A feature extractor and a tokenizer: the model's, or one that is trained on the transcripts."""
        if self.config.model_type == "whisper":
            self.config.apply_spec_augment = self.start.apply_spec_augment
        name = self.start.tokenizer_name or self.start.model_name_or_path
        if self.start.train_tokenizer:
            tokenizer = train_tokenizer(texts, self.start.vocab_size, TRANSLATORS[0])
            if self.start.model_name_or_path is None:
                fit_configuration(self.config, tokenizer)
        elif name is None:
            raise TaskError("There is no tokenizer: give --tokenizer_name, or train one: --train_tokenizer.")
        else:
            options = {"use_fast": self.start.use_fast_tokenizer}
            tokenizer = load(import_transformers().AutoTokenizer, name, self.start, **options)
        return self.join_processor(tokenizer)

    def adjust(self, model: Any) -> Any:
        """The model, told what to write; what does not learn is marked as such."""
        if model.config.decoder_start_token_id is None:
            raise TaskError("The model's configuration must name the first token: decoder_start_token_id.")
        model = super().adjust(model)
        if self.start.freeze_encoder:
            model.freeze_encoder()
            model.model.encoder.gradient_checkpointing = False
        set_language(model, self.tokenizer, self.data.language, self.data.speech_task)
        return model

    # ---- features ----

    @property
    def gives_mask(self) -> bool:
        """Whether the model is told where the sound ends, so that it hides parts of the sound only."""
        config = self.config
        hides = getattr(config, "apply_spec_augment", False) and getattr(config, "mask_time_prob", 0) > 0
        return bool(config.model_type == "whisper" and hides)

    def features(self, rows: Batch) -> Batch:
        """Sounds as the model takes them, their lengths, and the tokens of transcripts."""
        options = {"sampling_rate": self.extractor.sampling_rate, "return_attention_mask": self.gives_mask}
        sounds = list(self.sounds_of(rows))
        inputs = [self.extractor(sound, **options) for sound in sounds]
        made: Batch = {self.input_name: [row[self.input_name][0] for row in inputs]}
        made["input_length"] = [len(sound) for sound in sounds]
        if self.gives_mask:
            made["attention_mask"] = [row["attention_mask"][0] for row in inputs]
        return {**made, **self.tokens_of(rows)}

    def collator(self) -> Any:
        """Pad sounds and labels; the model adds the first token itself."""
        return SpeechCollator(self.processor, self.config.decoder_start_token_id)

    # ---- measuring ----

    def trainer_options(self, rows: Mapping[str, Any], features: Mapping[str, Any]) -> dict[str, Any]:
        """Errors are measured where texts are written; answers are always written."""
        options = super().trainer_options(rows, features)
        if "test" in features:
            self.args.predict_with_generate = True
        return options if self.args.predict_with_generate else {**options, "compute_metrics": None}

    def heard(self, predictions: Any) -> list[str]:
        """The texts that were written; without generation, the best token at each place."""
        found = predictions[0] if isinstance(predictions, tuple) else predictions
        if np.issubdtype(np.asarray(found).dtype, np.floating):
            found = np.asarray(found).argmax(axis=-1)
        return self.decode(found, skip_special_tokens=True)

    def said(self, labels: Any) -> list[str]:
        """The transcripts."""
        return self.decode(labels, skip_special_tokens=True)
