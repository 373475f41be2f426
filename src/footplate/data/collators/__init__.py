"""From a list of samples to a batch: one collator per kind of training, in PyTorch or NumPy."""

from typing import TYPE_CHECKING

from footplate.data.collators.default import (
    DataCollator,
    DataCollatorMixin,
    DefaultDataCollator,
    default_data_collator,
)
from footplate.homes import load_on_use

if TYPE_CHECKING:
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
else:
    __getattr__ = load_on_use(
        __name__,
        {
            "DataCollatorForLanguageModeling": "footplate.data.collators.language_modeling",
            "DataCollatorForMultipleChoice": "footplate.data.collators.multiple_choice",
            "DataCollatorForPermutationLanguageModeling": "footplate.data.collators.permutation",
            "DataCollatorForSeq2Seq": "footplate.data.collators.seq2seq",
            "DataCollatorForTokenClassification": "footplate.data.collators.token_classification",
            "DataCollatorForWholeWordMask": "footplate.data.collators.language_modeling",
            "DataCollatorWithFlattening": "footplate.data.collators.flattening",
            "DataCollatorWithPadding": "footplate.data.collators.padding",
        },
    )

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
