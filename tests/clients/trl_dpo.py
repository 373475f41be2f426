"""Direct preference optimisation with TRL."""

from datasets import Dataset
from trl import DPOConfig, DPOTrainer

from small import finish, llama, sentences, settings, tokenizer

good, bad = sentences(32, 1), sentences(32, 2)
rows = Dataset.from_dict({"prompt": ["say something :"] * 32, "chosen": good, "rejected": bad})
finish(
    DPOTrainer(
        model=llama(),
        ref_model=llama(seed=1),
        args=DPOConfig(**settings(max_length=48)),
        train_dataset=rows,
        eval_dataset=rows.select(range(8)),
        processing_class=tokenizer(),
    )
)
