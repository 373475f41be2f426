"""Language modelling on grouped texts, resumed by hand: accuracy from argmax'ed logits, perplexity at the end."""

import math
from itertools import chain

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from footplate import (
    Trainer,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
    get_last_checkpoint,
    set_seed,
)

LINES = [
    "the engine driver stands on the footplate",
    "the fireman shovels coal into the firebox",
    "the guard waves a green flag",
    "the train leaves the station on time",
] * 40

backend = Tokenizer(models.WordLevel(unk_token="<unk>"))
backend.pre_tokenizer = pre_tokenizers.Whitespace()
backend.train_from_iterator(LINES, trainers.WordLevelTrainer(special_tokens=["<unk>", "<eos>"]))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", eos_token="<eos>")

block_size = 16
raw = Dataset.from_dict({"text": [line + " <eos>" for line in LINES]})
tokenized = raw.map(lambda rows: tokenizer(rows["text"]), batched=True, remove_columns=["text"])


def group_texts(examples):
    concatenated = {k: list(chain(*examples[k])) for k in examples.keys()}
    total_length = (len(concatenated["input_ids"]) // block_size) * block_size
    result = {
        k: [t[i : i + block_size] for i in range(0, total_length, block_size)] for k, t in concatenated.items()
    }
    result["labels"] = result["input_ids"].copy()
    return result


lm_dataset = tokenized.map(group_texts, batched=True).train_test_split(test_size=0.2, seed=0)


def preprocess_logits_for_metrics(logits, labels):
    if isinstance(logits, tuple):
        logits = logits[0]
    return logits.argmax(dim=-1)


def compute_metrics(eval_preds):
    preds, labels = eval_preds
    labels = labels[:, 1:].reshape(-1)
    preds = preds[:, :-1].reshape(-1)
    return {"accuracy": float((preds == labels).mean())}


class NextWordCallback(TrainerCallback):
    def __init__(self, prompt):
        self.prompt = prompt
        self.words = []

    def on_evaluate(self, args, state, control, model=None, tokenizer=None, **kwargs):
        ids = torch.tensor([tokenizer(self.prompt)["input_ids"]])
        with torch.no_grad():
            logits = model(input_ids=ids).logits
        self.words.append(tokenizer.decode(logits[0, -1].argmax().item()))


next_word = NextWordCallback("the guard waves a")


def build_trainer(max_steps):
    training_args = TrainingArguments(
        output_dir="clm",
        overwrite_output_dir=False,
        do_train=True,
        do_eval=True,
        evaluation_strategy="steps",
        eval_steps=15,
        save_steps=15,
        save_total_limit=1,
        logging_steps=5,
        max_steps=max_steps,
        per_device_train_batch_size=8,
        learning_rate=1e-2,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=3,
        gradient_checkpointing=False,
        include_tokens_per_second=True,
        report_to="none",
        no_cuda=True,
    )
    set_seed(training_args.seed)
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=1, n_head=2, n_positions=32)
    return Trainer(
        model=GPT2LMHeadModel(config),
        args=training_args,
        train_dataset=lm_dataset["train"],
        eval_dataset=lm_dataset["test"],
        tokenizer=tokenizer,
        data_collator=default_data_collator,
        compute_metrics=compute_metrics,
        preprocess_logits_for_metrics=preprocess_logits_for_metrics,
        callbacks=[next_word],
    )


first = build_trainer(max_steps=15)
first.train()

trainer = build_trainer(max_steps=45)
last_checkpoint = get_last_checkpoint(trainer.args.output_dir)
train_result = trainer.train(resume_from_checkpoint=last_checkpoint)
trainer.save_model()
metrics = train_result.metrics
metrics["train_samples"] = len(lm_dataset["train"])
trainer.log_metrics("train", metrics)
trainer.save_metrics("train", metrics)
trainer.save_state()

metrics = trainer.evaluate()
try:
    perplexity = math.exp(metrics["eval_loss"])
except OverflowError:
    perplexity = float("inf")
metrics["perplexity"] = perplexity
trainer.log_metrics("eval", metrics)
trainer.save_metrics("eval", metrics)
