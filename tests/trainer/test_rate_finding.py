"""`Trainer.find_learning_rate()` finds rates that train well, refuses what it cannot do, leaves no trace."""

from __future__ import annotations

import logging
import os
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset

import tiny
from footplate import Adafactor, Trainer, TrainerCallback

SETTINGS = {"per_device_train_batch_size": 32, "save_strategy": "no", "learning_rate": 1e-3}


class Classifier(nn.Module):
    """A small MLP for four classes that no line divides."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        layers = nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU()
        self.layers = nn.Sequential(*layers, nn.Linear(32, 4))

    def forward(self, x, labels):
        return {"loss": nn.functional.cross_entropy(self.layers(x), labels)}


def classes(num_rows=512):
    x = torch.randn(num_rows, 8, generator=torch.Generator().manual_seed(0))
    labels = (x[:, 0] * x[:, 1] > 0).long() * 2 + (x[:, 2] + x[:, 3] > 0).long()
    return [{"x": x[row], "labels": labels[row]} for row in range(num_rows)]


class Continues(nn.Module):
    """A transformer of two layers that goes on with sequences."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.places = nn.Embedding(20, 32), nn.Embedding(16, 32)
        layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 20)

    def forward(self, input_ids, labels):
        length = input_ids.shape[1]
        mask = torch.triu(torch.full((length, length), float("-inf")), 1)
        hidden = self.layers(self.tokens(input_ids) + self.places(torch.arange(length)), mask=mask)
        logits = self.head(hidden[:, :-1]).flatten(0, 1)
        return {"loss": nn.functional.cross_entropy(logits, labels[:, 1:].flatten())}


def sequences(num_rows=512):
    generator = torch.Generator().manual_seed(0)
    first = torch.randint(0, 20, (num_rows, 1), generator=generator)
    step = torch.randint(1, 4, (num_rows, 1), generator=generator)
    rows = (first + step * torch.arange(12)) % 20
    return [{"input_ids": row, "labels": row} for row in rows]


def build(folder, model=None, data=None, trainer=Trainer, given=None, **settings):
    settings = {**SETTINGS, "max_steps": 20, **settings}
    data = data if data is not None else classes()
    model = model if model is not None else Classifier()
    return trainer(model, tiny.arguments(folder, **settings), train_dataset=data, **(given or {}))


# ---- the suggestion is good ----


def stack(rows, name):
    return torch.stack([row[name] for row in rows])


def loss_after(folder, model, data, **settings):
    """The loss on all rows after a whole run."""
    trainer = build(folder, model(), data(), max_steps=100, **settings)
    trainer.train()
    trainer.model.eval()
    rows = data()
    with torch.no_grad():
        return float(
            trainer.model(**{name: torch.stack([row[name] for row in rows]) for name in rows[0]})["loss"]
        )


@pytest.mark.parametrize(
    ("model", "data", "settings"),
    [
        (Classifier, classes, {"optim": "adamw_torch"}),
        (Classifier, classes, {"optim": "sgd"}),
        (Classifier, classes, {"optim": "adafactor"}),
        (Classifier, classes, {"optim": "rmsprop", "lr_scheduler_type": "constant"}),
        (Classifier, classes, {"optim": "sgd", "max_grad_norm": 0.0, "warmup_steps": 5}),
        (Continues, sequences, {"optim": "adamw_torch"}),
        (Continues, sequences, {"optim": "sgd"}),
    ],
)
def test_the_suggestion_trains_better_than_a_hundredth_and_thirty_times_it(tmp_path, model, data, settings):
    found = build(tmp_path, model(), data(), **settings).find_learning_rate()
    assert found.suggestion is not None, found.problem
    rates = found.suggestion / 100, found.suggestion, found.suggestion * 30
    low, good, high = (
        loss_after(tmp_path, model, data, **{**settings, "learning_rate": rate}) for rate in rates
    )
    assert good < 0.75 * low
    assert not good >= 0.75 * high  # which may be no number
    assert found.suggestion < found.minimum


