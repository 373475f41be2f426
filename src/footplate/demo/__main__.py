"""`python -m footplate.demo`: watch a small model learn to answer questions, in about a minute on a CPU."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from typing import Any

import torch
from tqdm import tqdm

from footplate import (
    EvalPrediction,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)
from footplate.demo.facts import FactsDataset, WordTokenizer, generate_examples
from footplate.demo.model import SpanReader
from footplate.demo.spans import find_best_spans
from footplate.evaluation.squad import compute_squad_metrics


def main() -> None:
    """Generate questions, train a reader on them, and ask it about people it has not met."""
    options = parse_options()
    set_seed(options.seed)
    torch.set_num_threads(1)  # so small a model gains little from more, and loses much where cores are busy

    train_examples, held_out_examples = generate_examples(num_train=8000, num_held_out=500, seed=options.seed)
    tokenizer = WordTokenizer(f"{example.question} {example.context}" for example in train_examples)
    train_dataset = FactsDataset(train_examples, tokenizer)
    eval_dataset = FactsDataset(held_out_examples, tokenizer)
    model = SpanReader(num_words=len(tokenizer))
    print(
        f"{len(train_dataset)} questions to learn from, "
        f"{len(eval_dataset)} held out about people who appear in none of those."
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
        save_strategy="no",
        report_to="none",
    )

    def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
        spans = find_best_spans(*prediction.predictions)  # the model's start_logits and end_logits
        given = dict(enumerate(eval_dataset.read_spans(spans)))
        golds = [{"id": number, "answers": [answer]} for number, answer in enumerate(eval_dataset.answers)]
        return compute_squad_metrics(given, golds)

    trainer = Trainer(
        model,
        args,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        compute_metrics=compute_metrics,
        callbacks=[ShowSamples(tokenizer, every=50)],
    )
    trainer.train()
    trainer.save_model()
    trainer.log_metrics("eval", trainer.evaluate())


class ShowSamples(TrainerCallback):
    """Prints a question of the batch just learned from, and what the model answered.

    Args:
        tokenizer: Turns numbers into words again.
        every: How many updates lie between two samples.
    """

    def __init__(self, tokenizer: WordTokenizer, every: int) -> None:
        self.tokenizer = tokenizer
        self.every = every

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        inputs: Any = None,
        outputs: Any = None,
        **kwargs: Any,
    ) -> None:
        """Show the batch's first example, after the first update and then after every `every`."""
        if state.global_step % self.every and state.global_step != 1:
            return
        row = {name: values[0].tolist() for name, values in inputs.items()}
        ids, context_start = row["input_ids"], row["token_type_ids"].index(1)
        logits = [outputs[name][:1].detach().cpu().numpy() for name in ("start_logits", "end_logits")]
        first, last = find_best_spans(*logits)[0]
        print_sample(
            f"update {state.global_step} of {state.max_steps}",
            question=self.tokenizer.decode(ids[: context_start - 1]),
            context=self.tokenizer.decode(ids[context_start : sum(row["attention_mask"])]),
            prediction=self.tokenizer.decode(ids[first : last + 1]),
            answer=self.tokenizer.decode(ids[row["start_positions"] : row["end_positions"] + 1]),
        )


def print_sample(title: str, **fields: str) -> None:
    """One aligned paragraph per field, above the progress bar where there is one."""
    width = min(shutil.get_terminal_size().columns, 100)
    lines = ["", title]
    for name, text in fields.items():
        lines += textwrap.wrap(text, width, initial_indent=f"  {name:<12}", subsequent_indent=" " * 14)
    tqdm.write("\n".join([*lines, ""]))


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
