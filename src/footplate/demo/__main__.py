"""`python -m footplate.demo`: watch a small model learn to answer questions, in about a minute on a CPU."""

from __future__ import annotations

import argparse

import torch

from footplate import (
    EvalPrediction,
    SampleCallback,
    Trainer,
    TrainingArguments,
    compute_squad_metrics,
    set_seed,
)
from footplate.demo.facts import FactsDataset, WordTokenizer, generate_examples
from footplate.demo.model import SpanReader
from footplate.demo.spans import find_best_spans


def main() -> None:
    """Generate questions, train a reader on them, and evaluate it on questions about other people."""
    options = parse_options()
    set_seed(options.seed)
    torch.set_num_threads(1)  # a small model gains little from more threads, and loses if the cores are busy

    train_examples, held_out_examples = generate_examples(num_train=8000, num_held_out=500, seed=options.seed)
    tokenizer = WordTokenizer(f"{example.question} {example.context}" for example in train_examples)
    train_dataset = FactsDataset(train_examples, tokenizer)
    eval_dataset = FactsDataset(held_out_examples, tokenizer)
    model = SpanReader(num_words=len(tokenizer))
    print(
        f"Training on {len(train_dataset)} questions, evaluating on {len(eval_dataset)} about other people."
    )

    args = TrainingArguments(
        output_dir=options.output_dir,
        seed=options.seed,
        max_steps=options.steps,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=100,
        learning_rate=2e-3,
        warmup_steps=50,
        label_names=["start_positions", "end_positions"],
        logging_steps=50,
        eval_strategy="steps",
        eval_steps=100,
        show_samples=5,
        save_strategy="no",
        report_to="none",
    )

    def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
        spans = find_best_spans(*prediction.predictions)  # the model's start_logits and end_logits
        assert prediction.indices is not None
        rows = prediction.indices.tolist()  # which rows: before training, metrics are tried on one batch
        given = dict(zip(rows, eval_dataset.read_spans(spans, rows), strict=True))
        golds = [{"id": row, "answers": [eval_dataset.answers[row]]} for row in rows]
        return compute_squad_metrics(given, golds)

    trainer = Trainer(
        model,
        args,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        compute_metrics=compute_metrics,
        processing_class=tokenizer,
        callbacks=[SampleCallback(every=50, count=1)],
    )
    trainer.train()
    trainer.save_model()
    trainer.log_metrics("eval", trainer.evaluate())
    print(f"\nCurves, samples and settings of this run: {options.output_dir}/report.html")


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m footplate.demo", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="decides facts, weights and order (default: 0)")
    parser.add_argument("--steps", type=int, default=400, help="updates to train (default: 400)")
    parser.add_argument(
        "--output_dir", default="runs/demo", help="where to save the model (default: runs/demo)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
