"""What libraries reach on the Trainer besides its joints, as the original has it."""

from __future__ import annotations

import contextlib
import inspect
import warnings

import pytest
import torch
import transformers

import footplate
import tiny
from footplate import Trainer

DATA = tiny.regression_data(12)
LIBRARIES = [footplate, transformers]


def build(library, tmp_path, base=None, model=None, trainer=None, **settings):
    """A trainer of either library; `base` makes its class from the library's Trainer."""
    cls = base(library.Trainer) if base is not None else library.Trainer
    args = tiny.arguments(tmp_path, library, **{"max_steps": 3, "logging_steps": 1, **settings})
    parts = {"train_dataset": DATA, "eval_dataset": DATA[:5], **(trainer or {})}
    return cls(model if model is not None else Configured(), args, **parts)


class Configured(tiny.Regression):
    """The original asks every model for its configuration."""

    config = transformers.PretrainedConfig()


def losses_of(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


NAMES = [
    "_build_accelerator_args",
    "_prepare_context_parallel_inputs",
    "_track_num_input_tokens",
    "_get_grad_norm",
    "_clip_grad_norm",
    "create_accelerator_and_postprocess",
]


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_those_of_the_original(name):
    ours, theirs = (inspect.signature(getattr(library.Trainer, name)).parameters for library in LIBRARIES)
    assert [(p.name, p.kind, p.default) for p in ours.values()] == [
        (p.name, p.kind, p.default) for p in theirs.values()
    ]


# ---- the flag that libraries count updates by ----


def counts_updates(base):
    class CountsUpdates(base):
        flags: list

        def training_step(self, model, inputs, num_items_in_batch=None):
            self.flags.append(self.accelerator.sync_gradients)
            return super().training_step(model, inputs, num_items_in_batch)

    CountsUpdates.flags = []
    return CountsUpdates


@pytest.mark.parametrize("accumulation", [1, 3])
def test_gradients_synchronise_in_the_last_micro_batch_of_an_update(accumulation, tmp_path):
    flags = []
    for library in LIBRARIES:
        settings = {"gradient_accumulation_steps": accumulation, "per_device_train_batch_size": 2}
        # six batches in an epoch: with three in an update, the last one of the second epoch is no exception
        trainer = build(library, tmp_path, counts_updates, max_steps=4, **settings)
        trainer.train()
        flags.append(trainer.flags)
    assert flags[0] == flags[1]
    assert flags[0] == [*[False] * (accumulation - 1), True] * 4


def test_a_short_update_at_the_end_of_an_epoch_synchronises_too(tmp_path):
    flags = []
    for library in LIBRARIES:
        settings = {"gradient_accumulation_steps": 4, "per_device_train_batch_size": 2}
        trainer = build(library, tmp_path, counts_updates, max_steps=4, **settings)
        trainer.train()
        flags.append(trainer.flags)
    assert flags[0] == flags[1] == [False, False, False, True, False, True] * 2


def test_plain_training_makes_no_accelerator_by_itself(tmp_path):
    trainer = build(footplate, tmp_path, gradient_accumulation_steps=2)
    trainer.train()
    assert trainer._accelerator is None
    assert trainer.accelerator.sync_gradients is True


def test_an_accelerator_that_is_first_asked_for_in_the_middle_of_an_update_knows_where_it_is(tmp_path):
    class AsksOnce(Trainer):
        seen: list = []

        def training_step(self, model, inputs, num_items_in_batch=None):
            if not self.seen:
                self.seen.append(self.accelerator.sync_gradients)
            return super().training_step(model, inputs, num_items_in_batch)

    args = tiny.arguments(tmp_path, max_steps=1, gradient_accumulation_steps=2)
    AsksOnce(tiny.Regression(), args, train_dataset=DATA).train()
    assert AsksOnce.seen == [False]


# ---- the accelerator ----


def adds_to_accelerator(base):
    class AddsToAccelerator(base):
        def _build_accelerator_args(self, **kwargs):
            self.given = kwargs
            return {**super()._build_accelerator_args(**kwargs), "step_scheduler_with_optimizer": False}

    return AddsToAccelerator


def test_what_an_override_adds_reaches_the_accelerator(tmp_path):
    for library in LIBRARIES:
        trainer = build(library, tmp_path, adds_to_accelerator)
        assert {"dataloader_config", "gradient_accumulation_plugin", "fsdp_plugin"} <= trainer.given.keys()
        assert trainer.accelerator.step_scheduler_with_optimizer is False
        trainer.train()


def test_a_precision_that_an_override_chooses_is_used(tmp_path):
    def in_half(base):
        class InHalf(base):
            def _build_accelerator_args(self, **kwargs):
                return {**super()._build_accelerator_args(**kwargs), "mixed_precision": "bf16"}

        return InHalf

    found = []
    for library in LIBRARIES:
        data = {"train_dataset": tiny.classification_data(), "eval_dataset": None}
        trainer = build(library, tmp_path, in_half, tiny.bert_classifier(), data)
        trainer.train()
        found.append(losses_of(trainer))
    plain = build(footplate, tmp_path, None, tiny.bert_classifier(), data)
    plain.train()
    assert found[0] == found[1]
    assert found[0] != losses_of(plain)


# ---- inputs, tokens, norms, losses ----


def doubles_inputs(base):
    class DoublesInputs(base):
        contexts = 0

        def _prepare_context_parallel_inputs(self, model, inputs):
            context, inputs = super()._prepare_context_parallel_inputs(model, inputs)
            with context():
                pass

            @contextlib.contextmanager
            def counted():
                self.contexts += 1
                yield

            return counted, {**inputs, "x": inputs["x"] * 2}

    return DoublesInputs


def test_inputs_and_context_of_a_step_come_from_an_override(tmp_path):
    found = []
    for library in LIBRARIES:
        trainer = build(library, tmp_path, doubles_inputs)
        trainer.train()
        trained = trainer.contexts
        metrics = trainer.evaluate()
        found.append((losses_of(trainer), metrics["eval_loss"], trained, trainer.contexts))
    assert found[0] == found[1]
    assert found[0][2:] == (3, 4)


def counts_twice(base):
    class CountsTwice(base):
        def _track_num_input_tokens(self, inputs):
            super()._track_num_input_tokens(inputs)
            super()._track_num_input_tokens(inputs)

    return CountsTwice


def test_an_override_may_count_tokens_in_its_own_way(tmp_path):
    found = []
    for library in LIBRARIES:
        data = {"train_dataset": tiny.classification_data(), "eval_dataset": None}
        settings = {"include_num_input_tokens_seen": "all", "per_device_train_batch_size": 2}
        trainer = build(library, tmp_path, counts_twice, tiny.bert_classifier(), data, **settings)
        trainer.train()
        found.append([entry.get("num_input_tokens_seen") for entry in trainer.state.log_history])
    assert found[0] == found[1]
    assert found[0][0] == 2 * 2 * 12


@pytest.mark.parametrize("mode", ["all", "non_padding"])
def test_callbacks_see_the_tokens_of_every_update(mode, tmp_path):
    found = []
    for library in LIBRARIES:
        seen = []

        class Looks(library.TrainerCallback):
            def on_step_end(self, args, state, control, seen=seen, **kwargs):
                seen.append(state.num_input_tokens_seen)

        rows = [
            {**row, "attention_mask": [1] * (index % 5 + 1) + [0] * (11 - index % 5)}
            for index, row in enumerate(tiny.classification_data())
        ]
        data = {"train_dataset": rows, "eval_dataset": None, "callbacks": [Looks]}
        settings = {
            "include_num_input_tokens_seen": mode,
            "gradient_accumulation_steps": 2,
            "logging_steps": 50,
        }
        build(library, tmp_path, None, tiny.bert_classifier(), data, **settings).train()
        found.append(seen)
    assert found[0] == found[1]
    assert len(set(found[0])) == 3


def gives_norms(base):
    class GivesNorms(base):
        def _get_grad_norm(self, model, grad_norm=None):
            self.given = grad_norm
            return 2 * float(super()._get_grad_norm(model, grad_norm=grad_norm))

    return GivesNorms


@pytest.mark.parametrize("max_grad_norm", [1.0, 0.0])
def test_the_norm_that_is_logged_comes_from_an_override(max_grad_norm, tmp_path):
    found = []
    for library in LIBRARIES:
        trainer = build(library, tmp_path, gives_norms, max_grad_norm=max_grad_norm)
        trainer.train()
        found.append([entry["grad_norm"] for entry in trainer.state.log_history if "grad_norm" in entry])
        assert (trainer.given is None) is (max_grad_norm == 0.0)
    assert found[0] == found[1]


def clips_nothing(base):
    class ClipsNothing(base):
        def _clip_grad_norm(self, model):
            return None

    return ClipsNothing


def test_a_norm_that_an_override_of_clipping_does_not_give_is_measured(tmp_path):
    found = []
    for library in LIBRARIES:
        trainer = build(library, tmp_path, clips_nothing)
        trainer.train()
        found.append([entry["grad_norm"] for entry in trainer.state.log_history if "grad_norm" in entry])
    assert found[0] == found[1]
    assert len(found[0]) == 3


def reads_losses(base):
    class ReadsLosses(base):
        def _maybe_log_save_evaluate(self, tr_loss, *args, **kwargs):
            self.sums.append((float(self._tr_loss), float(tr_loss)))
            return super()._maybe_log_save_evaluate(tr_loss, *args, **kwargs)

    ReadsLosses.sums = []
    return ReadsLosses


def test_the_sum_of_losses_since_the_last_log_can_be_read(tmp_path):
    found = []
    for library in LIBRARIES:
        trainer = build(library, tmp_path, reads_losses, max_steps=4, logging_steps=2)
        trainer.train()
        found.append(trainer.sums)
    assert found[0] == found[1]
    assert all(own == given for own, given in found[0])


def test_the_sum_of_losses_can_be_written(tmp_path):
    class Adds(footplate.TrainerCallback):
        def on_step_end(self, args, state, control, trainer=None, **kwargs):
            trainer._tr_loss += 1.0
            trainer._tr_loss = trainer._tr_loss + 1.0

    trainer, plain = build(footplate, tmp_path), build(footplate, tmp_path)
    trainer.add_callback(Adds)
    trainer.train()
    plain.train()
    assert losses_of(trainer) == pytest.approx([loss + 2.0 for loss in losses_of(plain)])


# ---- a loss that is scaled already ----


def scales_itself(base):
    """As libraries write it: the loss is divided by the items of the update in an override."""

    class ScalesItself(base):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            outputs = model(**inputs)
            loss = (outputs["logits"] - inputs["labels"]).pow(2).sum()
            loss = loss / (len(inputs["labels"]) if num_items_in_batch is None else num_items_in_batch)
            return (loss, outputs) if return_outputs else loss

    return ScalesItself


def test_a_loss_function_that_cannot_be_called_says_that_the_loss_is_scaled(tmp_path):
    found = []
    text = "non-None value to disable scaling"
    for library in LIBRARIES:
        settings = {"gradient_accumulation_steps": 3, "per_device_train_batch_size": 2}
        trainer = build(library, tmp_path, scales_itself, trainer={"compute_loss_func": text}, **settings)
        assert trainer.compute_loss_func == text
        trainer.train()
        found.append((losses_of(trainer), [float(p.detach()) for p in trainer.model.parameters()]))
    assert found[0] == found[1]


def test_the_models_own_loss_is_used_where_no_function_can_be_called(tmp_path):
    trainer = build(
        footplate, tmp_path, trainer={"compute_loss_func": "scaled"}, per_device_train_batch_size=4
    )
    plain = build(footplate, tmp_path, per_device_train_batch_size=4)
    for each in (trainer, plain):
        each.train()
    assert losses_of(trainer) == losses_of(plain)
    assert trainer.evaluate()["eval_loss"] == plain.evaluate()["eval_loss"]


# ---- evaluation ----


def test_a_gather_function_that_was_set_is_used_for_one_pass(tmp_path):
    found = []
    for library in LIBRARIES:
        calls = []

        def remember(tensors, calls=calls):
            calls.append(tensors)
            return tensors

        seen = {"compute_metrics": lambda prediction: {"sum": float(prediction.predictions.sum())}}
        trainer = build(library, tmp_path, trainer=seen)
        assert callable(trainer.gather_function)
        before = trainer.evaluate()["eval_sum"]
        assert not calls
        trainer.gather_function = remember
        assert trainer.evaluate()["eval_sum"] == before
        found.append(len(calls) > 0)
        calls.clear()
        trainer.evaluate()
        assert not calls
    assert found == [True, True]


def test_the_usual_gather_function_gives_what_it_gets(tmp_path):
    trainer = build(footplate, tmp_path)
    assert trainer.gather_function(torch.ones(3)).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("when", ["alone", "in training"])
def test_an_evaluation_runs_on_a_traced_model(when, tmp_path, monkeypatch):
    traced = []
    plain = build(footplate, tmp_path, eval_strategy="epoch")
    trainer = build(footplate, tmp_path, eval_strategy="epoch", jit_mode_eval=True)
    original = trainer.prediction_step
    monkeypatch.setattr(
        trainer, "prediction_step", lambda model, *a, **k: traced.append(model) or original(model, *a, **k)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if when == "alone":
            found, expected = trainer.evaluate(), plain.evaluate()
        else:
            trainer.train(), plain.train()
            found, expected = (each.state.log_history[-2] for each in (trainer, plain))
    assert found["eval_loss"] == expected["eval_loss"]
    assert found["eval_jit_compilation_time"] > 0
    assert "eval_jit_compilation_time" not in expected
    assert any(type(model).__name__ == "TracedModel" for model in traced)


def test_tracing_leaves_random_numbers_and_training_as_they_are(tmp_path):
    states = []
    for asked in (True, False):
        data = {"train_dataset": tiny.classification_data(), "eval_dataset": tiny.classification_data(8)}
        settings = {"eval_strategy": "steps", "eval_steps": 1, "jit_mode_eval": asked}
        trainer = build(footplate, tmp_path, None, tiny.bert_classifier(), data, **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer.train()
        states.append((losses_of(trainer), [float(p.sum()) for p in trainer.model.parameters()]))
    assert states[0] == states[1]


def test_a_model_without_a_loader_is_not_traced(tmp_path):
    trainer = build(footplate, tmp_path)
    assert trainer.torch_jit_model_eval(trainer.model, None) is trainer.model
    assert trainer.torch_jit_model_eval(trainer.model, DATA, training=True) is trainer.model
