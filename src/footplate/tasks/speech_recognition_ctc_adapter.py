"""Teach a speech model of many languages (MMS) a further one: only small adapter layers learn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from footplate import HfArg, TrainerCallback
from footplate.tasks import TaskError
from footplate.tasks.common.letters import build_letter_tokenizer, number_letters
from footplate.tasks.common.models import import_transformers, load
from footplate.tasks.speech_recognition_ctc import SETTINGS, CtcFlags, CtcModelFlags, SpeechRecognitionCtc

# settings that the original's script for adapters leaves as the model has them
LEFT = {
    "attention_dropout",
    "activation_dropout",
    "feat_proj_dropout",
    "hidden_dropout",
    "ctc_zero_infinity",
    "add_adapter",
}


@dataclass
class AdapterFlags(CtcFlags):
    """Which language is learned."""

    target_language: str | None = HfArg(default=None, help="The language to learn, such as tur.")
    overwrite_lang_vocab: bool = HfArg(
        default=False, help="Make the letters of that language anew, if the tokenizer has some."
    )


@dataclass
class AdapterModelFlags(CtcModelFlags):
    """How large the adapter layers are."""

    adapter_attn_dim: int = HfArg(default=16, help="Size of the adapter layers.")


class SpeechRecognitionCtcAdapter(SpeechRecognitionCtc):
    """Sounds and transcripts in one language, for layers of its own."""

    summary = "Teach a speech model of many languages (MMS) a further one with adapter layers."
    example = (
        "--model_name_or_path MODEL --target_language tur --train_file train.csv --validation_file dev.csv "
        "--do_train --do_eval --output_dir out"
    )
    data_flags = AdapterFlags
    model_flags = AdapterModelFlags
    first_flags = ("target_language", *SpeechRecognitionCtc.first_flags)
    data: AdapterFlags
    start: AdapterModelFlags

    @property
    def language(self) -> str:
        """The language to learn."""
        if self.data.target_language is None:
            raise TaskError("--target_language is missing: name the language to learn, such as tur.")
        return self.data.target_language

    def configure(self) -> dict[str, Any]:
        """Settings of training, and the size of the adapter layers."""
        self.start.ignore_mismatched_sizes = True  # the head is made anew for the letters of the language
        return {
            name: getattr(self.start, name) for name in (*SETTINGS, "adapter_attn_dim") if name not in LEFT
        }

    def load_tokenizer(self) -> Any:
        """The tokenizer that is named, with the letters of the language beside those of others."""
        language, name = self.language, self.start.tokenizer_name
        letters = number_letters(self.letters, self.data)
        if name is None and self.args.do_train:
            return build_letter_tokenizer({language: letters}, self.data, self.args, language)
        name = name or self.start.model_name_or_path
        tokenizer = load(import_transformers().AutoTokenizer, str(name), self.start)
        if getattr(tokenizer, "target_lang", None) is None:
            raise TaskError(f"The tokenizer of {name} has no languages. Leave --tokenizer_name out.")
        if language in tokenizer.vocab and not self.data.overwrite_lang_vocab:
            tokenizer.set_target_lang(language)
            return tokenizer
        return build_letter_tokenizer({**tokenizer.vocab, language: letters}, self.data, self.args, language)

    def adjust(self, model: Any) -> Any:
        """The model with new adapter layers and a new head, which alone learn."""
        if self.args.do_train:
            model.init_adapter_layers()
        model.freeze_base_model()
        for weight in model._get_adapters().values():
            weight.requires_grad = True
        return model

    def trainer_options(self, *parts: Any) -> dict[str, Any]:
        """Write the adapter layers by themselves as well."""
        return {**super().trainer_options(*parts), "callbacks": [AdapterCallback(self.language)]}


class AdapterCallback(TrainerCallback):
    """Writes the adapter layers of a language to a file of their own, beside the model.

    Args:
        language: The language.
    """

    def __init__(self, language: str) -> None:
        self.language = language

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Write them when training ends."""
        from safetensors.torch import save_file

        if args.should_save:
            weights = {name: weight.detach().cpu() for name, weight in model._get_adapters().items()}
            file = Path(args.output_dir) / f"adapter.{self.language}.safetensors"
            save_file(weights, file, metadata={"format": "pt"})