def test_an_update_at_a_known_rate_gives_the_known_loss(tmp_path):
    """Plain gradient descent, computed by hand: clipped, by two micro-batches, the last of them short."""
    rows = tiny.regression_data(7)
    settings = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "optim": "sgd"}
    trainer = build(tmp_path, tiny.Regression(), rows, max_grad_norm=1.0, **settings)
    found = trainer.find_learning_rate(1e-3, 1e-1, 10)
    model, losses = tiny.Regression(), []
    for update in range(10):
        epoch, half = divmod(update, 2)
        order = torch.randperm(7, generator=torch.Generator().manual_seed(trainer.args.seed + epoch)).tolist()
        chosen = [rows[index] for index in order[4 * half : 4 * half + 4]]
        loss = sum(
            model(stack(batch, "x"), stack(batch, "labels"))["loss"] / 2 for batch in (chosen[:2], chosen[2:])
        )
        losses.append(loss.item())
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        factor = min(1.0, 1.0 / (float(torch.stack(gradients).norm()) + 1e-6))
        with torch.no_grad():
            for weight, gradient in zip(model.parameters(), gradients, strict=True):
                weight -= found.rates[update] * factor * gradient
    assert found.losses == pytest.approx(losses, rel=1e-5)
    assert found.stopped == "complete"


# ---- no trace ----

CALLS: list[str] = []  # of the functions below


class NoisyRows(Dataset):
    """Rows with noise from the global generators and from one of its own, which counts reads."""

    def __init__(self, num_rows=26):
        self.num_rows, self.reads, self.generator = num_rows, [], np.random.default_rng(7)

    def __len__(self):
        return self.num_rows

    def __getitem__(self, index):
        self.reads.append(index)
        noise = random.random() + float(np.random.rand()) + float(self.generator.random())
        return {"x": torch.full((4,), index / 26) + noise + torch.rand(4), "labels": index % 3}


