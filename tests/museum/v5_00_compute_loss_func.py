"""Fine-tuning with a focal loss handed over as a function, and a tokenizer that pads."""

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from footplate import DataCollatorWithPadding, Trainer, TrainingArguments, set_seed

ADJECTIVES = {"good": 1, "great": 1, "lovely": 1, "bad": 0, "awful": 0, "dull": 0}
words = ["[PAD]", "[UNK]", "film", "really", "very", *ADJECTIVES]
backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
backend.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]")

set_seed(42)
rng = np.random.default_rng(0)
texts, labels = [], []
for _ in range(120):
    adjective = str(rng.choice(list(ADJECTIVES)))
    texts.append("really very " * int(rng.integers(0, 3)) + adjective + " film")
    labels.append(ADJECTIVES[adjective])
dataset = Dataset.from_dict({"text": texts, "labels": labels})
dataset = dataset.map(lambda row: tokenizer(row["text"], return_token_type_ids=False)).train_test_split(0.2, seed=0)


def focal_loss(outputs, labels, num_items_in_batch=None, gamma=2.0):
    log_probabilities = torch.log_softmax(outputs.logits, dim=-1)
    chosen = log_probabilities.gather(1, labels[:, None]).squeeze(1)
    losses = -((1 - chosen.exp()) ** gamma) * chosen
    return losses.sum() / num_items_in_batch if num_items_in_batch is not None else losses.mean()


def compute_metrics(eval_pred):
    logits, labels = eval_pred
    return {"accuracy": float((logits.argmax(axis=-1) == labels).mean())}


trainer = Trainer(
    model=BertForSequenceClassification(
        BertConfig(
            vocab_size=len(words),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=16,
        )
    ),
    args=TrainingArguments(
        output_dir="focal",
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_steps=4,
        num_train_epochs=6,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=3,
        learning_rate=5e-3,
        warmup_steps=0.1,
        lr_scheduler_type="cosine_with_min_lr",
        lr_scheduler_kwargs={"min_lr": 1e-5},
        load_best_model_at_end=True,
        metric_for_best_model="accuracy",
        report_to="none",
        use_cpu=True,
    ),
    train_dataset=dataset["train"],
    eval_dataset=dataset["test"],
    processing_class=tokenizer,
    data_collator=DataCollatorWithPadding(tokenizer),
    compute_loss_func=focal_loss,
    compute_metrics=compute_metrics,
)
trainer.train()
trainer.save_model("focal/final")
