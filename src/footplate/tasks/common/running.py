"""One run of a task, from its flags to its result files. The same for every task."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from footplate import SampleCallback, Trainer, TrainerCallback, get_last_checkpoint, set_seed
from footplate.tasks.common.card import save_card
from footplate.tasks.common.memory import save_learned
from footplate.tasks.common.models import load_config, load_model, load_processor
from footplate.tasks.common.parsing import save_settings
from footplate.tasks.common.preparing import build_features, drop_bad_rows
from footplate.tasks.common.problems import TaskError
from footplate.tasks.common.reading import require_columns
from footplate.tasks.common.recipe import Recipe
from footplate.tasks.common.vocabulary import describe_tokens
from footplate.trainer.sharing import push_folder

logger = logging.getLogger(__name__)

TEXTS_FOR_TOKENIZER = 100_000


class Job(NamedTuple):
    """A task that is ready to run: rows and features by split, and the trainer."""

    recipe: Recipe
    rows: dict[str, Any]
    features: dict[str, Any]
    trainer: Trainer


def run_task(recipe: Recipe, name: str) -> dict[str, float]:
    """Train, evaluate and predict as the flags say; return all metrics.

    Args:
        recipe: The task with its flags.
        name: Its name, for the files.
    """
    if recipe.has_own("run"):
        return recipe.run()
    args = recipe.args
    if not (args.do_train or args.do_eval or args.do_predict):
        raise TaskError("There is nothing to do. Give --do_train, --do_eval or --do_predict.")
    checkpoint = find_checkpoint(recipe)
    set_seed(args.seed)
    job = build_job(recipe)
    job.trainer.add_callback(KeepSettings(recipe, name))
    results: dict[str, float] = {}
    if args.do_train:
        results.update(train(job, checkpoint))
    if args.do_eval:
        results.update(evaluate(job))
    if args.do_predict:
        results.update(predict(job))
    if args.do_train and args.should_save:
        save_card(recipe, name, results, job.trainer, Path(args.output_dir))
        push_folder(job.trainer, "End of training")
    return results


class KeepSettings(TrainerCallback):
    """Writes the settings of a run when training begins: by then its folder is locked against other runs.

    Args:
        recipe: The task with its flags.
        name: Its name.
    """

    def __init__(self, recipe: Recipe, name: str) -> None:
        self.recipe, self.name = recipe, name

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write `run.yaml` and `task.json`."""
        if args.should_save:
            save_settings(self.recipe, self.name, Path(args.output_dir))
            save_learned(self.recipe, Path(args.output_dir))


def find_checkpoint(recipe: Recipe) -> str | bool | None:
    """What to resume from: what was asked for, else the newest checkpoint of the folder."""
    args = recipe.args
    if args.resume_from_checkpoint is not None or not args.do_train:
        return args.resume_from_checkpoint
    if getattr(args, "overwrite_output_dir", False) or not os.path.isdir(args.output_dir):
        return None
    found = get_last_checkpoint(args.output_dir)
    if found is not None:
        logger.warning(
            "Training goes on from %s. To start anew, add --overwrite_output_dir or change --output_dir.",
            found,
        )
    return found


# ---- rows, model, features ----


def build_job(recipe: Recipe) -> Job:
    """Read the rows, load the model, prepare the features and make the trainer."""
    rows = read_rows(recipe)
    recipe.learn(rows)
    rows = {split: drop_bad_rows(part, recipe, source_name(recipe, split)) for split, part in rows.items()}
    recipe.config = load_config(recipe)
    recipe.processor = load_processor(recipe, texts_of(recipe, rows.get("train", ())))
    if recipe.start.train_tokenizer and recipe.start.model_name_or_path is None:
        tokenizer = getattr(recipe.processor, "tokenizer", recipe.processor)
        recipe.config.update(describe_tokens(tokenizer, recipe.config.is_encoder_decoder))
    model = load_model(recipe)
    features = {split: prepare(recipe, part, split) for split, part in rows.items()}
    return Job(recipe, rows, features, build_trainer(recipe, model, rows, features))


def read_rows(recipe: Recipe) -> dict[str, Any]:
    """The rows of each split that the flags ask for."""
    data, args = recipe.data, recipe.args
    if data.dataset_name is not None:
        found = recipe.read_hub()
    else:
        files = recipe.files()
        if not files:
            raise TaskError("There is no data. Give --train_file and --validation_file, or --dataset_name.")
        found = {split: recipe.read_file(path, split) for split, path in files.items()}
    if (args.do_eval or recipe.always_splits) and "validation" not in found and "train" in found:
        found["train"], found["validation"] = recipe.split_off(found["train"])
        flag = recipe.split_flag
        logger.warning(
            "There is no validation set: a part of the training rows is taken for it (--%s %s).",
            flag,
            getattr(data, flag),
        )
    wanted = {"train": args.do_train, "validation": args.do_eval, "test": args.do_predict}
    for split, is_wanted in wanted.items():
        if is_wanted and split not in found:
            verb = {"train": "--do_train", "validation": "--do_eval", "test": "--do_predict"}[split]
            raise TaskError(f"{verb} needs rows. Give --{split}_file.")
    more = recipe.more_splits()
    return {split: part for split, part in found.items() if wanted.get(split) or split in more}


