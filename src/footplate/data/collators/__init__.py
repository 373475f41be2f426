"""From a list of samples to a batch: one collator per kind of training, in PyTorch or NumPy."""

from footplate.data.collators.default import (
    DataCollator,
    DataCollatorMixin,
    DefaultDataCollator,
    default_data_collator,
)
from footplate.data.collators.flattening import DataCollatorWithFlattening
from footplate.data.collators.language_modeling import (
    DataCollatorForLanguageModeling,
    DataCollatorForWholeWordMask,
)
from footplate.data.collators.multiple_choice import DataCollatorForMultipleChoice
from footplate.data.collators.padding import DataCollatorWithPadding
from footplate.data.collators.permutation import DataCollatorForPermutationLanguageModeling
from footplate.data.collators.seq2seq import DataCollatorForSeq2Seq
from footplate.data.collators.token_classification import DataCollatorForTokenClassification

__all__ = [
    "DataCollator",
    "DataCollatorForLanguageModeling",
    "DataCollatorForMultipleChoice",
    "DataCollatorForPermutationLanguageModeling",
    "DataCollatorForSeq2Seq",
    "DataCollatorForTokenClassification",
    "DataCollatorForWholeWordMask",
    "DataCollatorMixin",
    "DataCollatorWithFlattening",
    "DataCollatorWithPadding",
    "DefaultDataCollator",
    "default_data_collator",
]
