"""Train a classifier and share it: the end of an example script, and the calls that the documentation shows."""

import torch
from transformers import BertConfig, BertForSequenceClassification

from footplate import Trainer, TrainerCallback, TrainingArguments, set_seed


class CountPushes(TrainerCallback):
    def __init__(self):
        self.pushes = 0

    def on_push_begin(self, args, state, control, **kwargs):
        self.pushes += 1


set_seed(0)
config = BertConfig(
    vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, num_labels=2
)
rows = [{"input_ids": [i % 20, (i * 7) % 20, 3], "labels": i % 2} for i in range(32)]


def compute_metrics(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


training_args = TrainingArguments(
    output_dir="my-awesome-model",
    learning_rate=2e-3,
    per_device_train_batch_size=8,
    num_train_epochs=1,
    eval_strategy="epoch",
    save_strategy="epoch",
    push_to_hub=True,
    hub_strategy="checkpoint",
    hub_model_id="me/shared",
    hub_private_repo=True,
    report_to="none",
    use_cpu=True,
)
pushes = CountPushes()
trainer = Trainer(
    model=BertForSequenceClassification(config),
    args=training_args,
    train_dataset=rows,
    eval_dataset=rows,
    compute_metrics=compute_metrics,
    callbacks=[pushes],
)
trainer.train()
trainer._finish_current_push()
metrics = trainer.evaluate()

kwargs = {"finetuned_from": "google-bert/bert-base-cased", "tasks": "text-classification"}
kwargs["language"] = "en"
kwargs["dataset_tags"] = "glue"
kwargs["dataset_args"] = "sst2"
kwargs["dataset"] = "GLUE SST2"
commit = trainer.push_to_hub(**kwargs)

torch.nn.init.zeros_(trainer.model.classifier.bias)
future = trainer.push_to_hub("Bias of zero", blocking=False, **kwargs)
later = future.result()
