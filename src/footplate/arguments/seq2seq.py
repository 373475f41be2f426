"""The settings of a run that generates text in evaluations."""

# ruff: noqa: RUF009 (`opt` returns a dataclass field, made anew at each call)
# no `from __future__ import annotations`: a subclass in another module could not resolve the types as text

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from footplate.arguments.fields import TrainingArguments, opt

if TYPE_CHECKING:
    GenerationSettings = Any
else:
    GenerationSettings = str | None  # what a parser gives; a script may also give an object


@dataclass
class Seq2SeqTrainingArguments(TrainingArguments):
    """`TrainingArguments`, and how to generate."""

    sortish_sampler: bool = opt(False, "Put samples of similar length into a batch.", section="Generation")
    predict_with_generate: bool = opt(
        False, "Generate text in evaluations, for metrics such as ROUGE and BLEU."
    )
    generation_max_length: int | None = opt(
        None, "Most tokens of a generated text; unset means the model's setting."
    )
    generation_num_beams: int | None = opt(None, "Beams of the beam search; unset means the model's setting.")
    generation_config: GenerationSettings = opt(
        None, "A GenerationConfig, or its name or path.", metavar="PATH"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sortish_sampler and self.train_sampling_strategy == "random":
            self.train_sampling_strategy = "group_by_length"
