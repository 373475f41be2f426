"""Several labels per text: binary cross-entropy instead of the model's own loss."""

import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

from footplate import EvalPrediction, Trainer, TrainingArguments


class MultilabelTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs.logits
        loss_fct = nn.BCEWithLogitsLoss()
        loss = loss_fct(
            logits.view(-1, self.model.config.num_labels),
            labels.float().view(-1, self.model.config.num_labels),
        )
        return (loss, outputs) if return_outputs else loss


class ContainsToken(torch.utils.data.Dataset):
    """Label k is 1 where token k + 1 occurs."""

    def __init__(self, size, seed):
        generator = torch.Generator().manual_seed(seed)
        self.input_ids = torch.randint(1, 8, (size, 5), generator=generator)

    def __len__(self):
        return len(self.input_ids)

    def __getitem__(self, index):
        ids = self.input_ids[index]
        return {"input_ids": ids, "labels": torch.stack([(ids == k).any() for k in (1, 2, 3)]).float()}


def compute_metrics(p: EvalPrediction):
    preds = p.predictions[0] if isinstance(p.predictions, tuple) else p.predictions
    return {"label_accuracy": ((preds > 0) == (p.label_ids > 0.5)).astype(float).mean().item()}


def model_init():
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=8,
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=8,
            num_labels=3,
        )
    )


def train(per_device_batch_size, accumulation):
    trainer = MultilabelTrainer(
        model_init=model_init,
        args=TrainingArguments(
            "multilabel",
            per_device_train_batch_size=per_device_batch_size,
            gradient_accumulation_steps=accumulation,
            per_device_eval_batch_size=64,
            learning_rate=5e-3,
            warmup_steps=5,
            max_steps=60,
            logging_steps=1,
            save_steps=1000,
            no_cuda=True,
            seed=1,
        ),
        train_dataset=ContainsToken(256, seed=0),
        eval_dataset=ContainsToken(64, seed=1),
        compute_metrics=compute_metrics,
    )
    trainer.train()
    return trainer


whole_batches = train(16, accumulation=1)
trainer = train(4, accumulation=4)
metrics = trainer.evaluate()
