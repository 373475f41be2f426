"""Kahneman-Tversky optimisation with TRL."""

from datasets import Dataset
from trl import KTOConfig, KTOTrainer

from small import finish, llama, sentences, settings, tokenizer

rows = Dataset.from_dict(
    {
        "prompt": ["say something :"] * 32,
        "completion": sentences(32, 1),
        "label": [number % 2 == 0 for number in range(32)],
    }
)
finish(
    KTOTrainer(
        model=llama(),
        ref_model=llama(seed=1),
        args=KTOConfig(**settings(max_length=48)),
        train_dataset=rows,
        eval_dataset=rows.select(range(8)),
        processing_class=tokenizer(),
    )
)
