"""Question answering in the style of the original's examples: a Trainer of its own that post-processes."""

import numpy as np
import torch
from datasets import Dataset
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    DataCollatorWithPadding,
    EvalPrediction,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import PredictionOutput, speed_metrics

from small import sentences, tokenizer


class QuestionAnsweringTrainer(Trainer):
    def __init__(self, *args, eval_examples=None, post_process_function=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.eval_examples = eval_examples
        self.post_process_function = post_process_function

    def evaluate(
        self, eval_dataset=None, eval_examples=None, ignore_keys=None, metric_key_prefix: str = "eval"
    ):
        import time

        eval_dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        eval_dataloader = self.get_eval_dataloader(eval_dataset)
        eval_examples = self.eval_examples if eval_examples is None else eval_examples
        compute_metrics = self.compute_metrics
        self.compute_metrics = None
        start_time = time.time()
        try:
            output = self.evaluation_loop(
                eval_dataloader,
                description="Evaluation",
                prediction_loss_only=True if compute_metrics is None else None,
                ignore_keys=ignore_keys,
                metric_key_prefix=metric_key_prefix,
            )
        finally:
            self.compute_metrics = compute_metrics
        total_batch_size = self.args.eval_batch_size * self.args.world_size
        output.metrics.update(
            speed_metrics(
                metric_key_prefix,
                start_time,
                num_samples=output.num_samples,
                num_steps=-(-output.num_samples // total_batch_size),
            )
        )
        if (
            self.post_process_function is not None
            and self.compute_metrics is not None
            and self.args.should_save
        ):
            eval_preds = self.post_process_function(eval_examples, eval_dataset, output.predictions)
            metrics = self.compute_metrics(eval_preds)
            for key in list(metrics.keys()):
                if not key.startswith(f"{metric_key_prefix}_"):
                    metrics[f"{metric_key_prefix}_{key}"] = metrics.pop(key)
            metrics.update(output.metrics)
        else:
            metrics = output.metrics
        if self.args.should_log:
            self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def predict(self, predict_dataset, predict_examples, ignore_keys=None, metric_key_prefix: str = "test"):
        loader = self.get_test_dataloader(predict_dataset)
        compute_metrics, self.compute_metrics = self.compute_metrics, None
        try:
            output = self.evaluation_loop(
                loader, description="Prediction", metric_key_prefix=metric_key_prefix
            )
        finally:
            self.compute_metrics = compute_metrics
        predictions = self.post_process_function(
            predict_examples, predict_dataset, output.predictions, "predict"
        )
        return PredictionOutput(
            predictions=predictions.predictions, label_ids=predictions.label_ids, metrics={}
        )


def main():
    (training_args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
    set_seed(training_args.seed)
    words = tokenizer(is_bert=True)
    texts = sentences(64)
    examples = Dataset.from_dict(
        {
            "id": [str(i) for i in range(64)],
            "question": ["who ?"] * 64,
            "context": texts,
            "answer": [t.split()[1] for t in texts],
        }
    )

    def prepare(rows):
        tokenized = words(rows["question"], rows["context"], truncation="only_second", max_length=32)
        spots = [
            ids.index(words.convert_tokens_to_ids(answer))
            for ids, answer in zip(tokenized["input_ids"], rows["answer"])
        ]
        tokenized["start_positions"] = spots
        tokenized["end_positions"] = spots
        return tokenized

    features = examples.map(prepare, batched=True)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertForQuestionAnswering(BertConfig(vocab_size=64, max_position_embeddings=64, **sizes))

    def post_processing_function(examples, features, predictions, stage="eval"):
        starts, ends = predictions[0].argmax(axis=1), predictions[1].argmax(axis=1)
        texts = [words.decode(ids[s : e + 1]) for ids, s, e in zip(features["input_ids"], starts, ends)]
        formatted = [{"id": i, "prediction_text": text} for i, text in zip(examples["id"], texts)]
        references = [{"id": i, "answers": answer} for i, answer in zip(examples["id"], examples["answer"])]
        return EvalPrediction(predictions=formatted, label_ids=references)

    def compute_metrics(p: EvalPrediction):
        right = [a["prediction_text"] == b["answers"] for a, b in zip(p.predictions, p.label_ids)]
        return {"exact_match": 100.0 * float(np.mean(right))}

    trainer = QuestionAnsweringTrainer(
        model=model,
        args=training_args,
        train_dataset=features.select(range(48)),
        eval_dataset=features.select(range(48, 64)),
        eval_examples=examples.select(range(48, 64)),
        processing_class=words,
        data_collator=DataCollatorWithPadding(words, pad_to_multiple_of=None),
        post_process_function=post_processing_function,
        compute_metrics=compute_metrics,
    )
    result = trainer.train()
    trainer.save_model()
    trainer.log_metrics("train", result.metrics)
    trainer.save_metrics("train", result.metrics)
    trainer.save_state()
    metrics = trainer.evaluate()
    trainer.log_metrics("eval", metrics)
    trainer.save_metrics("eval", metrics)
    trainer.predict(features.select(range(48, 64)), examples.select(range(48, 64)))


if __name__ == "__main__":
    main()
