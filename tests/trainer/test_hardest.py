"""The hardest rows: right for every task, found by one pass that leaves no trace."""

from __future__ import annotations

import copy
import json
import math

import pytest
import torch
from datasets import Dataset as Table
from torch import nn
from torch.utils.data import Dataset, IterableDataset

import tiny
from footplate import Trainer, TrainerCallback, default_data_collator, rng
from footplate.samples import hardest as results
from footplate.trainer import hardest


class Planes(nn.Module):
    """Two classes of points, with dropout and batch statistics."""

    def __init__(self, **loss):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Linear(16, 2)
        self.loss = nn.CrossEntropyLoss(**loss)

    def forward(self, x, labels=None):
        logits = self.head(self.layers(x))
        return {"logits": logits} if labels is None else {"loss": self.loss(logits, labels), "logits": logits}


WRONG = [7, 53, 111, 160, 222, 268, 333, 401, 444, 499]


def points(num_rows=500, wrong=()):
    """Points on either side of a plane, not too near to it; some with the label of the other side."""
    x = torch.randn(num_rows, 4, generator=torch.Generator().manual_seed(0))
    side = (x.sum(1) > 0).long()
    x = x + 0.5 * (2 * side - 1)[:, None]
    return [{"x": x[i], "labels": int(side[i]) ^ (i in wrong)} for i in range(num_rows)]


def planes(folder, data=None, model=None, options=None, **settings):
    torch.manual_seed(0)
    return tiny.build_trainer(
        folder, model or Planes(), data or points(), options=options, learning_rate=0.02, **settings
    )


def losses_alone(trainer, data):
    """The loss of every row as an evaluation of that row alone gives it."""
    return [trainer.evaluate([row])["eval_loss"] for row in data]


def everything(trainer):
    """All that a pass must leave as it was."""
    optimizer = trainer.optimizer.state_dict() if trainer.optimizer is not None else None
    meter = trainer._current_run.meter
    return plain(
        [
            *(trainer.model.state_dict(), optimizer, trainer.state.to_json_text(), vars(trainer.control)),
            *(rng.capture(), sorted(name for name, value in vars(trainer).items() if value is not None)),
            *(meter.loss, meter.total_loss),
            [module.training for module in trainer.model.modules()],
            {name: str(value) for name, value in trainer.callback_handler.extras.items()},
        ]
    )