class Normed(nn.Module):
    """Dropout, running means, and a count of calls."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.drop, self.head = nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Linear(4, 3)
        self.num_calls = 0

    def forward(self, x, labels=None):
        self.num_calls += 1
        logits = self.head(self.drop(self.norm(x)))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Events(TrainerCallback):
    def __init__(self):
        self.heard: list[str] = []

    def __getattribute__(self, name):
        if not name.startswith("on_"):
            return super().__getattribute__(name)
        heard = self.heard
        return lambda args, state, control, **kwargs: heard.append(f"{name} {state.global_step}")


class Own(Trainer):
    """Overrides a loss, which draws and counts, and the optimizer."""

    num_losses = 0

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        self.num_losses += 1
        self.record("drawn", torch.rand(()))
        loss, outputs = super().compute_loss(model, inputs, True)
        return (loss * 2, outputs) if return_outputs else loss * 2

    def create_optimizer(self):
        if self.optimizer is None:
            CALLS.append("create_optimizer")
            rates = (
                {"params": self.model.head.parameters(), "lr": 1e-2},
                {"params": self.model.norm.parameters()},
            )
            self.optimizer = torch.optim.RMSprop(rates, lr=1e-3, momentum=0.5)
        return self.optimizer


def log_of(trainer):
    timed = ("runtime", "per_second")
    return [
        {key: value for key, value in entry.items() if not key.endswith(timed)}
        for entry in trainer.state.log_history
    ]


def make_noisy(folder, kind=Trainer, optimizer=None, **settings):
    torch.manual_seed(5), random.seed(5), np.random.seed(5)
    model, rows, events = Normed(), NoisyRows(), Events()
    if optimizer is not None:
        optimizer = optimizer(model.parameters(), lr=0.1, momentum=0.9)
    given = {"callbacks": [events], "optimizers": (optimizer, None), "eval_dataset": NoisyRows(8)}
    defaults = {
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_steps": 3,
        "eval_strategy": "steps",
        "eval_steps": 4,
        "max_steps": 9,
    }
    trainer = build(folder, model, rows, kind, given, **{**defaults, **settings})
    return trainer, rows, events


def facts_of(trainer, rows):
    """What can be seen of a Trainer, its data and the process."""
    optimizer = None if trainer.optimizer is None else trainer.optimizer.state_dict()
    schedule = None if trainer.lr_scheduler is None else trainer.lr_scheduler.state_dict()
    return {
        "weights": {name: value.clone() for name, value in trainer.model.state_dict().items()},
        "optimizer": {} if optimizer is None else optimizer["state"],
        "groups": None if optimizer is None else optimizer["param_groups"],
        "schedule": None if schedule is None else {k: v for k, v in schedule.items() if k != "lr_lambdas"},
        "args": trainer.args.to_dict(),
        "state": {**vars(trainer.state), "log_history": None},
        "log": log_of(trainer),
        "control": dict(vars(trainer.control)),
        "counts": (trainer.model.num_calls, getattr(trainer, "num_losses", 0), list(rows.reads), list(CALLS)),
        "generator": rows.generator.bit_generator.state,
        "random": (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()),
        "mode": (trainer.model.training, trainer.is_in_train),
    }


def assert_same(one, other):
    for part in one:
        if part == "weights":
            assert all(torch.equal(value, other[part][name]) for name, value in one[part].items())
        elif part == "optimizer":
            assert one[part].keys() == other[part].keys()
            for key, state in one[part].items():
                assert all(
                    torch.equal(value, other[part][key][name])
                    for name, value in state.items()
                    if isinstance(value, torch.Tensor)
                )
        else:
            assert one[part] == other[part], part


def files_of(folder):
    return sorted(path.relative_to(folder).as_posix() for path in Path(folder).rglob("*"))


CASES = {
    "plain": {},
    "workers": {"dataloader_num_workers": 2},
    "own optimizer": {"optimizer": torch.optim.SGD},
    "subclass": {"kind": Own},
    "half precision": {"bf16": True},
    "groups": {"param_groups": [{"match": "head", "lr": 0.1}]},
    "metric schedule": {"lr_scheduler_type": "reduce_lr_on_plateau"},
    "items": {"loss_weighting": "items"},
    "skip": {"on_nonfinite": "skip"},
    "lengths and tokens": {"auto_find_batch_size": True, "include_num_input_tokens_seen": "all"},
    "no clipping": {"max_grad_norm": 0.0, "optim": "sgd"},
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_afterwards_is_the_same_to_the_last_bit(tmp_path, case):
    facts = []
    for sweeps in (False, True):
        CALLS.clear()
        folder = tmp_path / str(sweeps)
        trainer, rows, events = make_noisy(folder, **CASES[case])
        before, before_files = facts_of(trainer, rows), files_of(folder)
        if sweeps:
            heard = list(events.heard)
            found = trainer.find_learning_rate(1e-6, 1e-2, 12)
            assert len(found.rates) == 12  # 26 rows are 4 updates, so that epochs begin again
            CALLS[:] = [call for call in CALLS if call != "create_optimizer"]
            assert_same(before, facts_of(trainer, rows))
            assert (events.heard, files_of(folder)) == (heard, before_files)
            assert all(parameter.grad is None for parameter in trainer.model.parameters())
        trainer.train()
        paths = [path for path in files_of(folder) if "lock" not in path]
        facts.append({**facts_of(trainer, rows), "events": events.heard, "files": paths})
        del facts[-1]["args"], facts[-1]["state"]  # which name the folder
    assert_same(*facts)


def test_a_resumed_run_is_the_same_after_a_sweep(tmp_path):
    facts = []
    for sweeps in (False, True):
        CALLS.clear()
        folder = tmp_path / str(sweeps)
        trainer, _, _ = make_noisy(folder, max_steps=6)
        trainer.train()
        trainer, rows, events = make_noisy(folder)
        if sweeps:
            trainer.find_learning_rate(1e-6, 1e-2, 12)
        trainer.train(resume_from_checkpoint=str(folder / "checkpoint-3"))
        facts.append({**facts_of(trainer, rows), "events": events.heard})
        del facts[-1]["args"], facts[-1]["state"]
    assert_same(*facts)


@pytest.mark.parametrize("sweeps", [False, True])
def test_model_init_is_called_as_often_as_without(tmp_path, sweeps):
    made = []

    def make():
        made.append(Classifier())
        return made[-1]

    args = tiny.arguments(tmp_path, **{**SETTINGS, "max_steps": 5})
    trainer = Trainer(model_init=make, args=args, train_dataset=classes())
    if sweeps:
        trainer.find_learning_rate(num_updates=10)
        assert (len(made), trainer.model, trainer.model_init) == (1, made[0], make)
    trainer.train()
    assert len(made) == 2


def test_a_sweep_after_a_run_leaves_what_the_run_has_left(tmp_path):
    trainer, rows, _ = make_noisy(tmp_path)
    trainer.train()
    before, files = facts_of(trainer, rows), files_of(tmp_path)
    trainer.find_learning_rate(1e-6, 1e-2, 12)
    assert_same(before, facts_of(trainer, rows))
    assert files_of(tmp_path) == files


def test_all_is_put_back_where_the_sweep_fails_or_is_interrupted(tmp_path):
    class Failing(Own):
        error: BaseException = RuntimeError("in the middle")

        def training_step(self, *args, **kwargs):
            if self.num_losses == 9:
                raise self.error
            return super().training_step(*args, **kwargs)

    for error in (RuntimeError("in the middle"), KeyboardInterrupt()):
        CALLS.clear()
        trainer, rows, _ = make_noisy(tmp_path / type(error).__name__, Failing)
        trainer.error = error
        before = facts_of(trainer, rows)
        with pytest.raises(type(error)):
            trainer.find_learning_rate(1e-6, 1e-2, 12)
        CALLS.clear()
        assert_same(before, facts_of(trainer, rows))


# ---- which rates an update gets ----


class Rates(Trainer):
    """Notes the rates of all groups in every update."""

    seen: list[list[float]] = []

    def compute_loss(self, *args, **kwargs):
        type(self).seen.append([float(group["lr"]) for group in self.optimizer.param_groups])
        return super().compute_loss(*args, **kwargs)


def sweep_rates(folder, optimizer=None, **settings):
    """The rates of all groups in the first and in the last update, and the result."""
    Rates.seen = []
    model = Normed()
    given = None if optimizer is None else {"optimizers": (optimizer(model), None)}
    trainer = build(folder, model, NoisyRows(), Rates, given, per_device_train_batch_size=4, **settings)
    found = trainer.find_learning_rate(1e-5, 1e-3, 11)
    return Rates.seen[0], Rates.seen[-1], found


def test_groups_keep_their_proportions_and_the_rate_is_that_of_the_setting(tmp_path):
    rules = [{"match": "head", "lr": 1e-2}, {"match": "norm", "lr": 0.0, "name": "frozen"}]
    first, last, found = sweep_rates(tmp_path, param_groups=[*rules], learning_rate=1e-3, warmup_steps=10)
    assert found.current == 1e-2  # nothing is left for learning_rate
    first, last, found = sweep_rates(tmp_path, param_groups=rules[:1], learning_rate=1e-3, warmup_steps=10)
    assert found.current == 1e-3
    assert sorted(set(first)) == pytest.approx([1e-5, 1e-4])
    assert sorted(set(last)) == pytest.approx([1e-3, 1e-2])
    assert sorted(set(found.factors)) == pytest.approx([1.0, 10.0])
    assert "groups      each keeps its share of the rate: 1, 10" in str(found)


def test_with_an_optimizer_of_the_users_own_the_rate_is_that_of_its_first_group(tmp_path):
    def make(model):
        groups = [
            {"params": model.norm.parameters(), "lr": 0.2},
            {"params": model.head.parameters(), "lr": 0.1},
        ]
        return torch.optim.SGD(groups, lr=0.3)

    first, last, found = sweep_rates(tmp_path, make)
    assert (found.current, found.factors) == (0.2, (1.0, 0.5))
    assert first == pytest.approx([1e-5, 0.5e-5])
    assert last == pytest.approx([1e-3, 0.5e-3])


def test_a_rate_that_is_a_tensor_stays_one(tmp_path):
    optimizers = []

    def make(model):
        optimizers.append(torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.5)))
        return optimizers[0]

    first, last, _ = sweep_rates(tmp_path, make)
    assert (first, last) == (pytest.approx([1e-5]), pytest.approx([1e-3]))
    assert torch.equal(optimizers[0].param_groups[0]["lr"], torch.tensor(0.5))


# ---- how it ends ----


def test_it_stops_where_the_loss_explodes_and_where_it_is_not_finite(tmp_path):
    settings = {"optim": "sgd", "max_grad_norm": 0.0}
    rows = tiny.regression_data(64)
    found = build(tmp_path, tiny.Regression(), rows, **settings).find_learning_rate()
    assert found.stopped == "exploded"
    assert len(found.rates) < 100
    assert found.diverges is not None
    found = build(tmp_path, tiny.Regression(), rows, **settings).find_learning_rate(1e15, 1e30, 100)
    assert (found.stopped, found.suggestion) == ("loss not finite", None)
    assert "then the loss was not finite" in str(found)
    assert "Try lower rates: lowest=1e+12" in found.problem


def test_a_loss_that_is_no_number_from_the_first_is_not_blamed_on_the_rate(tmp_path):
    rows = [{"x": torch.tensor(float("nan")), "labels": torch.tensor(0.0)}] * 8
    found = build(tmp_path, tiny.Regression(), rows).find_learning_rate()
    assert (found.rates, found.suggestion, found.stopped) == ((), None, "loss not finite")
    assert "the first loss is nan, before any step: the rate is not the reason" in found.problem
    assert "suggestion  none: the first loss is nan" in str(found)
    assert "first loss is nan" in found.to_html()


@pytest.mark.parametrize("max_grad_norm", [1.0, 0.0])
def test_an_update_with_a_damaged_row_is_left_out_where_training_leaves_it_out(tmp_path, max_grad_norm):
    rows = classes()
    rows[7]["x"] = rows[7]["x"] * float("inf")
    settings = {"max_grad_norm": max_grad_norm, "optim": "sgd"}
    found = build(tmp_path, data=rows, **settings).find_learning_rate()
    assert (found.suggestion, found.stopped) == (None, "loss not finite")
    assert "on_nonfinite='skip' leaves its update out" in found.problem
    found = build(tmp_path, data=rows, on_nonfinite="skip", **settings).find_learning_rate(1e-4, 10.0)
    assert 0.1 < found.suggestion < 3.0
    assert 90 <= len(found.rates) < 100


def test_gradients_without_end_end_the_sweep_before_their_step(tmp_path):
    class Steep(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.num_calls = nn.Parameter(torch.ones(1)), 0

        def forward(self, x, labels):
            self.num_calls += 1
            zero = (self.weight * 0.0).sum() if self.num_calls > 20 else 1.0
            return {"loss": self.weight.sum() ** 2 + 0.01 * torch.as_tensor(zero).abs().sqrt()}

    found = build(tmp_path, Steep(), tiny.regression_data(64)).find_learning_rate(1e-8, 1e-6)
    assert (len(found.losses), found.stopped) == (21, "gradients not finite")
    assert "the gradients were not finite at 2.54e-08, though the loss had not risen" in found.problem


class Level(nn.Module):
    """Learns nothing."""

    def __init__(self, noise):
        super().__init__()
        self.weight, self.noise = nn.Parameter(torch.ones(1)), noise

    def forward(self, x, labels):
        return {"loss": 2.0 + 0.0 * self.weight.sum() + self.noise * torch.randn(())}


@pytest.mark.parametrize(("noise", "said"), [(0.0, "hardly changes (from 2 to 2)"), (0.5, "than it falls")])
def test_a_level_curve_has_no_suggestion_but_advice(tmp_path, noise, said):
    found = build(tmp_path, Level(noise), tiny.regression_data(64)).find_learning_rate()
    assert (found.suggestion, found.minimum) == (None, None)
    assert said in found.problem
    assert "num_updates=400" in found.problem


def test_data_that_can_be_read_once_only_ends_the_sweep_with_a_reason(tmp_path):
    class Once(Trainer):
        def get_train_dataloader(self):
            loader = super().get_train_dataloader()
            rows = list(loader)
            return _Once(rows)

    class _Once:
        def __init__(self, batches):
            self.batches, self.is_read = batches, False

        def __len__(self):
            return len(self.batches)

        def __iter__(self):
            batches, self.batches = self.batches, []
            return iter(batches)

    trainer = build(
        tmp_path, tiny.Regression(), tiny.regression_data(64), Once, per_device_train_batch_size=16
    )
    found = trainer.find_learning_rate()
    assert (len(found.rates), found.stopped) == (4, "no more data")
    assert "only 4 updates: then the data gave no batch any more" in found.problem


# ---- what it refuses ----


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lowest": 1.0, "highest": 0.1}, "lowest=1 is not below highest=0.1"),
        ({"lowest": 1.0, "highest": 1.0}, "lowest=1 is not below highest=1"),
        ({"lowest": 0.0}, "lowest=0.0 is no learning rate to try"),
        ({"lowest": -1e-3}, "lowest=-0.001 is no learning rate to try"),
        ({"highest": float("nan")}, "highest=nan is no learning rate to try"),
        ({"highest": float("inf")}, "highest=inf is no learning rate to try"),
        ({"highest": "high"}, "highest='high' is no learning rate to try"),
        ({"num_updates": 9}, "num_updates=9 must be a whole number from 10 to 10000"),
        ({"num_updates": 100_001}, "num_updates=100001 must be"),
        ({"num_updates": 50.0}, "num_updates=50.0 must be"),
        ({"num_updates": True}, "num_updates=True must be"),
    ],
)
def test_a_range_that_is_none_is_refused(tmp_path, given, said):
    with pytest.raises(ValueError, match=said):
        build(tmp_path).find_learning_rate(**given)


def test_what_no_rate_can_be_found_for_is_refused_by_name(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="Pass `train_dataset` to Trainer"):
        Trainer(Classifier(), tiny.arguments(tmp_path)).find_learning_rate()
    with pytest.raises(ValueError, match="gives no batch: it is empty"):
        build(tmp_path, data=[]).find_learning_rate()
    with pytest.raises(ValueError, match="The learning rate is 0 in every parameter group of AdamW"):
        build(tmp_path, learning_rate=0.0).find_learning_rate()
    model = Classifier()
    optimizer = Adafactor(model.parameters(), lr=None, relative_step=True, warmup_init=True)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(torch.optim.SGD(model.parameters(), lr=1.0))
    given = {"optimizers": (optimizer, schedule)}
    with pytest.raises(ValueError, match="Adafactor takes rates with relative_step=False"):
        build(tmp_path, model, given=given).find_learning_rate()
    trainer = build(tmp_path)
    trainer.args.optim = "galore_adamw_layerwise"
    with pytest.raises(ValueError, match="Look for the rate with optim='galore_adamw'"):
        trainer.find_learning_rate()
    monkeypatch.setattr("footplate.trainer.rate_finding.free_memory", lambda: 1000)
    with pytest.raises(ValueError, match=r"takes 5\.90 kB of memory, and 1\.00 kB are free\. `footplate"):
        build(tmp_path).find_learning_rate()


def test_inside_a_run_it_is_refused(tmp_path):
    class Asking(TrainerCallback):
        def on_step_end(self, args, state, control, trainer=None, **kwargs):
            with pytest.raises(RuntimeError, match="Call it before train"):
                trainer.find_learning_rate()
            state.log_history.append({"asked": 1.0, "step": state.global_step})

    trainer = build(tmp_path, given={"callbacks": [Asking()]}, max_steps=1)
    trainer.train()
    assert trainer.state.log_history[0] == {"asked": 1.0, "step": 1}


def test_what_cannot_be_put_back_is_refused_before_anything_is_read(tmp_path):
    class Endless(IterableDataset):
        def __init__(self):
            self.rows = iter(tiny.regression_data(640))

        def __iter__(self):
            return self.rows

    trainer = build(tmp_path, tiny.Regression(), Endless())
    with pytest.raises(ValueError, match=r"cannot be read again\. `footplate find-lr script.py` does"):
        trainer.find_learning_rate()
    assert trainer.train().global_step == 20


def test_large_tensors_that_code_writes_to_are_named(tmp_path, caplog):
    class Caching(Trainer):
        cache = None

        def compute_loss(self, *args, **kwargs):
            self.cache[0] += 1.0
            return super().compute_loss(*args, **kwargs)

    trainer = build(tmp_path, trainer=Caching)
    trainer.cache = torch.zeros(4096, 1025)
    with caplog.at_level(logging.WARNING):
        trainer.find_learning_rate(num_updates=10)
    assert "did not put them back: [4096, 1025] of torch.float32" in caplog.text


def test_a_stream_is_read_again_from_its_start(tmp_path):
    class Stream(IterableDataset):
        num_starts = 0

        def __iter__(self):
            self.num_starts += 1
            return iter(tiny.regression_data(64))

    stream = Stream()
    trainer = build(tmp_path, tiny.Regression(), stream, max_steps=5)
    found = trainer.find_learning_rate(1e-6, 1e-3, 12)
    assert len(found.rates) == 12
    assert stream.num_starts == 0  # put back
    with pytest.raises(ValueError, match="has no length, so the number of updates is not known"):
        build(tmp_path, tiny.Regression(), Stream(), max_steps=-1).find_learning_rate()


def test_nothing_is_written_and_no_time_of_a_folder_changes(tmp_path):
    trainer = build(tmp_path / "runs" / "mine", report_to="none")
    (tmp_path / "runs" / "mine").mkdir(parents=True, exist_ok=True)
    before = {path: os.stat(path).st_mtime_ns for path in (tmp_path, *tmp_path.rglob("*"))}
    trainer.find_learning_rate(num_updates=10)
    assert {path: os.stat(path).st_mtime_ns for path in (tmp_path, *tmp_path.rglob("*"))} == before
