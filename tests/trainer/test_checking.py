"""`Trainer.check()` speaks of each class of mistake before step 1, and leaves no trace."""

from __future__ import annotations

import json
import os
import random
import socket
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset

import tiny
from footplate import EarlyStoppingCallback, Trainer, TrainerCallback
from footplate.state import ExportableState
from footplate.training.findings import Outcome

SAVES = {"save_strategy": "steps", "save_steps": 2}
EVALUATES = {"eval_strategy": "steps", "eval_steps": 2, "max_steps": 4}


def build(folder, *, model=None, data=None, trainer=Trainer, given=None, **settings):
    arguments = tiny.arguments(folder, **{**EVALUATES, **settings})
    data = data if data is not None else tiny.regression_data(16)
    options = {"train_dataset": data, "eval_dataset": tiny.regression_data(16), **(given or {})}
    return trainer(model if model is not None else tiny.Regression(), arguments, **options)


def only(report, part, outcome=Outcome.FAILED):
    """The one finding of a part, which came out like this."""
    (finding,) = report.about(part)
    assert finding.outcome is outcome, str(report)
    assert report.ok == (not report.of(Outcome.FAILED))
    return finding


# ---- all is well ----


def test_a_run_that_will_work_passes_every_part(tmp_path):
    report = build(tmp_path, metric_for_best_model="loss", **SAVES).check()
    assert report.ok
    assert [finding.part for finding in report.findings] == [
        *("update", "evaluation", "best metric", "disk", "saving")
    ]
    first, second, third = str(report).splitlines()
    assert first.startswith("rehearsed 5 passed, in ")
    assert second.startswith("passed    update (the largest micro-batch, 8 rows")
    assert third == "change    nothing"
    assert json.loads(json.dumps(report.to_dict()))["ok"] is True


def test_a_trainer_without_evaluation_and_saves_tries_an_update_and_the_weights(tmp_path):
    given = {"eval_dataset": None}
    report = build(tmp_path, given=given, eval_strategy="no").check()
    assert [finding.part for finding in report.findings] == ["update", "saving"]


# ---- no trace ----

CALLS: list[str] = []  # of the functions below


class CountingRows(Dataset):
    """Rows with noise from four generators, one of its own, and three places that count reads."""

    num_reads_of_all = 0

    def __init__(self):
        self.reads: list[int] = []
        self.generator = np.random.default_rng(7)
        self.running = torch.zeros(1)

    def __len__(self):
        return 24

    def __getitem__(self, index):
        CALLS.append("row")
        type(self).num_reads_of_all += 1
        self.reads.append(index)
        self.running += 1
        noise = random.random() + float(np.random.rand()) + float(self.generator.random()) + torch.rand(4)
        return {"x": torch.full((4,), index / 24) + noise, "labels": index % 3}