def plain(value):
    """Nested values that can be compared bit by bit."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value.numpy().tobytes() if isinstance(value, torch.Tensor) else str(value)


# ---- what is found ----


def test_rows_with_wrong_labels_are_the_hardest(tmp_path):
    trainer = planes(tmp_path, points(wrong=WRONG), num_train_epochs=8)
    trainer.train()
    found = trainer.find_hardest_rows(10)
    assert sorted(row["row"] for row in found.rows) == WRONG
    assert set(WRONG) <= set(found.outliers)
    assert all(row["outlier"] and row["correct"] is False for row in found.rows)
    assert [row["loss"] for row in found.rows] == sorted((row["loss"] for row in found.rows), reverse=True)


TASKS = {
    "classes": (tiny.bert_classifier, tiny.classification_data),
    "several classes": (
        lambda: tiny.bert_classifier(problem_type="multi_label_classification"),
        tiny.multi_label_data,
    ),
    "regression": (tiny.Regression, tiny.regression_data),
    "next token": (tiny.gpt, tiny.causal_data),
    "points": (Planes, lambda: points(53)),
}


def bert(kind, num_labels=3):
    import transformers

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(
        vocab_size=50, max_position_embeddings=32, num_labels=num_labels, **sizes
    )
    return getattr(transformers, kind)(config)


TASKS["tokens"] = (lambda: bert("BertForTokenClassification"), tiny.token_data)
TASKS["masked words"] = (lambda: bert("BertForMaskedLM"), tiny.causal_data)
TASKS["spans"] = (lambda: bert("BertForQuestionAnswering", 2), tiny.span_data)


@pytest.mark.parametrize("task", TASKS)
def test_every_loss_is_that_of_the_row_alone_and_quickly_found(tmp_path, task):
    make, data = TASKS[task]
    data = data()
    trainer = tiny.build_trainer(tmp_path, make(), data, per_device_eval_batch_size=8)
    found = trainer.find_hardest_rows(3)
    right = losses_alone(trainer, data)
    assert found.passes == "batches"
    assert torch.allclose(torch.tensor(found.losses), torch.tensor(right).double(), rtol=1e-4, atol=1e-5)
    assert found.indices.tolist() == list(range(len(data)))
    for row in found.rows:
        assert row["loss"] == pytest.approx(right[row["row"]], rel=1e-6)
        assert {"input", "target", "prediction"} <= row.keys()


OWN_LOSSES = {
    "smoothed": ({"label_smoothing_factor": 0.1}, {}, Planes),
    "weighted": ({}, {}, lambda: Planes(weight=torch.tensor([1.0, 5.0]))),
    "given": (
        {},
        {
            "compute_loss_func": lambda outputs, labels, num_items_in_batch=None: (
                nn.functional.multi_margin_loss(outputs["logits"], labels, reduction="sum")
                / num_items_in_batch
            )
        },
        Planes,
    ),
}


@pytest.mark.parametrize("case", OWN_LOSSES)
def test_a_loss_of_another_kind_is_found_row_by_row(tmp_path, case):
    settings, options, make = OWN_LOSSES[case]
    data = points(40)
    trainer = planes(tmp_path, data, make(), options=options, **settings)
    found = trainer.find_hardest_rows(5)
    right = losses_alone(trainer, data)
    assert found.passes == "rows"
    assert found.losses.tolist() == pytest.approx(right, rel=1e-5)


def test_an_own_compute_loss_is_found_row_by_row(tmp_path):
    class Squared(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False):
            labels = inputs.pop("labels")
            outputs = model(**inputs)
            loss = (outputs["logits"].softmax(-1)[:, 1] - labels).square().mean()
            return (loss, outputs) if return_outputs else loss

    trainer = Squared(Planes(), tiny.arguments(tmp_path), train_dataset=points(40))
    found = trainer.find_hardest_rows(5)
    assert found.passes == "rows"
    assert found.losses.tolist() == pytest.approx(losses_alone(trainer, points(40)), rel=1e-5)


@pytest.mark.parametrize("most", [1, 8])
def test_a_loss_that_is_another_one_later_on_is_found_row_by_row(tmp_path, most):
    """The first batches agree with a formula, and a later one, or a row of it alone, does not."""

    class Late(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
            loss, outputs = super().compute_loss(model, inputs, return_outputs=True)
            is_late = bool((inputs["x"][:, 0] > 3.0).any()) and len(inputs["x"]) <= most
            return (loss * (2 if is_late else 1), outputs) if return_outputs else loss * (1 + is_late)

    data = points(60)
    data[50] = {"x": torch.tensor([4.0, 1.0, 1.0, 1.0]), "labels": data[50]["labels"]}
    for row in (*data[:50], *data[51:]):
        row["x"] = row["x"].clamp(max=2.9)
    trainer = Late(Planes(), tiny.arguments(tmp_path), train_dataset=data)
    found = trainer.find_hardest_rows(60)
    assert found.passes == "rows"
    assert found.losses.tolist() == pytest.approx(losses_alone(trainer, data), rel=1e-5)


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_rows_without_a_finite_loss_come_first_and_are_named(tmp_path, odd):
    data = points(40)
    data[23]["x"] = torch.full((4,), odd)
    found = planes(tmp_path, data).find_hardest_rows(4)
    assert found.rows[0]["row"] == 23
    assert found.rows[0]["outlier"]
    assert found.num_nonfinite == 1
    assert found.outliers[0] == 23
    assert "1 not finite" in str(found)
    assert math.isfinite(found.mean)
    json.dumps(found.to_dict(), allow_nan=False)
    json.dumps(found.to_note(), allow_nan=False)


@pytest.mark.parametrize("smoothing", [0.0, 0.1], ids=["together", "alone"])
@pytest.mark.parametrize("task", ["next token", "masked words", "tokens", "points"])
def test_rows_without_a_label_that_counts_are_not_the_hardest(tmp_path, task, smoothing):
    """They have no loss, as short texts without a mask, or prompts that were cut before the answer."""
    make, data = TASKS[task]
    data, without = data(), [*range(8), 20, 33]
    for row in without:
        ignored = [-100] * 12 if task != "points" else -100
        data[row] = {**data[row], "labels": ignored}
    trainer = tiny.build_trainer(tmp_path, make(), data, label_smoothing_factor=smoothing)
    found = trainer.find_hardest_rows(5)
    assert found.passes == ("rows" if smoothing else "batches")
    assert (found.num_unlabelled, found.num_nonfinite, found.total) == (10, 0, len(data))
    assert found.indices.tolist() == [row for row in range(len(data)) if row not in without]
    right = losses_alone(trainer, [data[row] for row in found.indices])
    assert found.losses.tolist() == pytest.approx(right, rel=1e-4)
    assert all(math.isfinite(row["loss"]) for row in found.rows)


def test_a_first_label_that_nothing_predicts_gives_a_row_no_loss(tmp_path):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=50, max_position_embeddings=32, **sizes))
    data = tiny.causal_data()
    data[4] = {**data[4], "labels": [3] + [-100] * 11}
    found = tiny.build_trainer(tmp_path, model, data).find_hardest_rows(5)
    assert found.passes == "batches"
    assert (found.num_unlabelled, found.num_nonfinite) == (1, 0)
    assert 4 not in found.indices


def test_text_is_shown_by_the_tokenizer(tmp_path):
    class Letters:
        def decode(self, ids):
            return "".join(chr(96 + number % 26 + 1) for number in ids)

    trainer = tiny.build_trainer(
        tmp_path,
        tiny.bert_classifier(),
        tiny.classification_data(),
        options={"processing_class": Letters(), "data_collator": default_data_collator},
    )
    (row,) = trainer.find_hardest_rows(1).rows
    assert row["input"].isalpha()
    assert len(row["input"]) == 12
    assert row["target"].startswith("LABEL_")


def test_without_a_tokenizer_the_text_columns_of_the_dataset_are_shown(tmp_path):
    rows = [
        {**row, "title": f"Title {number}", "text": f"Text {number}"}
        for number, row in enumerate(tiny.classification_data())
    ]
    trainer = tiny.build_trainer(tmp_path, tiny.bert_classifier(), Table.from_list(rows))
    for row in trainer.find_hardest_rows(3).rows:
        assert row["input"] == f"Title {row['row']} | Text {row['row']}"
    (row,) = trainer.find_hardest_rows(1, dataset=tiny.classification_data()).rows
    assert all(part.isdigit() for part in row["input"].split())


def test_another_dataset_can_be_looked_at(tmp_path):
    trainer = planes(tmp_path)
    found = trainer.find_hardest_rows(3, dataset=points(33))
    assert found.num_rows == found.total == 33


# ---- how much is read ----


def test_a_part_of_the_rows_lies_at_equal_distances(tmp_path):
    found = planes(tmp_path).find_hardest_rows(5, max_rows=50)
    assert found.indices.tolist() == list(range(0, 500, 10))
    assert found.total == 500
    assert "The hardest of 50 of 500 rows" in str(found)


def test_rows_that_must_go_alone_are_limited_unless_it_is_said_how_many(tmp_path, monkeypatch):
    monkeypatch.setattr(hardest, "MOST_ALONE", 20)
    trainer = planes(tmp_path, points(60), label_smoothing_factor=0.1)
    assert trainer.find_hardest_rows(5).indices.tolist() == list(range(0, 60, 3))
    assert trainer.find_hardest_rows(5, max_rows=60).num_rows == 60


class Points(IterableDataset):
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return iter(self.rows)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_of_a_stream_the_first_rows_are_looked_at(tmp_path, smoothing):
    settings = {"max_steps": 2, "label_smoothing_factor": smoothing}
    whole = planes(tmp_path, points(60), **settings).find_hardest_rows(5, max_rows=None)
    trainer = planes(tmp_path, Points(points(60)), **settings)
    found = trainer.find_hardest_rows(5)
    assert found.total is None
    assert found.rows == whole.rows
    assert found.losses.tolist() == pytest.approx(whole.losses.tolist(), rel=1e-5)
    assert trainer.find_hardest_rows(5, max_rows=7).indices.tolist() == list(range(7))


def test_rows_that_the_collator_packs_are_looked_at_one_by_one(tmp_path):
    def pack(samples):
        return {"x": torch.stack([s["x"] for s in samples])[None].mean(1), "labels": torch.tensor([0])}

    found = planes(tmp_path, points(12), options={"data_collator": pack}).find_hardest_rows(5)
    assert found.indices.tolist() == list(range(12))


def test_a_packing_collator_may_take_entries_out_of_the_samples(tmp_path):
    class Fresh(Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, index):
            return dict(points(12)[index])

    def pack(samples):
        x, labels = zip(*((sample.pop("x"), sample.pop("labels")) for sample in samples), strict=True)
        return {"x": torch.stack(x).mean(0, keepdim=True), "labels": torch.tensor(labels[:1])}

    trainer = planes(tmp_path, Fresh(), options={"data_collator": pack})
    found = trainer.find_hardest_rows(5)
    assert found.losses.tolist() == pytest.approx(losses_alone(planes(tmp_path), points(12)), rel=1e-5)


def test_a_sample_that_becomes_several_rows_is_one_row_with_all_their_texts(tmp_path):
    def pair(samples):
        """Each sample, and the same one mirrored."""
        x = torch.stack([way * sample["x"] for way in (1, -1) for sample in samples])
        return {"x": x, "labels": torch.tensor([way ^ s["labels"] for way in (0, 1) for s in samples])}

    data = [{"x": row["x"].round(), "labels": row["labels"]} for row in points(12)]
    trainer = planes(tmp_path, data, options={"data_collator": pair})
    found = trainer.find_hardest_rows(12)
    assert sorted(row["row"] for row in found.rows) == list(range(12))
    assert found.losses.tolist() == pytest.approx(losses_alone(trainer, data), rel=1e-5)
    for row in found.rows:
        numbers = [float(number) for number in row["input"].replace("|", "").split()]
        assert numbers == [*data[row["row"]]["x"].tolist(), *(-data[row["row"]]["x"]).tolist()]
        assert row["target"] in ("0 | 1", "1 | 0")


def test_the_rows_are_read_by_the_workers_of_the_run(tmp_path):
    here = planes(tmp_path).find_hardest_rows(5)
    there = planes(tmp_path, dataloader_num_workers=1).find_hardest_rows(5)
    assert here.to_dict()["rows"] == there.to_dict()["rows"]


# ---- no trace ----


class Noise(TrainerCallback):
    """Hears every event that says something."""

    def __init__(self):
        self.heard = []

    def on_log(self, args, state, control, **kwargs):
        self.heard.append("log")

    on_evaluate = on_save = on_prediction_step = on_note = on_log


class Collecting(Trainer):
    """Collects values in its loss, logs in it and records, as libraries do."""

    def __init__(self, *args, **kwargs):
        self._metrics = {"train": [], "eval": []}
        super().__init__(*args, **kwargs)

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
        self._metrics["train" if model.training else "eval"].append(float(loss))
        self._metrics[f"key {len(self._metrics)}"] = [1]
        if not model.training:
            self.log({"of_my_loss": float(loss)})
        self.record("confidence", outputs["logits"].softmax(-1).amax())
        return (loss, outputs) if return_outputs else loss


@pytest.mark.parametrize("kind", [Trainer, Collecting])
@pytest.mark.parametrize("is_trained", [True, False])
def test_everything_is_afterwards_as_it_was(tmp_path, kind, is_trained):
    noise = Noise()
    args = tiny.arguments(tmp_path, max_steps=10, logging_steps=3, report=False)
    trainer = kind(Planes(), args, train_dataset=points(100), callbacks=[noise])
    if is_trained:
        trainer.train()
    trainer.get_train_dataloader()  # looks up once what forward names
    before, heard = everything(trainer), list(noise.heard)
    collected = copy.deepcopy(vars(trainer).get("_metrics"))
    trainer.find_hardest_rows(5)
    assert everything(trainer) == before
    assert noise.heard == heard
    assert vars(trainer).get("_metrics") == collected


class Counting(Planes):
    """Counts rows in a buffer, in evaluation too."""

    def __init__(self):
        super().__init__()
        self.register_buffer("num_rows", torch.zeros(()))

    def forward(self, x, labels=None):
        self.num_rows += len(x)
        return super().forward(x, labels)


class Averaging(Trainer):
    """Keeps numbers of its losses in attributes, some of them new."""

    def __init__(self, *args, **kwargs):
        self.mean, self.total, self.num_losses = torch.zeros(()), torch.zeros(()), 0
        super().__init__(*args, **kwargs)

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
        self.mean = 0.9 * self.mean + 0.1 * loss.detach()
        self.total += loss.detach()
        self.num_losses += 1
        setattr(self, f"loss_{self.num_losses}", float(loss.detach()))
        return (loss, outputs) if return_outputs else loss


def test_what_a_loss_notes_in_attributes_and_buffers_is_put_back(tmp_path):
    args = tiny.arguments(tmp_path, max_steps=4, report=False)
    trainer = Averaging(Counting(), args, train_dataset=points(40))
    trainer.train()

    def state():
        names = [name for name in vars(trainer) if name.startswith("loss_")]
        numbers = (float(trainer.mean), float(trainer.total), trainer.num_losses)
        return (*numbers, float(trainer.model.num_rows), names)

    before = state()
    trainer.find_hardest_rows(5)
    assert state() == before
    assert before[2] == 4


def test_random_masks_are_the_same_in_each_pass(tmp_path):
    def drop(samples):
        batch = default_data_collator(samples)
        return {**batch, "x": batch["x"] * (torch.rand(batch["x"].shape) > 0.3)}

    trainer = planes(tmp_path, options={"data_collator": drop})
    first, second = trainer.find_hardest_rows(5), trainer.find_hardest_rows(5)
    assert first.rows == second.rows
    assert first.losses.tolist() == second.losses.tolist()


def test_training_goes_on_after_a_pass_as_without_it(tmp_path):
    class Look(TrainerCallback):
        def on_step_end(self, args, state, control, trainer, **kwargs):
            if state.global_step == 4:
                trainer.find_hardest_rows(5)

    runs = []
    for number, callbacks in enumerate(([], [Look()])):
        options = {"callbacks": callbacks}
        runs.append(planes(tmp_path / str(number), max_steps=9, options=options, logging_steps=1))
        runs[-1].train()
    first, second = ([log["loss"] for log in run.state.log_history[:-1]] for run in runs)
    assert first == second
    assert plain(runs[0].model.state_dict()) == plain(runs[1].model.state_dict())


def test_a_failing_row_leaves_everything_as_it_was(tmp_path):
    class Fragile(Dataset):
        def __len__(self):
            return 20

        def __getitem__(self, index):
            if index == 13:
                raise OSError("row 13 cannot be read")
            return points(20)[index]

    trainer = planes(tmp_path, Fragile())
    trainer.get_train_dataloader()
    before = everything(trainer)
    with pytest.raises(OSError, match="row 13"):
        trainer.find_hardest_rows(5)
    assert everything(trainer) == before


# ---- what is refused ----


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"count": 0}, "count=0"),
        ({"count": True}, "count=True"),
        ({"max_rows": -1}, "max_rows=-1"),
        ({"max_rows": 0.5}, "max_rows=0.5"),
    ],
)
def test_wrong_numbers_are_refused(tmp_path, options, words):
    with pytest.raises(ValueError, match=words):
        planes(tmp_path).find_hardest_rows(**options)


def test_without_data_there_is_nothing_to_look_at(tmp_path):
    trainer = Trainer(Planes(), tiny.arguments(tmp_path))
    with pytest.raises(ValueError, match="train_dataset"):
        trainer.find_hardest_rows()


def test_the_pass_keeps_no_more_than_it_says(tmp_path):
    """Of the rows, only those that are shown; of the losses, 8 bytes each, and 8 for the number."""
    found = planes(tmp_path).find_hardest_rows(5)
    assert len(found.rows) == 5
    assert found.losses.nbytes + found.indices.nbytes == 16 * 500
    assert isinstance(found, results.HardestRows)
