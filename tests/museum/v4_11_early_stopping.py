"""Fine-tuning as a notebook of the time had it: metrics each epoch, stop early, keep the best."""

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification

from footplate import EarlyStoppingCallback, IntervalStrategy, Trainer, TrainingArguments


class Encoded(Dataset):
    def __init__(self, encodings, labels):
        self.encodings = encodings
        self.labels = labels

    def __getitem__(self, idx):
        item = {key: torch.tensor(val[idx]) for key, val in self.encodings.items()}
        item["labels"] = torch.tensor(self.labels[idx])
        return item

    def __len__(self):
        return len(self.labels)


def encode(count, seed):
    rng = np.random.RandomState(seed)
    ids = rng.randint(3, 20, size=(count, 6))
    labels = (ids[:, 0] > 11).astype(int)
    return Encoded({"input_ids": ids.tolist(), "attention_mask": np.ones_like(ids).tolist()}, labels.tolist())


def model_init():
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=20,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=8,
        )
    )


def compute_metrics(eval_pred):
    logits, labels = eval_pred
    predictions = np.argmax(logits, axis=-1)
    return {"accuracy": float((predictions == labels).mean()), "positives": int(predictions.sum())}


training_args = TrainingArguments(
    output_dir="best",
    evaluation_strategy=IntervalStrategy.EPOCH,
    save_strategy="epoch",
    logging_strategy="epoch",
    logging_dir="./logs",
    save_total_limit=1,
    learning_rate=1e-2,
    per_device_train_batch_size=32,
    per_device_eval_batch_size=64,
    num_train_epochs=30,
    label_smoothing_factor=0.1,
    load_best_model_at_end=True,
    metric_for_best_model="accuracy",
    greater_is_better=True,
    push_to_hub=False,
    push_to_hub_model_id=None,
    no_cuda=True,
)
trainer = Trainer(
    model_init=model_init,
    args=training_args,
    train_dataset=encode(256, seed=0),
    eval_dataset=encode(64, seed=1),
    compute_metrics=compute_metrics,
    callbacks=[EarlyStoppingCallback(early_stopping_patience=3, early_stopping_threshold=0.001)],
)
trainer.train()
metrics = trainer.evaluate()
