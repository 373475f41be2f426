"""The settings of a run: the dataclasses, their checks, and the command line."""

from footplate.arguments.accelerator_config import AcceleratorConfig
from footplate.arguments.fields import TrainingArguments
from footplate.arguments.parser import HfArg, HfArgumentParser
from footplate.arguments.seq2seq import Seq2SeqTrainingArguments

__all__ = ["AcceleratorConfig", "HfArg", "HfArgumentParser", "Seq2SeqTrainingArguments", "TrainingArguments"]
