"""The settings of a run: the dataclasses, their checks, and the command line."""

from typing import TYPE_CHECKING

from footplate.arguments.accelerator_config import AcceleratorConfig
from footplate.arguments.fields import TrainingArguments
from footplate.homes import load_on_use

if TYPE_CHECKING:
    from footplate.arguments.parser import HfArg, HfArgumentParser
    from footplate.arguments.seq2seq import Seq2SeqTrainingArguments
else:
    __getattr__ = load_on_use(
        __name__,
        {
            "HfArg": "footplate.arguments.parser",
            "HfArgumentParser": "footplate.arguments.parser",
            "Seq2SeqTrainingArguments": "footplate.arguments.seq2seq",
        },
    )

__all__ = ["AcceleratorConfig", "HfArg", "HfArgumentParser", "Seq2SeqTrainingArguments", "TrainingArguments"]
