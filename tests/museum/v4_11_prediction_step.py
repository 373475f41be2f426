"""A tagger whose evaluation predicts the tags itself, and a collator that pads tags too."""

import math
from typing import Any, Dict, List, Optional, Tuple, Union

import numpy as np
import torch
from torch import nn

from footplate import EvalPrediction, Trainer, TrainingArguments, nested_detach, set_seed


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 16, padding_idx=0)
        self.rnn = nn.GRU(16, 16, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 3)

    def forward(self, tokens, tags=None):
        logits = self.head(self.rnn(self.embedding(tokens))[0])
        loss = None
        if tags is not None:
            loss = nn.functional.cross_entropy(logits.transpose(1, 2), tags, ignore_index=-100)
        return {"loss": loss, "logits": logits}


class TaggingTrainer(Trainer):
    num_steps_seen = 0

    def prediction_step(
        self,
        model: nn.Module,
        inputs: Dict[str, Union[torch.Tensor, Any]],
        prediction_loss_only: bool,
        ignore_keys: Optional[List[str]] = None,
    ) -> Tuple[Optional[torch.Tensor], Optional[torch.Tensor], Optional[torch.Tensor]]:
        self.num_steps_seen += 1
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad():
            loss, outputs = self.compute_loss(model, inputs, return_outputs=True)
            loss = loss.mean().detach()
        if prediction_loss_only:
            return (loss, None, None)
        best_tags = nested_detach(outputs["logits"]).argmax(dim=-1)
        return (loss, best_tags, nested_detach(inputs["tags"]))


def make_sentences(count, seed):
    rng = np.random.RandomState(seed)
    sentences = []
    for _ in range(count):
        tokens = rng.randint(1, 20, size=rng.randint(3, 9))
        tags = np.concatenate([[0], tokens[:-1] % 3])  # the tag follows from the word before
        sentences.append({"tokens": tokens.tolist(), "tags": tags.tolist(), "text": "not for the model"})
    return sentences


def collate(features: List[Dict[str, Any]]) -> Dict[str, torch.Tensor]:
    longest = max(len(feature["tokens"]) for feature in features)
    tokens = [feature["tokens"] + [0] * (longest - len(feature["tokens"])) for feature in features]
    tags = [feature["tags"] + [-100] * (longest - len(feature["tags"])) for feature in features]
    return {"tokens": torch.tensor(tokens), "tags": torch.tensor(tags)}


def compute_metrics(p: EvalPrediction) -> Dict[str, float]:
    counted = p.label_ids != -100
    return {"accuracy": float((p.predictions == p.label_ids)[counted].mean())}


args = TrainingArguments(
    output_dir="tagger",
    label_names=["tags"],
    evaluation_strategy="epoch",
    num_train_epochs=8,
    per_device_train_batch_size=16,
    per_device_eval_batch_size=24,
    learning_rate=2e-2,
    lr_scheduler_type="cosine",
    logging_steps=8,
    save_strategy="no",
    no_cuda=True,
)
set_seed(args.seed)
eval_sentences = make_sentences(60, seed=1)
trainer = TaggingTrainer(
    model=Tagger(),
    args=args,
    data_collator=collate,
    train_dataset=make_sentences(128, seed=0),
    eval_dataset=eval_sentences,
    compute_metrics=compute_metrics,
)
trainer.train()
predictions, label_ids, metrics = trainer.predict(eval_sentences)
expected_eval_steps = math.ceil(60 / 24)
