"""A reward model with TRL."""

from datasets import Dataset
from trl import RewardConfig, RewardTrainer

from small import finish, llama, sentences, settings, tokenizer

rows = Dataset.from_dict({"chosen": sentences(32, 1), "rejected": sentences(32, 2)})
finish(
    RewardTrainer(
        model=llama(is_reward=True),
        args=RewardConfig(**settings(max_length=48)),
        train_dataset=rows,
        eval_dataset=rows.select(range(8)),
        processing_class=tokenizer(),
    )
)
