"""Language modelling in the style of the original's examples: causal, or masked with --masked."""

import math
from dataclasses import dataclass, field
from itertools import chain

import transformers
from datasets import Dataset
from transformers import BertConfig, BertForMaskedLM, HfArgumentParser, TrainingArguments
from transformers.trainer_callback import EarlyStoppingCallback

from small import llama, sentences, tokenizer


@dataclass
class DataArguments:
    block_size: int = field(default=24, metadata={"help": "Tokens in a sample."})
    masked: bool = field(default=False, metadata={"help": "Masked instead of causal."})


def preprocess_logits_for_metrics(logits, labels):
    return (logits[0] if isinstance(logits, tuple) else logits).argmax(dim=-1)


def main():
    data_args, training_args = HfArgumentParser(
        (DataArguments, TrainingArguments)
    ).parse_args_into_dataclasses()
    transformers.set_seed(training_args.seed)
    words = tokenizer(is_bert=data_args.masked)
    texts = Dataset.from_dict({"text": sentences(160)}).train_test_split(0.2, seed=0)
    tokenized = texts.map(lambda rows: words(rows["text"]), batched=True, remove_columns=["text"])

    def group_texts(examples):
        joined = {k: list(chain(*examples[k])) for k in examples}
        total = (len(joined["input_ids"]) // data_args.block_size) * data_args.block_size
        starts = range(0, total, data_args.block_size)
        result = {k: [t[i : i + data_args.block_size] for i in starts] for k, t in joined.items()}
        return result if data_args.masked else {**result, "labels": result["input_ids"].copy()}

    grouped = tokenized.map(group_texts, batched=True)
    if data_args.masked:
        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
        model = BertForMaskedLM(BertConfig(vocab_size=64, max_position_embeddings=64, **sizes))
        collator = transformers.DataCollatorForLanguageModeling(tokenizer=words, mlm_probability=0.15)
    else:
        model, collator = llama(), transformers.default_data_collator

    def compute_metrics(eval_preds):
        preds, labels = eval_preds
        if not data_args.masked:
            labels, preds = labels[:, 1:].reshape(-1), preds[:, :-1].reshape(-1)
        kept = labels != -100
        return {"accuracy": float((preds[kept] == labels[kept]).mean())}

    trainer = transformers.Trainer(
        model=model,
        args=training_args,
        train_dataset=grouped["train"],
        eval_dataset=grouped["test"],
        processing_class=words,
        data_collator=collator,
        compute_metrics=compute_metrics,
        preprocess_logits_for_metrics=preprocess_logits_for_metrics,
        callbacks=[EarlyStoppingCallback(early_stopping_patience=3)],
    )
    result = trainer.train()
    trainer.save_model()
    trainer.log_metrics("train", result.metrics)
    trainer.save_metrics("train", result.metrics)
    trainer.save_state()
    metrics = trainer.evaluate()
    metrics["perplexity"] = math.exp(metrics["eval_loss"])
    trainer.log_metrics("eval", metrics)
    trainer.save_metrics("eval", metrics)


if __name__ == "__main__":
    main()
