"""Group relative policy optimisation with TRL."""

import tempfile

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from small import finish, llama, settings, tokenizer


def many_words(completions, **kwargs):
    """The more different words, the better."""
    return [float(len(set(text.split()))) for text in completions]


folder = tempfile.mkdtemp()
llama().save_pretrained(folder)
tokenizer().save_pretrained(folder)
rows = Dataset.from_dict({"prompt": ["the cat sees", "a dog likes", "my horse finds", "one bird hears"] * 6})
finish(
    GRPOTrainer(
        model=folder,
        reward_funcs=many_words,
        args=GRPOConfig(
            **settings(
                model_init_kwargs={"dtype": "float32"}, num_generations=4, max_completion_length=8, beta=0.1
            )
        ),
        train_dataset=rows,
        eval_dataset=rows.select(range(4)),
        processing_class=tokenizer(),
    )
)
