"""`loss_weighting`: with "items" the cut of a batch changes nothing; without, it is as in the original."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional

import footplate
import tiny

CUTS = [(8, 1), (4, 2), (2, 4), (1, 8)]  # rows of a micro-batch, micro-batches of an update
NUM_ROWS = 13  # a whole update and one of 5 rows: the last window is ragged in every cut


class TokenClassifier(nn.Module):
    """A class per token, averaged over the tokens that count; `shifts` predicts the next token instead."""

    def __init__(self, num_classes: int = 3, shifts: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(50, 4)
        self.head = nn.Linear(4, num_classes)
        self.loss_shifts_labels = shifts

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.head(self.embed(input_ids))
        if labels is None:
            return {"logits": logits}
        kept, wanted = (logits[:, :-1], labels[:, 1:]) if self.loss_shifts_labels else (logits, labels)
        return {"loss": functional.cross_entropy(kept.flatten(0, 1), wanted.flatten()), "logits": logits}


class RowModel(nn.Module):
    """A few numbers per row, taken as logits of classes or as they are."""

    def __init__(self, num_outputs: int, loss: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(4, num_outputs)
        self.loss = loss

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.head(x).squeeze(-1)
        return {"logits": logits} if labels is None else {"loss": self.loss(logits, labels), "logits": logits}


class WeightedModel(RowModel):
    """Averages over what `mask` picks: only the collator knows how many that are."""

    def forward(self, x: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:  # type: ignore[override]
        logits = self.head(x)
        return {"loss": ((logits - labels) ** 2)[mask].mean(), "logits": logits}


def token_rows() -> list[dict[str, Any]]:
    """Rows of which 12, 9, 6, 3, ... tokens count."""
    return [
        {"input_ids": row, "labels": [-100 if k < i % 4 * 3 else token % 3 for k, token in enumerate(row)]}
        for i, row in enumerate(tiny.token_rows(NUM_ROWS))
    ]


def causal_rows() -> list[dict[str, Any]]:
    """Rows of which 12, 9, 6, 3, ... tokens count; where all do, the first predicts nothing."""
    return [
        {"input_ids": row, "labels": [-100 if k < i % 4 * 3 else token for k, token in enumerate(row)]}
        for i, row in enumerate(tiny.token_rows(NUM_ROWS))
    ]


def number_rows(label: Callable[[int, torch.Tensor], Any]) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(NUM_ROWS, 4, generator=generator, dtype=torch.float64)
    return [{"x": x[i], "labels": label(i, x[i])} for i in range(NUM_ROWS)]


def mask_rows() -> list[dict[str, Any]]:
    rows = number_rows(lambda i, x: x[:3] * i)
    return [{**row, "mask": torch.arange(3) <= i % 3} for i, row in enumerate(rows)]


def count_masked(rows: list[Any]) -> dict[str, Any]:
    batch: dict[str, Any] = footplate.default_data_collator(rows)
    return {**batch, "num_items": batch["mask"].sum()}


def mean_loss(outputs: Any, labels: torch.Tensor) -> torch.Tensor:
    """A loss of the user's own that knows nothing of updates."""
    return functional.cross_entropy(outputs["logits"].flatten(0, -2), labels.flatten())


