"""footplate: the Hugging Face Trainer API as a small, fast, readable library."""

from footplate.arguments import AcceleratorConfig, HfArg, HfArgumentParser, Seq2SeqTrainingArguments, TrainingArguments
from footplate.trainer import Trainer
