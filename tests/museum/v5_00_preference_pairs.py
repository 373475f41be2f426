"""A reward model on pairs: its own signature columns, collator, loss and prediction step."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForSequenceClassification

from footplate import Trainer, TrainingArguments, set_seed


@dataclass
class PairCollator:
    pad_token_id: int = 0

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        batch = {}
        for side in ("chosen", "rejected"):
            rows = [torch.tensor(feature[f"{side}_ids"]) for feature in features]
            ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.pad_token_id)
            batch[f"{side}_ids"], batch[f"{side}_mask"] = ids, (ids != self.pad_token_id).long()
        batch["margin"] = torch.tensor([feature["margin"] for feature in features])
        return batch


class RewardTrainer(Trainer):
    def _set_signature_columns_if_needed(self):
        if self._signature_columns is None:
            self._signature_columns = ["chosen_ids", "rejected_ids", "margin"]

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        chosen = model(input_ids=inputs["chosen_ids"], attention_mask=inputs["chosen_mask"]).logits
        rejected = model(input_ids=inputs["rejected_ids"], attention_mask=inputs["rejected_mask"]).logits
        loss = -nn.functional.logsigmoid(chosen - rejected - inputs["margin"][:, None]).mean()
        return (loss, {"chosen": chosen, "rejected": rejected}) if return_outputs else loss

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad():
            loss, outputs = self.compute_loss(model, inputs, return_outputs=True)
        if prediction_loss_only:
            return loss.detach(), None, None
        logits = torch.stack(tuple(outputs.values())).squeeze(-1).softmax(dim=0).T
        return loss.detach(), logits, torch.zeros(logits.shape[0], dtype=torch.long)


def make_pairs(count, seed):
    generator = torch.Generator().manual_seed(seed)
    pairs = []
    for i in range(count):
        length = int(torch.randint(4, 9, (1,), generator=generator))
        row = torch.randint(3, 20, (length,), generator=generator).tolist()
        pairs.append({"chosen_ids": [*row, 1], "rejected_ids": [*row, 2], "margin": 0.1, "source": f"pair {i}"})
    return pairs


def compute_metrics(eval_pred):
    predictions, _ = eval_pred
    return {"accuracy": float((predictions[:, 0] > predictions[:, 1]).mean())}


args = TrainingArguments(
    output_dir="reward",
    eval_strategy="steps",
    eval_steps=10,
    max_steps=30,
    per_device_train_batch_size=8,
    per_device_eval_batch_size=8,
    learning_rate=1e-2,
    logging_steps=5,
    save_strategy="no",
    report_to="none",
    use_cpu=True,
)
set_seed(args.seed)
model = LlamaForSequenceClassification(
    LlamaConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        num_labels=1,
        pad_token_id=0,
    )
)
trainer = RewardTrainer(
    model=model,
    args=args,
    data_collator=PairCollator(),
    train_dataset=make_pairs(64, seed=0),
    eval_dataset=make_pairs(20, seed=1),
    compute_metrics=compute_metrics,
)
trainer.train()
metrics = trainer.evaluate()
