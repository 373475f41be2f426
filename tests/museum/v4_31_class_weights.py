"""Rare classes: a weighted loss, and a sampler and loader that draw them more often."""

import torch
from torch import nn
from torch.utils.data import DataLoader, WeightedRandomSampler
from transformers import BertConfig, BertForSequenceClassification

from footplate import Trainer, TrainingArguments, seed_worker, set_seed


class ImbalancedTrainer(Trainer):
    def __init__(self, class_weights, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.class_weights = torch.tensor(class_weights, dtype=torch.float).to(self.args.device)
        self.drawn = []

    def compute_loss(self, model, inputs, return_outputs=False):
        labels = inputs.get("labels")
        outputs = model(**inputs)
        logits = outputs.get("logits")
        if model.training:
            self.drawn.extend(labels.tolist())
        loss_fct = nn.CrossEntropyLoss(weight=self.class_weights)
        loss = loss_fct(logits.view(-1, self.model.config.num_labels), labels.view(-1))
        return (loss, outputs) if return_outputs else loss

    def _get_train_sampler(self):
        labels = torch.tensor([row["labels"] for row in self.train_dataset])
        weights = 1.0 / torch.bincount(labels).float()[labels]
        return WeightedRandomSampler(weights, num_samples=len(labels), replacement=True)

    def get_train_dataloader(self) -> DataLoader:
        if self.train_dataset is None:
            raise ValueError("Trainer: training requires a train_dataset.")
        train_dataset = self.train_dataset
        data_collator = self._get_collator_with_removed_columns(self.data_collator, description="training")
        dataloader_params = {
            "batch_size": self._train_batch_size,
            "collate_fn": data_collator,
            "num_workers": self.args.dataloader_num_workers,
            "pin_memory": self.args.dataloader_pin_memory,
        }
        if not isinstance(train_dataset, torch.utils.data.IterableDataset):
            dataloader_params["sampler"] = self._get_train_sampler()
            dataloader_params["drop_last"] = self.args.dataloader_drop_last
            dataloader_params["worker_init_fn"] = seed_worker if self.args.dataloader_num_workers else None
        return self.accelerator.prepare(DataLoader(train_dataset, **dataloader_params))


set_seed(11)
ids = torch.randint(2, 30, (200, 6), generator=torch.Generator().manual_seed(0))
rows = [{"input_ids": row.tolist(), "labels": int(row[0] >= 27), "weight_note": 1.0} for row in ids]
args = TrainingArguments(
    output_dir="imbalanced",
    evaluation_strategy="epoch",
    save_strategy="epoch",
    save_total_limit=1,
    num_train_epochs=4,
    per_device_train_batch_size=16,
    per_device_eval_batch_size=32,
    learning_rate=5e-3,
    logging_steps=5,
    include_inputs_for_metrics=True,
    ddp_timeout=1800,
    dataloader_pin_memory=False,
    report_to="none",
    use_cpu=True,
)


def compute_metrics(eval_pred):
    predictions, labels, inputs = eval_pred
    hits = (predictions.argmax(-1) == 1) & (labels == 1)
    return {"recall_of_rare": float(hits.sum() / (labels == 1).sum()), "input_width": inputs.shape[1]}


trainer = ImbalancedTrainer(
    [1.0, 2.0],
    model=BertForSequenceClassification(
        BertConfig(
            vocab_size=30,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=8,
        )
    ),
    args=args,
    train_dataset=rows,
    eval_dataset=rows[:64],
    compute_metrics=compute_metrics,
)
trainer.train()
metrics = trainer.evaluate()
