"""Translation in the style of the original's examples: reverse the words of a sentence."""

import numpy as np
import torch
from datasets import Dataset
from transformers import (
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    T5Config,
    T5ForConditionalGeneration,
    set_seed,
)

from small import sentences, tokenizer


def main():
    (training_args,) = HfArgumentParser((Seq2SeqTrainingArguments,)).parse_args_into_dataclasses()
    set_seed(training_args.seed)
    words = tokenizer()
    texts = sentences(64)
    turned = [" ".join(reversed(text.split())) for text in texts]
    rows = Dataset.from_dict({"source": texts, "target": turned}).train_test_split(0.25, seed=0)

    def preprocess_function(examples):
        inputs = words(examples["source"], max_length=24, truncation=True)
        inputs["labels"] = [
            [*ids, words.eos_token_id] for ids in words(text_target=examples["target"])["input_ids"]
        ]
        return inputs

    rows = rows.map(preprocess_function, batched=True, remove_columns=["source", "target"])
    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    ids = {"pad_token_id": 0, "eos_token_id": 3, "decoder_start_token_id": 0}
    model = T5ForConditionalGeneration(T5Config(vocab_size=64, **sizes, **ids))

    def compute_metrics(eval_preds):
        preds, labels = eval_preds
        preds = np.where(preds != -100, preds, words.pad_token_id)
        labels = np.where(labels != -100, labels, words.pad_token_id)
        decoded = zip(
            words.batch_decode(preds, skip_special_tokens=True),
            words.batch_decode(labels, skip_special_tokens=True),
        )
        shares = [len(set(a.split()) & set(b.split())) / max(1, len(set(b.split()))) for a, b in decoded]
        lengths = [np.count_nonzero(pred != words.pad_token_id) for pred in preds]
        return {"overlap": float(np.mean(shares)), "gen_len": float(np.mean(lengths))}

    trainer = Seq2SeqTrainer(
        model=model,
        args=training_args,
        train_dataset=rows["train"],
        eval_dataset=rows["test"],
        processing_class=words,
        data_collator=DataCollatorForSeq2Seq(
            words, model=model, label_pad_token_id=-100, pad_to_multiple_of=None
        ),
        compute_metrics=compute_metrics if training_args.predict_with_generate else None,
    )
    result = trainer.train()
    trainer.save_model()
    trainer.log_metrics("train", result.metrics)
    trainer.save_metrics("train", result.metrics)
    trainer.save_state()
    metrics = trainer.evaluate(
        max_length=20, num_beams=training_args.generation_num_beams, metric_key_prefix="eval"
    )
    trainer.log_metrics("eval", metrics)
    trainer.save_metrics("eval", metrics)
    predicted = trainer.predict(rows["test"], metric_key_prefix="predict", max_length=20, num_beams=2)
    trainer.log_metrics("predict", predicted.metrics)
    trainer.save_metrics("predict", predicted.metrics)


if __name__ == "__main__":
    main()