class CountingModel(nn.Module):
    """Dropout, running means, and a count of calls in a dictionary."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.drop, self.head = nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Linear(4, 3)
        self.seen = {"calls": 0}

    def forward(self, x, labels=None):
        CALLS.append("forward")
        self.seen["calls"] += 1
        logits = self.head(self.drop(self.norm(x)))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class CountingCollator:
    def __init__(self):
        self.num_calls, self.generator = 0, torch.Generator().manual_seed(3)

    def __call__(self, rows):
        self.num_calls += 1
        x = torch.stack([row["x"] for row in rows]) + torch.rand(1, generator=self.generator)
        return {"x": x, "labels": torch.tensor([row["labels"] for row in rows])}


class CountingCallback(TrainerCallback, ExportableState):
    def __init__(self):
        self.events: list[str] = []

    def on_step_end(self, args, state, control, **kwargs):
        self.events.append(f"step {state.global_step}")

    def on_evaluate(self, args, state, control, **kwargs):
        self.events.append(f"evaluate {state.global_step}")

    def state(self):
        return {"args": {}, "attributes": {"events": list(self.events)}}


class CountingTrainer(Trainer):
    num_steps = 0

    def training_step(self, *args, **kwargs):
        CALLS.append("training_step")
        self.num_steps += 1
        return super().training_step(*args, **kwargs)

    def compute_loss(self, *args, **kwargs):
        self.record("extra", 1.0)
        return super().compute_loss(*args, **kwargs)


def run_counting(folder, checks, num_workers, own_optimizer):
    """A run of all of the above; what can be seen of it afterwards."""
    CALLS.clear()
    CountingRows.num_reads_of_all = 0
    torch.manual_seed(5), random.seed(5), np.random.seed(5)
    model, rows, collator, callback = CountingModel(), CountingRows(), CountingCollator(), CountingCallback()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) if own_optimizer else None
    metrics: list[float] = []

    def compute_metrics(prediction):
        metrics.append(float(prediction.predictions.sum()))
        return {"calls": len(metrics)}

    trainer = build(
        folder,
        model=model,
        data=rows,
        trainer=CountingTrainer,
        given={
            "eval_dataset": CountingRows(),
            "data_collator": collator,
            "compute_metrics": compute_metrics,
            "callbacks": [callback],
            "optimizers": (optimizer, None),
        },
        metric_for_best_model="calls",
        logging_steps=1,
        dataloader_num_workers=num_workers,
        report_to="none",
        **SAVES,
    )
    before = sorted(os.listdir(folder))
    if checks:
        assert trainer.check().ok
        assert sorted(os.listdir(folder)) == before
        assert (CALLS, metrics, callback.events, rows.reads) == ([], [], [], [])
        assert trainer.optimizer is optimizer
        assert (trainer.state.global_step, trainer.state.log_history) == (0, [])
        assert all(parameter.grad is None for parameter in model.parameters())
        assert trainer.check().ok  # and again
    trainer.train()
    timed = ("runtime", "per_second")
    logs = [
        {key: value for key, value in entry.items() if not key.endswith(timed)}
        for entry in trainer.state.log_history
    ]
    return {
        "logs": logs,
        "weights": {name: value.clone() for name, value in model.state_dict().items()},
        "momentum": trainer.optimizer.state_dict()["state"],
        "calls": list(CALLS),
        "metrics": metrics,
        "events": callback.events,
        "counts": (trainer.num_steps, collator.num_calls, model.seen, CountingRows.num_reads_of_all),
        "rows": (rows.reads, float(rows.running), rows.generator.bit_generator.state),
        "random": (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()),
        "files": sorted(path.name for path in Path(folder).rglob("*")),
    }


@pytest.mark.parametrize(("num_workers", "own_optimizer"), [(0, False), (0, True), (2, False)])
def test_a_run_after_a_check_is_the_same_to_the_last_bit(tmp_path, num_workers, own_optimizer):
    without = run_counting(tmp_path / "without", False, num_workers, own_optimizer)
    with_check = run_counting(tmp_path / "with", True, num_workers, own_optimizer)
    for name, weight in without.pop("weights").items():
        assert torch.equal(weight, with_check["weights"][name]), name
    for number, state in without.pop("momentum").items():
        for name, value in state.items():
            assert value is None or torch.equal(value, with_check["momentum"][number][name]), name
    for part in without:
        assert without[part] == with_check[part], part


def test_callbacks_hear_of_nothing_from_an_override_that_asks_their_handler(tmp_path, capsys):
    class Asking(Trainer):
        def evaluate(self, *args, **kwargs):
            metrics = super().evaluate(*args, **kwargs)
            handler = self.callback_handler
            self.control = handler.on_evaluate(self.args, self.state, self.control, metrics)
            self.control = handler.call_event("on_save", self.args, self.state, self.control)
            return metrics

        def prediction_step(self, *args, **kwargs):
            self.callback_handler.on_prediction_step(self.args, self.state, self.control)
            return super().prediction_step(*args, **kwargs)

    class Telling(TrainerCallback):
        def on_evaluate(self, args, state, control, **kwargs):
            print("heard")

        on_save = on_prediction_step = on_evaluate

    trainer = build(tmp_path, trainer=Asking, given={"callbacks": [Telling()]})
    only(trainer.check(), "evaluation", Outcome.PASSED)
    assert "heard" not in capsys.readouterr().out
    trainer.evaluate()
    assert "heard" in capsys.readouterr().out


def test_large_tensors_outside_of_the_model_are_as_they_were_or_named(tmp_path):
    class Distilling(Trainer):
        teacher = None
        cache = None

        def compute_loss(self, model, inputs, *args, **kwargs):
            with torch.no_grad():
                self.teacher.weight.add_(1.0)
                if self.cache is not None:
                    self.cache[0] += 1.0
            return super().compute_loss(model, inputs, *args, **kwargs)

    trainer = build(tmp_path, trainer=Distilling)
    trainer.teacher = nn.Linear(4096, 1025)  # 17 MB
    before = trainer.teacher.weight.detach().clone()
    assert not trainer.check().about("no trace")
    assert torch.equal(trainer.teacher.weight, before)
    trainer.cache = torch.zeros(4096, 1025)
    finding = only(trainer.check(), "no trace", Outcome.WARNING)
    assert "[4096, 1025] of torch.float32" in finding.text


def test_what_an_optimizer_of_the_user_has_learned_so_far_stays(tmp_path):
    trainer = build(tmp_path / "first", **SAVES)
    trainer.train()
    model, optimizer = trainer.model, trainer.optimizer
    before = [value.clone() for state in optimizer.state.values() for value in state.values()]
    tensors = [value for state in optimizer.state.values() for value in state.values()]
    model.slope.grad = torch.tensor(7.0)
    history = list(trainer.state.log_history)
    assert trainer.check().ok
    now = [value for state in optimizer.state.values() for value in state.values()]
    assert all(one is other for one, other in zip(tensors, now, strict=True))
    assert all(torch.equal(one, other) for one, other in zip(before, now, strict=True))
    assert model.slope.grad == 7.0
    assert trainer.state.log_history == history
    assert trainer.state.global_step == 4


def test_model_init_is_not_called_and_the_model_stays_the_same(tmp_path):
    made = []

    def make():
        made.append(tiny.Regression())
        return made[-1]

    trainer = Trainer(
        args=tiny.arguments(tmp_path, max_steps=2), model_init=make, train_dataset=tiny.regression_data(16)
    )
    assert trainer.check().ok
    assert len(made) == 1
    assert trainer.model is made[0]
    assert trainer.model_init is make


def test_what_cannot_be_put_back_is_not_tried_and_said(tmp_path):
    class Endless(IterableDataset):
        def __init__(self):
            self.rows = iter(tiny.regression_data(64))

        def __iter__(self):
            return self.rows

    trainer = build(tmp_path, data=Endless())
    (finding,) = trainer.check().of(Outcome.NOT_TRIED)
    assert "which cannot be read again. `footplate check` tries them" in finding.text
    assert trainer.train().global_step == 4


# ---- the update ----


class Lines(nn.Module):
    """Sums embeddings of tokens, of as many positions as it has."""

    def __init__(self, num_positions=1000):
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.places = nn.Embedding(50, 8), nn.Embedding(num_positions, 8)
        self.head = nn.Linear(8, 2)
        self.widths: list[tuple[int, ...]] = []
        self.limit: int | None = None

    def forward(self, input_ids, labels=None):
        self.widths.append(tuple(input_ids.shape))
        if self.limit is not None and input_ids.numel() > self.limit:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried {input_ids.numel()} tokens.")
        hidden = self.tokens(input_ids) + self.places(torch.arange(input_ids.shape[1]))
        logits = self.head(hidden.sum(1))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def pad(rows):
    width = max(len(row["input_ids"]) for row in rows)
    ids = [row["input_ids"] + [0] * (width - len(row["input_ids"])) for row in rows]
    return {"input_ids": torch.tensor(ids), "labels": torch.tensor([row["labels"] for row in rows])}


def line_rows(long_ones, num_rows=40):
    """Rows of five tokens, but for those that are long: index to length."""
    return [
        {"input_ids": [1 + k % 49 for k in range(long_ones.get(i, 5))], "labels": i % 2}
        for i in range(num_rows)
    ]


def build_lines(folder, model, rows, **settings):
    given = {"data_collator": pad, "eval_dataset": None}
    return build(folder, model=model, data=rows, given=given, eval_strategy="no", **settings)


def test_the_longest_rows_are_tried_first_and_together(tmp_path, capsys):
    class Noting(Trainer):
        def training_step(self, model, inputs, *args):
            print("rows of", sorted((inputs["input_ids"] != 0).sum(1).tolist()))  # a list would be put back
            return super().training_step(model, inputs, *args)

    rows = line_rows({31: 90, 4: 70, 17: 80})
    trainer = build(
        tmp_path,
        model=Lines(),
        data=rows,
        trainer=Noting,
        given={"data_collator": pad, "eval_dataset": None},
        eval_strategy="no",
        per_device_train_batch_size=4,
    )
    finding = only(trainer.check(), "update", Outcome.PASSED)
    assert finding.text.startswith("the largest micro-batch, 4 rows of 90 tokens, at most ")
    assert capsys.readouterr().out == "rows of [5, 70, 80, 90]\n" * 2


def test_a_column_of_lengths_says_which_rows_are_the_longest(tmp_path):
    rows = [{**row, "length": 5} for row in line_rows({})]
    rows[23]["length"], rows[23]["input_ids"] = 33, [1] * 33
    report = build_lines(tmp_path, Lines(), rows, per_device_train_batch_size=1).check()
    assert "1 rows of 33 tokens" in only(report, "update", Outcome.PASSED).text


def test_a_batch_by_tokens_is_tried_at_its_fullest(tmp_path):
    model = Lines()
    report = build_lines(tmp_path, model, line_rows({7: 33}), per_device_train_tokens=64).check()
    assert "12 rows of 5 tokens" in only(report, "update", Outcome.PASSED).text


def test_memory_that_the_longest_rows_exhaust_is_found_before_step_1(tmp_path):
    model = Lines()
    model.limit = 200  # tokens; an ordinary batch has 40
    trainer = build_lines(tmp_path, model, line_rows({31: 90, 4: 90}), gradient_accumulation_steps=2)
    finding = only(trainer.check(), "update")
    assert finding.text.startswith("out of memory with the largest micro-batch, 8 rows of 90 tokens")
    assert "CUDA out of memory. Tried 720 tokens" in finding.text
    assert finding.text.endswith("2 of them fit.")
    assert finding.settings[:2] == (
        "per_device_train_batch_size=2 with gradient_accumulation_steps=8",
        "auto_find_batch_size=True",
    )
    assert any("max_length" in setting for setting in finding.settings)


@pytest.mark.parametrize("num_batches", [1, 2])
def test_memory_that_the_second_update_exhausts_is_found_before_step_1(tmp_path, num_batches):
    """The states of Adam are there from the first step on; so are gradients in a second micro-batch."""

    class Full(Lines):
        def forward(self, input_ids, labels=None):
            has_states = num_batches == 1 and bool(trainer.optimizer.state)
            has_gradients = self.head.weight.grad is not None
            self.limit = 200 if has_states or has_gradients else None
            return super().forward(input_ids, labels)

    rows = line_rows({31: 90, 4: 90})
    trainer = build_lines(tmp_path, Full(), rows, gradient_accumulation_steps=num_batches)
    finding = only(trainer.check(), "update")
    assert "CUDA out of memory. Tried 720 tokens" in finding.text
    assert finding.text.endswith("2 of them fit.")


def test_memory_that_a_single_row_exhausts_is_said(tmp_path):
    model = Lines()
    model.limit = 80
    finding = only(build_lines(tmp_path, model, line_rows({31: 90})).check(), "update")
    assert finding.text.endswith("Not even one of these rows fits.")
    assert "max_length" in finding.settings[0]


def test_memory_that_splitting_saves_is_a_warning(tmp_path):
    model = Lines()
    model.limit = 200
    report = build_lines(tmp_path, model, line_rows({31: 90}), auto_find_batch_size=True).check()
    assert "auto_find_batch_size will split it" in only(report, "update", Outcome.WARNING).text


def test_a_budget_of_tokens_that_is_too_large_is_lowered(tmp_path):
    model = Lines()
    model.limit = 30
    report = build_lines(tmp_path, model, line_rows({}), per_device_train_tokens=60).check()
    assert only(report, "update").settings[0] == "per_device_train_tokens=30"


def test_a_row_longer_than_the_model_has_positions_fails_before_step_1(tmp_path):
    model = Lines(num_positions=32)
    model.config = type("Config", (), {"max_position_embeddings": 32})()
    finding = only(build_lines(tmp_path, model, line_rows({31: 90})).check(), "update")
    assert "IndexError: index out of range" in finding.text
    assert "The batch is 90 tokens wide, and the model has 32 positions." in finding.text
    assert "The first batch of the run does not: the run would fail later." in finding.text
    assert "max_length" in finding.settings[0]


def test_a_model_that_fails_on_every_batch_is_told_from_one_that_fails_on_the_longest(tmp_path):
    finding = only(build_lines(tmp_path, Lines(num_positions=2), line_rows({31: 90})).check(), "update")
    assert "The first batch of the run fails too." in finding.text


@pytest.mark.parametrize(("skips", "outcome"), [("warn", Outcome.FAILED), ("skip", Outcome.WARNING)])
def test_a_loss_that_is_not_a_number_fails_and_damages_nothing_else(tmp_path, skips, outcome):
    rows = [{**row, "labels": torch.tensor(float("nan"))} for row in tiny.regression_data(16)]
    trainer = build(tmp_path, data=rows, on_nonfinite=skips, metric_for_best_model="loss", **SAVES)
    report = trainer.check()
    finding = only(report, "update", outcome)
    assert "is nan" in finding.text
    assert "learning_rate" not in finding.settings
    only(report, "best metric", Outcome.PASSED)  # by weights that are still numbers
    only(report, "saving", Outcome.PASSED)


def test_running_means_are_still_numbers_after_a_row_that_is_none(tmp_path):
    class Normed(tiny.Regression):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(1)

        def forward(self, x, labels=None):
            return super().forward(self.norm(x[:, None])[:, 0], labels)

    rows = [{**row, "x": torch.tensor(float("nan"))} for row in tiny.regression_data(16)]
    report = build(tmp_path, model=Normed(), data=rows, metric_for_best_model="loss").check()
    assert "is nan" in only(report, "update").text
    only(report, "best metric", Outcome.PASSED)


def test_a_collator_that_fails_is_named(tmp_path):
    def broken(rows):
        return {"x": rows[0]["missing"]}

    finding = only(build(tmp_path, given={"data_collator": broken}).check(), "data")
    assert "KeyError: 'missing'" in finding.text
    assert "in broken" in finding.text
    assert "data_collator" in finding.settings


def test_an_optimizer_that_cannot_be_built_is_found(tmp_path):
    class Failing(Trainer):
        def create_optimizer(self, *args, **kwargs):
            raise RuntimeError("no such optimizer")

    finding = only(build(tmp_path, trainer=Failing).check(), "preparation")
    assert "no such optimizer" in finding.text


def test_a_loader_of_the_user_is_tried_by_its_first_batch(tmp_path):
    class Own(Trainer):
        def get_train_dataloader(self):
            return [pad(line_rows({})[:3]), pad(line_rows({})[3:6])]

    trainer = build(
        tmp_path,
        model=Lines(),
        data=line_rows({}),
        trainer=Own,
        given={"eval_dataset": None},
        eval_strategy="no",
    )
    report = trainer.check()
    assert "the first micro-batch, 3 rows of 5 tokens" in only(report, "update", Outcome.PASSED).text


# ---- the evaluation ----


def test_metrics_that_raise_fail(tmp_path):
    def broken(prediction):
        return {"f1": {}["missing"]}

    finding = only(build(tmp_path, given={"compute_metrics": broken}).check(), "evaluation")
    assert "KeyError: 'missing'" in finding.text
    assert "in broken" in finding.text
    assert finding.settings == ("compute_metrics", "eval_dataset")


@pytest.mark.parametrize("best", [None, "missing"])
def test_an_evaluation_that_the_run_does_not_make_is_only_warned_of(tmp_path, best):
    def broken(prediction):
        return {} if best else {"f1": {}["missing"]}

    given = {"compute_metrics": broken}
    settings = {"eval_strategy": "no", "metric_for_best_model": best, "rehearsal": "full"}
    trainer = build(tmp_path, given=given, **settings)
    finding = only(trainer.check(), "best metric" if best else "evaluation", Outcome.WARNING)
    assert "missing" in finding.text
    assert trainer.train().global_step == 4
    stops = {**given, "callbacks": [EarlyStoppingCallback()]}
    if best:  # this one ends such a run
        only(build(tmp_path, given=stops, **settings).check(), "best metric")


@pytest.mark.parametrize("name", ["acc", "eval_acc"])
def test_a_best_metric_that_no_evaluation_gives_fails(tmp_path, name):
    given = {"compute_metrics": lambda prediction: {"accuracy": 1.0}, "callbacks": [EarlyStoppingCallback()]}
    finding = only(build(tmp_path, given=given, metric_for_best_model=name).check(), "best metric")
    assert f"metric_for_best_model={name!r} is not among what evaluation gives: eval_accuracy" in finding.text
    assert "(EarlyStoppingCallback watches it)" in finding.text
    assert finding.settings == ("metric_for_best_model", "compute_metrics")


def test_a_best_metric_that_log_may_add_is_a_warning(tmp_path):
    class Adding(Trainer):
        def log(self, logs, *args, **kwargs):
            logs["eval_added"] = 1.0
            super().log(logs, *args, **kwargs)

    only(
        build(tmp_path, trainer=Adding, metric_for_best_model="added").check(), "best metric", Outcome.WARNING
    )


@pytest.mark.parametrize(("name", "is_greater"), [("accuracy", False), ("loss", True)])
def test_a_best_metric_in_the_wrong_direction_is_a_warning(tmp_path, name, is_greater):
    given = {"compute_metrics": lambda prediction: {"accuracy": 0.5}}
    trainer = build(tmp_path, given=given, metric_for_best_model=name, greater_is_better=is_greater)
    finding = only(trainer.check(), "best metric", Outcome.WARNING)
    assert f"greater_is_better={is_greater}" in finding.text
    assert finding.settings[0] == "greater_is_better"


def test_early_stopping_without_a_metric_fails(tmp_path):
    given = {"callbacks": [EarlyStoppingCallback()]}
    assert only(build(tmp_path, given=given).check(), "best metric").settings == ("metric_for_best_model",)


def test_one_batch_of_every_set_is_evaluated_by_the_override(tmp_path):
    class Own(Trainer):
        def evaluate(self, *args, **kwargs):
            metrics = super().evaluate(*args, **kwargs)
            return {**metrics, "eval_own": 1.0}

    sets = {"one": tiny.regression_data(16), "two": tiny.regression_data(3)}
    rows = []

    def compute_metrics(prediction):
        rows.append(len(prediction.predictions))
        assert len(prediction.predictions) <= 8
        return {"f1": 1.0}

    given = {"eval_dataset": sets, "compute_metrics": compute_metrics}
    report = build(tmp_path, trainer=Own, given=given, metric_for_best_model="own").check()
    assert "eval_one_f1" in only(report, "evaluation", Outcome.PASSED).text
    assert only(report, "best metric", Outcome.PASSED)
    assert rows == []  # put back


# ---- generation ----


def seq2seq(folder, **settings):
    from transformers import BartConfig, BartForConditionalGeneration

    from footplate import Seq2SeqTrainer, Seq2SeqTrainingArguments

    torch.manual_seed(0)
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "max_position_embeddings": 32}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    widths = {"encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    config = BartConfig(vocab_size=50, forced_eos_token_id=None, **sizes, **heads, **widths, **tokens)
    rows = [{"input_ids": row, "labels": row[:6]} for row in tiny.token_rows(16)]
    quiet = {"report_to": "none", "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}
    args = Seq2SeqTrainingArguments(
        str(folder), predict_with_generate=True, **{**quiet, **EVALUATES, **settings}
    )
    return Seq2SeqTrainer(
        BartForConditionalGeneration(config),
        args,
        train_dataset=rows,
        eval_dataset=rows,
        compute_metrics=lambda prediction: {"rows": len(prediction.predictions)},
    )


def test_one_answer_is_generated_and_two_rows_are_measured(tmp_path):
    report = seq2seq(tmp_path, generation_max_length=7).check()
    assert "one answer of 1 x " in only(report, "generation", Outcome.PASSED).text
    assert only(report, "evaluation", Outcome.PASSED).text.startswith("2 rows")


def test_generation_that_fails_is_found(tmp_path):
    trainer = seq2seq(tmp_path, generation_max_length=200)
    trainer.model.generation_config.eos_token_id = None  # goes on until the model has no positions left
    finding = only(trainer.check(), "generation")
    assert "IndexError" in finding.text
    assert "generation_max_length" in finding.settings


# ---- saving ----


class Holding(TrainerCallback, ExportableState):
    """Has a state that JSON may not be able to hold."""

    def __init__(self, held):
        self.held = held

    def state(self):
        return {"args": {}, "attributes": {"held": self.held}}


def test_a_state_of_a_callback_that_cannot_be_saved_fails(tmp_path):
    given = {"callbacks": [Holding(lambda: None)]}
    finding = only(build(tmp_path, given=given, **SAVES).check(), "saving")
    assert "trainer_state.json cannot hold the state of these callbacks: Holding: " in finding.text
    assert finding.settings == ("state() of Holding",)


def test_a_state_of_a_callback_that_does_not_come_back_is_a_warning(tmp_path):
    class Forgetting(TrainerCallback, ExportableState):
        def __init__(self):
            self._count = 3

        def state(self):
            # an attribute that no other code reads
            self._count += 1
            return {"args": {}, "attributes": {"count": self._count}}

    report = build(tmp_path, given={"callbacks": [Forgetting()]}, **SAVES).check()
    assert "Forgetting[0]" in only(report, "saving", Outcome.WARNING).text


def test_a_weight_that_is_left_out_of_the_save_is_named(tmp_path):
    class Lossy(tiny.Regression):
        def state_dict(self, *args, **kwargs):
            return {"slope": super().state_dict(*args, **kwargs)["slope"]}

    finding = only(build(tmp_path, model=Lossy(), **SAVES).check(), "saving")
    assert "these weights do not come back as they were saved: offset" in finding.text


def test_a_weight_that_is_saved_otherwise_is_named(tmp_path):
    class Lossy(tiny.Regression):
        def state_dict(self, *args, **kwargs):
            state = super().state_dict(*args, **kwargs)
            if not kwargs.get("keep_vars"):
                state["offset"] = state["offset"] + 1.0
            return state

    finding = only(build(tmp_path, model=Lossy(), **SAVES).check(), "saving")
    assert "these weights do not come back as they were saved: offset" in finding.text


def test_weights_that_share_memory_come_back(tmp_path):
    class Tied(tiny.Regression):
        def __init__(self):
            super().__init__()
            self.again = self.slope

    assert build(tmp_path, model=Tied(), **SAVES).check().ok


def test_an_optimizer_whose_state_no_file_can_hold_fails(tmp_path):
    class Odd(torch.optim.SGD):
        def state_dict(self):
            return {**super().state_dict(), "helper": lambda: None}

    model = tiny.Regression()
    given = {"optimizers": (Odd(model.parameters(), lr=0.1), None)}
    finding = only(build(tmp_path, model=model, given=given, **SAVES).check(), "saving")
    assert "a checkpoint could not be written" in finding.text
    assert finding.settings[0] == "save_only_model=True"


def test_a_schedule_that_cannot_be_loaded_fails(tmp_path):
    class Stubborn(torch.optim.lr_scheduler.LambdaLR):
        def load_state_dict(self, state):
            raise RuntimeError("not this one")

    model = tiny.Regression()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given = {"optimizers": (optimizer, Stubborn(optimizer, lambda step: 1.0))}
    finding = only(build(tmp_path, model=model, given=given, **SAVES).check(), "saving")
    assert finding.text.startswith("optimizer and schedule cannot be loaded again: ")
    assert "not this one" in finding.text


def test_random_states_that_do_not_come_back_are_warned_of(tmp_path):
    class Forgetting(Trainer):
        def _load_rng_state(self, checkpoint):
            pass

    finding = only(build(tmp_path, trainer=Forgetting, **SAVES).check(), "saving", Outcome.WARNING)
    assert "random states do not come back as they were saved: cpu, numpy, python" in finding.text


def test_an_override_that_saves_nothing_is_found(tmp_path):
    class Silent(Trainer):
        def _save_checkpoint(self, model, trial):
            pass

    finding = only(build(tmp_path, trainer=Silent, **SAVES).check(), "saving")
    assert "left no checkpoint that a run could resume from" in finding.text


# ---- disk and trackers ----


def test_a_disk_that_is_too_small_for_the_checkpoints_fails(tmp_path):
    """A hundred million checkpoints of thirty thousand bytes."""
    report = build(tmp_path, max_steps=100_000_000, save_strategy="steps", save_steps=1).check()
    finding = only(report, "disk")
    assert "the run will keep up to 100000000 checkpoints of 30." in finding.text
    assert finding.settings[0].startswith("save_total_limit=")
    assert str(tmp_path) in finding.text
    limited = build(tmp_path, max_steps=100_000_000, save_strategy="steps", save_steps=1, save_total_limit=2)
    assert only(limited.check(), "disk", Outcome.PASSED)


@pytest.fixture
def closed_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def test_a_tracker_that_does_not_answer_fails(tmp_path, monkeypatch, closed_port):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{closed_port}")
    finding = only(build(tmp_path, report_to="mlflow").check(), "trackers")
    assert f"mlflow: http://127.0.0.1:{closed_port} does not answer" in finding.text
    assert finding.settings == ("report_to without 'mlflow'", "MLFLOW_TRACKING_URI")


def test_a_tracker_that_answers_passes_and_hears_of_nothing(tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.getsockname()[1]}")
        report = build(tmp_path, report_to="mlflow").check()
        assert "mlflow at http://127.0.0.1" in only(report, "trackers", Outcome.PASSED).text
        connection, _ = server.accept()
        assert connection.recv(100) == b""
        connection.close()


def test_a_tracker_that_writes_to_the_disk_passes(tmp_path):
    only(build(tmp_path, report_to="tensorboard").check(), "trackers", Outcome.PASSED)
    assert not list(tmp_path.rglob("*tfevents*"))