def count_of(recipe: Recipe, split: str) -> int | None:
    """How many rows of a split to use at most."""
    names = {"train": "max_train_samples", "test": "max_predict_samples"}
    count: int | None = getattr(recipe.data, names.get(split, "max_eval_samples"))
    return count


def source_name(recipe: Recipe, split: str) -> str:
    """Where the rows of a split come from, for people."""
    return recipe.files().get(split) or f"the {split} rows of {recipe.data.dataset_name or 'the data'}"


def check_columns(
    recipe: Recipe, rows: Mapping[str, Any], inputs: Sequence[str], labels: Sequence[str], flag: str
) -> None:
    """Refuse rows that lack a column.

    Args:
        recipe: The task.
        rows: The rows of all splits.
        inputs: Columns that every split needs.
        labels: Those that rows to predict do without.
        flag: The flags that name columns.
    """
    for split, part in rows.items():
        wanted = inputs if split == "test" else [*inputs, *labels]
        require_columns(part, wanted, source_name(recipe, split), flag)


def texts_of(recipe: Recipe, rows: Any) -> Iterator[str]:
    """The texts of the first rows, for a tokenizer."""
    for index, row in enumerate(rows):
        if index == TEXTS_FOR_TOKENIZER:
            return
        yield from recipe.text_of(row)


def prepare(recipe: Recipe, rows: Any, split: str) -> Any:
    """The features of a split, no more than were asked for."""
    count = count_of(recipe, split)
    features = build_features(recipe.limit(rows, count if recipe.limits_rows else None), recipe, split)
    return recipe.limit(features, count if recipe.limits_features else None)


def build_trainer(
    recipe: Recipe, model: Any, rows: Mapping[str, Any], features: Mapping[str, Any]
) -> Trainer:
    """The trainer of the task."""
    limited = {
        split: recipe.limit(part, count_of(recipe, split) if recipe.limits_rows else None)
        for split, part in rows.items()
    }
    options: dict[str, Any] = {
        "model": model,
        "args": recipe.args,
        "train_dataset": features.get("train"),
        "eval_dataset": features.get("validation"),
        "processing_class": recipe.processor,
        "data_collator": recipe.collator(),
    }
    if recipe.has_own("metrics"):
        options["compute_metrics"] = recipe.metrics
    options.update(recipe.trainer_options(limited, features))
    trainer = recipe.trainer(**options)
    if recipe.args.eval_strategy != "no":
        show_samples(recipe, trainer)
    return trainer


def show_samples(recipe: Recipe, trainer: Trainer) -> None:
    """Let the trainer show a few rows at each evaluation."""
    if recipe.data.show_samples:
        formatter = recipe.show if recipe.has_own("show") else None
        trainer.add_callback(SampleCallback(every=None, count=recipe.data.show_samples, formatter=formatter))


# ---- the three things to do ----


def train(job: Job, checkpoint: str | bool | None) -> dict[str, float]:
    """Train, and write model, state and metrics."""
    trainer = job.trainer
    metrics = trainer.train(resume_from_checkpoint=checkpoint).metrics
    trainer.save_model()
    add_count(metrics, "train_samples", job.features["train"])
    report(trainer, "train", metrics)
    trainer.save_state()
    return metrics


def evaluate(job: Job) -> dict[str, float]:
    """Evaluate on each set of the task, and write the metrics."""
    trainer, together, prefix = job.trainer, {}, job.recipe.evaluation_prefix(job.rows)
    if job.recipe.args.eval_strategy == "no":
        show_samples(job.recipe, trainer)
    for split, suffix in job.recipe.evaluation_sets(job.rows).items():
        options = job.recipe.evaluation_options()
        inputs = job.recipe.evaluation_inputs(split, job.rows, job.features)
        metrics = trainer.evaluate(**inputs, **options, metric_key_prefix=prefix)
        add_count(metrics, f"{prefix}_samples", job.features[split])
        metrics = job.recipe.finish_metrics(metrics)
        together.update({f"{name}{suffix}": value for name, value in metrics.items()})
    report(trainer, prefix, together)
    return together


def predict(job: Job) -> dict[str, float]:
    """Predict the test rows, and write answers and, if their labels are known, metrics."""
    recipe, trainer = job.recipe, job.trainer
    inputs = recipe.prediction_inputs("test", job.rows, job.features)
    output = trainer.predict(**inputs, metric_key_prefix="predict", **recipe.evaluation_options())
    metrics = dict(output.metrics or {})
    add_count(metrics, "predict_samples", job.features["test"])
    report(trainer, "predict", metrics)
    if trainer.is_world_process_zero():
        rows = recipe.limit(job.rows["test"], count_of(recipe, "test"))
        recipe.save_predictions(rows, job.features["test"], output, Path(recipe.args.output_dir))
    return metrics


def add_count(metrics: dict[str, float], name: str, features: Any) -> None:
    """Note how many features there were, if that is known."""
    if hasattr(features, "__len__"):
        metrics[name] = len(features)


def report(trainer: Trainer, split: str, metrics: dict[str, float]) -> None:
    """Print metrics and write them to their files."""
    trainer.log_metrics(split, metrics)
    trainer.save_metrics(split, metrics)
