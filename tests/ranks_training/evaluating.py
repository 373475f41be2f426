"""Jobs that evaluate sets which do not divide by the number of processes and the batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MulticlassAUROC, MulticlassF1Score

import footplate
from ranks_training import small

COUNTS = {"many": 13, "one": 1, "batches": 12, "rounds": 9, "few": 4}  # rows, in batches of 3


class Watching:
    """A function for `compute_metrics` that keeps all that it is given."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __call__(self, prediction: Any) -> dict[str, float]:
        given = {name: getattr(prediction, name) for name in ("predictions", "label_ids", "inputs", "losses")}
        given.update(indices=prediction.indices, set=prediction.dataset_name)
        columns = {name: prediction.columns[name] for name in prediction.columns if name in ("id", "name")}
        self.seen.append(small.plain({**given, "columns": columns}))
        return {"rows": float(len(prediction.label_ids))}


def build(folder: Path, metrics: Any, data: Any, kind: Any = None, **settings: Any) -> Any:
    """A trainer that has something to evaluate."""
    first = next(iter(data.values())) if isinstance(data, dict) else data
    model = settings.pop("model", None)
    if model is None:
        model = small.Tagger() if "tokens" in getattr(first, "rows", [{}])[0] else small.Classifier()
    args = small.arguments(folder, per_device_eval_batch_size=3, **settings)
    return (kind or footplate.Trainer)(
        model, args, eval_dataset=data, data_collator=small.collate, compute_metrics=metrics
    )


def evaluate(folder: Path, data: Any, metrics: Any = None, kind: Any = None, **settings: Any) -> Any:
    """What an evaluation gives, and what `compute_metrics` saw."""
    metrics = Watching() if metrics is None else metrics
    trainer = build(folder, metrics, data, kind, **settings)
    found = small.timeless(trainer.evaluate())
    return {"metrics": found, "seen": getattr(metrics, "seen", None), "log": small.history(trainer)}


def classes(folder: Path) -> Any:
    return {name: evaluate(folder, small.numbers(count)) for name, count in COUNTS.items()}


def tokens(folder: Path) -> Any:
    found = {name: evaluate(folder, small.ragged(count)) for name, count in COUNTS.items()}
    found["items"] = evaluate(folder, small.ragged(13), loss_weighting="items")
    found["apart"] = evaluate(folder, small.ragged(13), eval_do_concat_batches=False)
    return found


class Speaking(small.Classifier):
    """Gives a text for every row besides the logits."""

    def forward(self, x: Any, labels: Any = None, name: Any = None) -> dict[str, Any]:  # type: ignore[override]
        outputs = super().forward(x, labels)
        return {**outputs, "words": [f"{text}?" for text in name], "more": [{"of": text} for text in name]}


def objects(folder: Path) -> Any:
    return {
        name: evaluate(
            folder,
            small.numbers(count),
            model=Speaking(),
            keep_columns=["id"],
            include_for_metrics=["inputs", "loss"],
        )
        for name, count in COUNTS.items()
    }


def sets(folder: Path) -> Any:
    several = {"first": small.numbers(13), "second": small.numbers(1, seed=2), "third": small.numbers(4, 3)}
    return evaluate(folder, several)


def first_rank(folder: Path) -> Any:
    """Metrics on the first rank alone; what the others hold of predictions is told too."""
    metrics = Watching()
    trainer = build(folder, metrics, small.numbers(13), metrics_on="first_rank")
    output = trainer.predict(small.numbers(13))
    return {
        "metrics": small.timeless(output.metrics),
        "seen": metrics.seen,
        "predictions": small.plain(output.predictions),
        "labels": small.plain(output.label_ids),
    }


class Listening(footplate.TrainerCallback):
    """Keeps every note that it is told of."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_note(self, args: Any, state: Any, control: Any, kind: str, values: Any, **kwargs: Any) -> None:
        self.heard.append([kind, values])


def notes(folder: Path) -> Any:
    """What callbacks hear of the classes in an evaluation."""
    trainer, listening = build(folder, Watching(), small.numbers(13)), Listening()
    trainer.add_callback(listening)
    trainer.evaluate()
    return small.plain(listening.heard)


class Counting:
    """A function that is called for every batch, and answers after the last one."""

    def __init__(self) -> None:
        self.rows, self.hits, self.loss, self.total = 0, 0, 0.0, 0.0

    def __call__(self, prediction: Any, compute_result: bool = False) -> dict[str, float]:
        predictions, labels, inputs, loss = prediction
        self.rows += len(labels)
        self.hits += int((predictions.argmax(-1) == labels).sum())
        self.loss += float(loss.mean()) * len(labels)
        self.total += float(inputs["x"].double().sum())
        if not compute_result:
            return {}
        return {"hits": self.hits, "rows": self.rows, "mean_loss": self.loss / self.rows, "x": self.total}


def by_batch(folder: Path) -> Any:
    settings: Any = {"batch_eval_metrics": True, "include_for_metrics": ["inputs", "loss"]}
    return {
        name: evaluate(folder, small.numbers(count), Counting(), **settings) for name, count in COUNTS.items()
    }


class Hits:
    """A plain metric object."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.hits = self.rows = self.calls = 0

    def update(self, predictions: torch.Tensor, labels: torch.Tensor) -> None:
        self.hits += int((predictions.argmax(-1) == labels).sum())
        self.rows += len(labels)

    def compute(self) -> dict[str, float]:
        return {"hits": self.hits / self.rows, "rows": self.rows}


