"""Text classification in the style of the original's examples."""

import logging
import os
import sys
from dataclasses import dataclass, field

import numpy as np
from datasets import Dataset
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    EvalPrediction,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

from small import sentences
from st_models import saved_bert

logger = logging.getLogger(__name__)


@dataclass
class DataTrainingArguments:
    max_seq_length: int = field(default=32, metadata={"help": "Longer texts are cut."})
    pad_to_max_length: bool = field(default=False, metadata={"help": "Pad all samples to max_seq_length."})
    max_train_samples: int | None = field(default=None, metadata={"help": "Fewer samples, for debugging."})


@dataclass
class ModelArguments:
    model_name_or_path: str = field(metadata={"help": "Path of the model."})


def main():
    parser = HfArgumentParser((ModelArguments, DataTrainingArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    logging.basicConfig(format="%(message)s", handlers=[logging.StreamHandler(sys.stdout)])
    logger.setLevel(training_args.get_process_log_level())
    logger.info(f"Training/evaluation parameters {training_args}")
    last_checkpoint = None
    if os.path.isdir(training_args.output_dir) and training_args.do_train:
        last_checkpoint = get_last_checkpoint(training_args.output_dir)
    set_seed(training_args.seed)

    texts = sentences(64)
    labels = [int("cat" in text or "dog" in text) for text in texts]
    raw = Dataset.from_dict({"sentence": texts, "label": labels}).train_test_split(0.25, seed=0)
    path = (
        saved_bert(is_classifier=True)
        if model_args.model_name_or_path == "made"
        else model_args.model_name_or_path
    )
    config = AutoConfig.from_pretrained(path, num_labels=2)
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForSequenceClassification.from_pretrained(
        path, config=config, ignore_mismatched_sizes=True
    )

    def preprocess_function(examples):
        padding = "max_length" if data_args.pad_to_max_length else False
        return tokenizer(
            examples["sentence"], padding=padding, max_length=data_args.max_seq_length, truncation=True
        )

    with training_args.main_process_first(desc="dataset map pre-processing"):
        raw = raw.map(preprocess_function, batched=True)
    train_dataset, eval_dataset = raw["train"], raw["test"]
    if data_args.max_train_samples is not None:
        train_dataset = train_dataset.select(range(data_args.max_train_samples))

    def compute_metrics(p: EvalPrediction):
        preds = p.predictions[0] if isinstance(p.predictions, tuple) else p.predictions
        return {"accuracy": float((np.argmax(preds, axis=1) == p.label_ids).mean())}

    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=train_dataset if training_args.do_train else None,
        eval_dataset=eval_dataset if training_args.do_eval else None,
        compute_metrics=compute_metrics,
        processing_class=tokenizer,
        data_collator=default_data_collator
        if data_args.pad_to_max_length
        else DataCollatorWithPadding(tokenizer),
    )
    if training_args.do_train:
        train_result = trainer.train(
            resume_from_checkpoint=training_args.resume_from_checkpoint or last_checkpoint
        )
        metrics = train_result.metrics
        metrics["train_samples"] = len(train_dataset)
        trainer.save_model()
        trainer.log_metrics("train", metrics)
        trainer.save_metrics("train", metrics)
        trainer.save_state()
    if training_args.do_eval:
        metrics = trainer.evaluate(eval_dataset=eval_dataset)
        metrics["eval_samples"] = len(eval_dataset)
        trainer.log_metrics("eval", metrics)
        trainer.save_metrics("eval", metrics)
    if training_args.do_predict:
        predictions = trainer.predict(
            eval_dataset.remove_columns("label"), metric_key_prefix="predict"
        ).predictions
        with open(f"{training_args.output_dir}/predict_results.txt", "w") as writer:
            writer.write(
                "\n".join(f"{index}\t{item}" for index, item in enumerate(np.argmax(predictions, axis=1)))
            )
    kwargs = {"finetuned_from": "made", "tasks": "text-classification"}
    if training_args.push_to_hub:
        trainer.push_to_hub(**kwargs)


if __name__ == "__main__":
    main()
