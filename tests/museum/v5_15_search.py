"""A search for hyperparameters as the documentation of the Trainer shows it: one objective, then two."""

import optuna
import torch
from transformers import BertConfig, BertForSequenceClassification

from footplate import Trainer, TrainingArguments, set_seed

set_seed(0)
generator = torch.Generator().manual_seed(0)
rows = torch.randint(2, 40, (96, 8), generator=generator)
rows[:, 0] = torch.randint(0, 2, (96,), generator=generator)
samples = [{"input_ids": row, "labels": int(row[0])} for row in rows]
train_dataset, eval_dataset = samples[:64], samples[64:]


def model_init(trial):
    config = BertConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=8,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return BertForSequenceClassification(config)


def compute_metrics(eval_pred):
    predictions = eval_pred.predictions.argmax(-1)
    return {"accuracy": float((predictions == eval_pred.label_ids).mean())}


def optuna_hp_space(trial):
    return {
        "learning_rate": trial.suggest_float("learning_rate", 1e-5, 1e-2, log=True),
        "per_device_train_batch_size": trial.suggest_categorical("per_device_train_batch_size", [8, 16, 32]),
    }


def compute_objective(metrics):
    return metrics["eval_loss"], metrics["eval_accuracy"]


training_args = TrainingArguments(
    output_dir="searched",
    num_train_epochs=3,
    eval_strategy="epoch",
    save_strategy="epoch",
    logging_steps=4,
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
)
trainer = Trainer(
    model=None,
    args=training_args,
    train_dataset=train_dataset,
    eval_dataset=eval_dataset,
    compute_metrics=compute_metrics,
    model_init=model_init,
)

best_run = trainer.hyperparameter_search(
    direction="minimize",
    backend="optuna",
    hp_space=optuna_hp_space,
    n_trials=4,
    compute_objective=lambda metrics: metrics["eval_loss"],
    sampler=optuna.samplers.TPESampler(seed=3),
)

best_trials = trainer.hyperparameter_search(
    direction=["minimize", "maximize"],
    backend="optuna",
    hp_space=optuna_hp_space,
    n_trials=4,
    compute_objective=compute_objective,
    sampler=optuna.samplers.TPESampler(seed=3),
)

for name, value in best_run.hyperparameters.items():
    setattr(trainer.args, name, value)
trainer.train()
