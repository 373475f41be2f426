"""Decides by name what decays, brings an optimizer class, and evaluates several sets at once."""

import torch
from transformers import BertConfig, BertForSequenceClassification

from footplate import Trainer, TrainingArguments, set_seed


class NoEmbeddingDecayTrainer(Trainer):
    def get_decay_parameter_names(self, model) -> list[str]:
        names = super().get_decay_parameter_names(model)
        return [name for name in names if "embeddings" not in name]

    def create_optimizer(self, model=None):
        optimizer = super().create_optimizer(model)
        self.group_sizes = [len(group["params"]) for group in optimizer.param_groups]
        return optimizer


def make_rows(low, high, seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(low, high, (32, 6), generator=generator)
    return [{"input_ids": row.tolist(), "labels": int(row[0] >= 10)} for row in ids]


args = TrainingArguments(
    output_dir="decay",
    eval_strategy="steps",
    eval_steps=8,
    max_steps=24,
    per_device_train_batch_size=8,
    learning_rate=1e-2,
    weight_decay=0.1,
    lr_scheduler_type="constant",
    train_sampling_strategy="sequential",
    logging_steps=4,
    logging_first_step=True,
    save_strategy="no",
    eval_on_start=True,
    report_to="none",
    use_cpu=True,
)
set_seed(args.seed)
model = BertForSequenceClassification(
    BertConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=8,
    )
)
trainer = NoEmbeddingDecayTrainer(
    model=model,
    args=args,
    train_dataset=make_rows(1, 20, seed=0),
    eval_dataset={"low": make_rows(1, 14, seed=1), "high": make_rows(6, 20, seed=2)},
    optimizer_cls_and_kwargs=(torch.optim.NAdam, {"lr": args.learning_rate, "betas": (0.8, 0.95)}),
)
trainer.train()