def counted_loss(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
    """A loss of the user's own that divides by what it is told, else by what it counts."""
    logits = outputs["logits"].flatten(0, -2)
    total = functional.cross_entropy(logits, labels.flatten(), reduction="sum")
    return total / (labels.ne(-100).sum() if num_items_in_batch is None else num_items_in_batch)


@dataclass
class Task:
    """A model, its data, and how close two cuts can come in the precision of the model's loss."""

    model: Callable[[], nn.Module]
    rows: Callable[[], list[Any]]
    options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-9


def steady_gpt() -> nn.Module:
    """Without dropout, which would draw other numbers for another cut."""
    return tiny.gpt(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)


def double_gpt() -> nn.Module:
    """The same with its loss in double precision: the original turns logits into single precision first."""

    def causal_loss(
        logits: torch.Tensor, labels: torch.Tensor, vocab_size: int, **kwargs: Any
    ) -> torch.Tensor:
        return functional.cross_entropy(logits[:, :-1].reshape(-1, vocab_size), labels[:, 1:].flatten())

    model = steady_gpt()
    model.loss_function = causal_loss  # type: ignore[assignment]
    return model


SMOOTHED = {"label_smoothing_factor": 0.2}
TASKS = {
    "tokens": Task(TokenClassifier, token_rows),
    "tokens, shifted by GPT-2": Task(double_gpt, causal_rows),
    "tokens, shifted by GPT-2 in its own loss": Task(steady_gpt, causal_rows, tolerance=1e-7),
    "tokens, shifted by the module": Task(lambda: TokenClassifier(50, shifts=True), causal_rows),
    "tokens, own loss": Task(TokenClassifier, token_rows, {"compute_loss_func": mean_loss}),
    "tokens, own loss that counts": Task(TokenClassifier, token_rows, {"compute_loss_func": counted_loss}),
    "tokens, smoothed": Task(TokenClassifier, token_rows, settings=SMOOTHED),
    "tokens, smoothed GPT-2": Task(steady_gpt, causal_rows, settings=SMOOTHED),
    "classes": Task(lambda: RowModel(3, functional.cross_entropy), lambda: number_rows(lambda i, x: i % 3)),
    "classes, some without": Task(
        lambda: RowModel(3, functional.cross_entropy),
        lambda: number_rows(lambda i, x: -100 if i % 4 == 1 else i % 3),
    ),
    "classes, smoothed": Task(
        lambda: RowModel(3, functional.cross_entropy),
        lambda: number_rows(lambda i, x: i % 3),
        settings=SMOOTHED,
    ),
    "regression": Task(lambda: RowModel(1, functional.mse_loss), lambda: number_rows(lambda i, x: x[0] * i)),
    "regression, several numbers": Task(
        lambda: RowModel(3, functional.mse_loss), lambda: number_rows(lambda i, x: x[:3] * i)
    ),
    "regression, counted by the collator": Task(
        lambda: WeightedModel(3, functional.mse_loss), mask_rows, {"data_collator": count_masked}
    ),
}


class Gradients(footplate.TrainerCallback):
    """Keeps the gradients of every update."""

    def __init__(self) -> None:
        self.updates: list[torch.Tensor] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        flat = [parameter.grad.flatten() for parameter in kwargs["model"].parameters()]
        self.updates.append(torch.cat(flat))


def in_single(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def train(
    folder: Path,
    task: Task,
    cut: tuple[int, int],
    library: Any = footplate,
    is_double: bool = True,
    **settings: Any,
) -> tuple[list[torch.Tensor], Any]:
    """Two updates, in double precision unless told otherwise: their gradients and the trainer."""
    gradients = Gradients()
    options = {**task.options, "callbacks": [gradients]}
    chosen = {
        "optim": "sgd",
        "learning_rate": 0.1,
        "max_grad_norm": 0,
        "logging_steps": 1,
        "num_train_epochs": 1,
    }
    chosen.update(per_device_train_batch_size=cut[0], gradient_accumulation_steps=cut[1])
    model, rows = task.model().to(torch.float64 if is_double else torch.float32), task.rows()
    if not is_double:
        rows = [{name: in_single(value) for name, value in row.items()} for row in rows]
    chosen = {**chosen, **task.settings, **settings}
    trainer = tiny.build_trainer(folder, model, rows, rows, library, options, **chosen)
    trainer.train()
    return gradients.updates, trainer


def logged(trainer: Any, key: str = "loss") -> list[float]:
    return [entry[key] for entry in trainer.state.log_history if key in entry]


@pytest.mark.parametrize("name", TASKS)
def test_gradients_and_losses_are_the_same_however_an_update_is_cut(name: str, tmp_path: Path) -> None:
    task = TASKS[name]
    runs = [train(tmp_path, task, cut, loss_weighting="items") for cut in CUTS]
    whole, first = runs[0]
    assert len(whole) == 2
    assert all(update.abs().max() > 1e-3 for update in whole)
    for updates, trainer in runs[1:]:
        for expected, found in zip(whole, updates, strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=task.tolerance)
        assert logged(trainer) == pytest.approx(logged(first), rel=1e-6)
        assert logged(trainer, "grad_norm") == pytest.approx(logged(first, "grad_norm"), rel=task.tolerance)


@pytest.mark.parametrize("name", TASKS)
def test_the_gradient_of_an_update_is_that_of_the_mean_over_its_items(name: str, tmp_path: Path) -> None:
    task = TASKS[name]
    updates, trainer = train(tmp_path, task, (2, 4), loss_weighting="items", max_steps=1)
    again = tiny.build_trainer(
        tmp_path, task.model().double(), task.rows(), options=task.options, **task.settings
    )
    order = torch.randperm(NUM_ROWS, generator=torch.Generator().manual_seed(trainer.args.seed))
    batch = again.data_collator([task.rows()[index] for index in order[:8]])
    loss = again.compute_loss(again.model, batch)
    loss.backward()
    expected = torch.cat([parameter.grad.flatten() for parameter in again.model.parameters()])
    torch.testing.assert_close(updates[0], expected, rtol=0, atol=task.tolerance)
    assert logged(trainer) == pytest.approx([loss.item()], rel=1e-6)


@pytest.mark.parametrize("name", TASKS)
def test_eval_loss_does_not_depend_on_the_batch_size(name: str, tmp_path: Path) -> None:
    task = TASKS[name]
    losses = []
    for batch_size in (1, 3, 8, NUM_ROWS):
        settings = {"loss_weighting": "items", "per_device_eval_batch_size": batch_size, **task.settings}
        model = task.model().double()
        trainer = tiny.build_trainer(tmp_path, model, None, task.rows(), options=task.options, **settings)
        losses.append(trainer.evaluate()["eval_loss"])
    assert losses[:-1] == pytest.approx([losses[-1]] * 3, rel=task.tolerance)


def test_eval_loss_during_training_is_weighed_by_items_too(tmp_path: Path) -> None:
    losses = []
    for batch_size in (1, 3, 8):
        settings = {"eval_strategy": "epoch", "per_device_eval_batch_size": batch_size}
        _, trainer = train(tmp_path, TASKS["tokens"], (4, 2), loss_weighting="items", **settings)
        losses += logged(trainer, "eval_loss")
    assert losses[1:] == pytest.approx([losses[0]] * 2, rel=1e-9)


def test_several_eval_sets_join_their_losses_by_items(tmp_path: Path) -> None:
    rows = token_rows()
    settings = {"loss_weighting": "items", "per_device_eval_batch_size": 2}
    model = TokenClassifier().double()
    whole = tiny.build_trainer(tmp_path, model, None, rows, **settings).evaluate()
    parts = tiny.build_trainer(tmp_path, model, None, {"a": rows[:4], "b": rows[4:]}, **settings).evaluate()
    assert parts["eval_loss"] == pytest.approx(whole["eval_loss"], rel=1e-9)


def test_a_micro_batch_without_items_adds_nothing(tmp_path: Path) -> None:
    def rows() -> list[Any]:
        return [{**row, "labels": [-100] * 12} if i % 3 == 0 else row for i, row in enumerate(token_rows())]

    for options in ({}, {"compute_loss_func": counted_loss}):
        task = Task(TokenClassifier, rows, options)
        runs = [train(tmp_path, task, cut, loss_weighting="items") for cut in CUTS]
        for updates, trainer in runs[1:]:
            for expected, found in zip(runs[0][0], updates, strict=True):
                torch.testing.assert_close(found, expected, rtol=0, atol=task.tolerance)
            assert logged(trainer) == pytest.approx(logged(runs[0][1]), rel=1e-6)
            assert logged(trainer, "nonfinite") == []


def test_tuples_are_weighed_by_their_rows(tmp_path: Path) -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.head = nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(x).squeeze(-1)

    def pairs() -> list[Any]:
        return [(row["x"], row["labels"]) for row in number_rows(lambda i, x: x[0] * i)]

    options = {
        "compute_loss_func": lambda outputs, labels: functional.mse_loss(outputs, labels),
        "data_collator": torch.utils.data.default_collate,
    }
    task = Task(Pair, pairs, options)
    runs = [train(tmp_path, task, cut, loss_weighting="items")[0] for cut in CUTS]
    for updates in runs[1:]:
        torch.testing.assert_close(updates, runs[0], rtol=0, atol=task.tolerance)


@pytest.mark.parametrize("weighting", ["batches", "items"])
@pytest.mark.parametrize(
    "name", ["tokens", "tokens, shifted by GPT-2 in its own loss", "tokens, own loss that counts"]
)
@pytest.mark.parametrize("cut", [(8, 1), (2, 4)], ids=str)
def test_what_is_recorded_beside_the_loss_is_averaged_like_it(
    name: str, weighting: str, cut: tuple[int, int], tmp_path: Path
) -> None:
    class Recording(footplate.Trainer):
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            result = super().compute_loss(*args, **kwargs)
            self.record("copy", result[0] if isinstance(result, tuple) else result)
            return result

    task = TASKS[name]
    args = tiny.arguments(
        tmp_path,
        loss_weighting=weighting,
        logging_steps=1,
        num_train_epochs=1,
        per_device_train_batch_size=cut[0],
        gradient_accumulation_steps=cut[1],
    )
    trainer = Recording(task.model(), args, train_dataset=task.rows(), **task.options)
    trainer.train()
    assert logged(trainer, "copy") == pytest.approx(logged(trainer), rel=1e-6)
    assert len(logged(trainer)) == 2


# Without the switch: the original's numbers.


COMPARABLE = [
    "tokens",
    "tokens, shifted by GPT-2 in its own loss",
    "tokens, own loss that counts",
    "tokens, smoothed GPT-2",
    "classes",
    "regression",
    "regression, several numbers",
]


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("name", COMPARABLE)
def test_the_default_gives_the_numbers_of_the_original(
    name: str, cut: tuple[int, int], tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"eval_strategy": "epoch", "per_device_eval_batch_size": 3, "is_double": False}
    expected, original = train(tmp_path, TASKS[name], cut, transformers, **settings)
    updates, trainer = train(tmp_path, TASKS[name], cut, **settings)
    assert all(torch.equal(*pair) for pair in zip(updates, expected, strict=True))
    for key in ("loss", "grad_norm", "eval_loss"):
        assert logged(trainer, key) == logged(original, key) != []


@pytest.mark.parametrize("name", ["tokens", "classes, some without"])
def test_the_default_depends_on_the_cut(name: str, tmp_path: Path) -> None:
    (whole, _), (halves, _) = (train(tmp_path, TASKS[name], cut) for cut in CUTS[:2])
    assert (whole[0] - halves[0]).abs().max() > 1e-4


def notices(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "loss_weighting" in record.getMessage()]


NOTICED = {
    "means of micro-batches are averaged": ("tokens", (2, 4), False, "averages the means"),
    "means of rows are averaged": ("regression", (2, 4), False, "averages the means"),
    "a loss of one's own takes no count": ("tokens, own loss", (2, 4), False, "micro-batches"),
    "evaluation weighs rows": ("tokens", (8, 1), True, "eval_loss weighs batches by their rows"),
    "evaluation of a model that counts": (
        "tokens, shifted by GPT-2 in its own loss",
        (2, 4),
        True,
        "eval_loss weighs",
    ),
    "both": ("tokens", (2, 4), True, "averages the means of its micro-batches and eval_loss"),
}
SILENT = {
    "one micro-batch, no evaluation": ("tokens", (8, 1), False),
    "one micro-batch, rows evaluated": ("regression", (8, 1), True),
    "one micro-batch, classes evaluated": ("classes", (8, 1), True),
    "the model divides by the count": ("tokens, shifted by GPT-2 in its own loss", (2, 4), False),
    "the loss function divides by the count": ("tokens, own loss that counts", (2, 4), False),
}


def train_quietly(folder: Path, name: str, cut: tuple[int, int], evaluates: bool, **settings: Any) -> None:
    task = TASKS[name]
    rows = task.rows()
    settings.update(
        per_device_train_batch_size=cut[0], gradient_accumulation_steps=cut[1], num_train_epochs=2
    )
    model = task.model().double()
    eval_rows = rows if evaluates else None
    tiny.build_trainer(folder, model, rows, eval_rows, options=task.options, **settings).train()


@pytest.mark.parametrize("case", NOTICED)
def test_one_line_says_where_a_result_depends_on_the_cut(
    case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name, cut, evaluates, said = NOTICED[case]
    train_quietly(tmp_path, name, cut, evaluates)
    (notice,) = notices(caplog)
    assert said in notice
    assert "loss_weighting='items'" in notice
    assert "\n" not in notice


def test_a_model_that_takes_the_count_but_ignores_it_is_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"gradient_accumulation_steps": 2, "num_train_epochs": 1}
    tiny.build_trainer(tmp_path, tiny.bert_classifier(), tiny.classification_data(), **settings).train()
    (notice,) = notices(caplog)
    assert "adds up the means" in notice


@pytest.mark.parametrize("case", SILENT)
def test_nothing_is_said_where_nothing_depends_on_the_cut(
    case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train_quietly(tmp_path, *SILENT[case])
    assert notices(caplog) == []


@pytest.mark.parametrize("case", NOTICED)
def test_nothing_is_said_with_the_switch(case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train_quietly(tmp_path, *NOTICED[case][:3], loss_weighting="items")
    assert notices(caplog) == []


def test_the_notice_is_a_warning_of_footplate(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train_quietly(tmp_path, "tokens", (2, 4), True)
    (record,) = [record for record in caplog.records if "loss_weighting" in record.getMessage()]
    assert record.levelno == logging.WARNING
    assert record.name.startswith("footplate")


def test_an_unknown_weighting_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="loss_weighting"):
        tiny.arguments(tmp_path, loss_weighting="tokens")


def test_a_batch_with_nothing_to_count_is_explained(tmp_path: Path) -> None:
    class Alone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(()))

        def forward(self, x: Any) -> torch.Tensor:
            return self.weight * len(x)

    args = tiny.arguments(tmp_path, loss_weighting="items", remove_unused_columns=False)
    trainer = footplate.Trainer(
        Alone(), args, train_dataset=[{"x": "a"}, {"x": "b"}], data_collator=lambda rows: {"x": "text"}
    )
    with pytest.raises(ValueError, match=r"found nothing to count .*num_items"):
        trainer.train()
