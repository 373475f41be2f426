"""A small student learns from a larger teacher; the teacher is a field of the trainer."""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from transformers import BertConfig, BertForSequenceClassification

from footplate import Trainer, TrainingArguments, set_seed


@dataclass
class DistillationArguments(TrainingArguments):
    alpha: float = field(default=0.5, metadata={"help": "Share of the labels in the loss."})
    temperature: float = field(default=2.0, metadata={"help": "Softens both distributions."})


class DistillationTrainer(Trainer):
    def __init__(self, *args, teacher=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.teacher = teacher.to(self.args.device).eval()
        self.model_accepts_loss_kwargs = False

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        with torch.no_grad():
            soft = self.teacher(**{k: v for k, v in inputs.items() if k != "labels"}).logits
        t = self.args.temperature
        distance = F.kl_div(
            F.log_softmax(outputs.logits / t, dim=-1), F.softmax(soft / t, dim=-1), reduction="batchmean"
        )
        loss = self.args.alpha * outputs.loss + (1 - self.args.alpha) * t**2 * distance
        return (loss, outputs) if return_outputs else loss


def build_model(hidden_size):
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=20,
            hidden_size=hidden_size,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=2 * hidden_size,
            max_position_embeddings=8,
        )
    )


def make_rows(count, seed):
    ids = torch.randint(1, 20, (count, 6), generator=torch.Generator().manual_seed(seed))
    return [{"input_ids": row.tolist(), "labels": int(row[0] >= 10)} for row in ids]


settings = dict(
    num_train_epochs=5,
    per_device_train_batch_size=8,
    learning_rate=1e-2,
    logging_steps=8,
    save_strategy="no",
    report_to="none",
    use_cpu=True,
)
set_seed(0)
teacher = build_model(32)
Trainer(model=teacher, args=TrainingArguments("teacher", **settings), train_dataset=make_rows(96, seed=0)).train()

trainer = DistillationTrainer(
    model=build_model(8),
    args=DistillationArguments(
        output_dir="student",
        eval_strategy="epoch",
        gradient_accumulation_steps=2,
        alpha=0.3,
        label_smoothing_factor=0.0,
        **settings,
    ),
    train_dataset=make_rows(96, seed=0),
    eval_dataset=make_rows(40, seed=1),
    teacher=teacher,
    compute_metrics=lambda p: {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())},
)
trainer.train()