class Total(Metric):
    """A metric of torchmetrics whose result shows rows that were counted twice."""

    def __init__(self) -> None:
        super().__init__()
        self.add_state("rows", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, predictions: torch.Tensor, labels: torch.Tensor) -> None:
        self.rows += len(labels)

    def compute(self) -> torch.Tensor:
        return self.rows.float()


def metric_objects(folder: Path) -> Any:
    found: Any = {}
    for where in ("every_rank", "first_rank"):
        for name, count in COUNTS.items():
            data = small.numbers(count)
            several: Any = {"f1": MulticlassF1Score(3), "auroc": MulticlassAUROC(3), "rows": Total()}
            for kind, metrics in (("plain", Hits()), ("torchmetrics", several)):
                found[f"{kind} {name} {where}"] = evaluate(folder, data, metrics, metrics_on=where)
    mixed: Any = {"own": Hits(), "rows_again": Total(), "both": MetricCollection({"more_rows": Total()})}
    found["mixed"] = evaluate(folder, small.numbers(13), mixed)
    return found


def predict(folder: Path) -> Any:
    found: Any = {}
    for name, count in COUNTS.items():
        for kind in (small.numbers, small.ragged):
            trainer = build(folder, None, kind(count))
            output = trainer.predict(kind(count))
            found[f"{kind.__name__} {name}"] = [
                small.plain(output.predictions),
                small.plain(output.label_ids),
                small.timeless(output.metrics),
            ]
    return found


class Gathering(footplate.Trainer):
    """Joins the results of all processes batch by batch, as scripts for Accelerate do."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rows: list[int] = []
        self.logits: list[Any] = []

    def prediction_step(self, model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        ids = inputs["id"]
        loss, logits, labels = super().prediction_step(model, inputs, *args, **kwargs)
        self.rows += self.accelerator.gather_for_metrics(ids).tolist()
        self.logits += self.accelerator.gather_for_metrics(logits).tolist()
        return loss, logits, labels


def gathering(folder: Path) -> Any:
    found: Any = {}
    for name, count in COUNTS.items():
        metrics = Watching()
        trainer = build(folder, metrics, small.numbers(count), Gathering, keep_columns=["id"])
        trainer.evaluate()
        found[name] = {"rows": trainer.rows, "logits": trainer.logits, **without_losses(metrics.seen[0])}
    return found


def without_losses(seen: dict[str, Any]) -> dict[str, Any]:
    """What metrics saw, without losses: rows that fill up the last batch are in them, as in the original."""
    return {key: value for key, value in seen.items() if key != "losses"}


class Prepared(footplate.Trainer):
    """Has a loader of its own, which Accelerate shares out."""

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        loader = DataLoader(eval_dataset or self.eval_dataset, batch_size=3, collate_fn=collate_known)
        return self.accelerator.prepare(loader)


class Plain(footplate.Trainer):
    """Has a loader of its own that nobody shares out."""

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        return DataLoader(eval_dataset or self.eval_dataset, batch_size=3, collate_fn=collate_known)


def collate_known(rows: list[dict[str, Any]]) -> Any:
    """A batch of what the model takes."""
    kept = ("x", "tokens", "labels")
    return small.collate([{key: row[key] for key in kept if key in row} for row in rows])


def plain_loader(folder: Path) -> Any:
    found = {name: evaluate(folder, small.numbers(count), kind=Plain) for name, count in COUNTS.items()}
    found["tokens"] = evaluate(folder, small.ragged(13), kind=Plain)
    found["objects"] = evaluate(folder, small.numbers(13), MetricCollection(MulticlassF1Score(3)), Plain)
    found["sum"] = evaluate(folder, small.numbers(13), Total(), Plain)
    return found


def prepared_loader(folder: Path) -> Any:
    found: Any = {}
    for name, count in COUNTS.items():
        found[name] = without_losses(evaluate(folder, small.numbers(count), kind=Prepared)["seen"][0])
        # the collator pads a row to the length of one that fills up the batch, so predictions go further
        found[f"tokens {name}"] = evaluate(folder, small.ragged(count), kind=Prepared)["seen"][0]["label_ids"]
        found[f"sum {name}"] = evaluate(folder, small.numbers(count), Total(), Prepared)["metrics"][
            "eval_total"
        ]
    return found


class Stream(IterableDataset):
    """Rows that come one after the other, without a length."""

    def __init__(self, count: int) -> None:
        self.rows = small.numbers(count).rows

    def __iter__(self) -> Any:
        return iter(self.rows)


def streams(folder: Path) -> Any:
    return {name: evaluate(folder, Stream(count)) for name, count in COUNTS.items()}


class OwnLoss(footplate.Trainer):
    """Has a loss of its own, and records something in it."""

    def compute_loss(
        self, model: nn.Module, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        loss, outputs = super().compute_loss(model, inputs, True)
        loss = loss * 2
        self.record("double", loss)
        return (loss, outputs) if return_outputs else loss


def own_loss(folder: Path) -> Any:
    return {name: evaluate(folder, small.numbers(count), kind=OwnLoss) for name, count in COUNTS.items()}
