"""Rows one by one: the loss of each as training computes it, and its readable form; nothing changes by it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from footplate import comm, rng
from footplate.batch import find_labels, ignored_outputs, outputs_without_loss
from footplate.samples.batch import SampleBatch
from footplate.samples.shown import show_all
from footplate.samples.text import TextReader
from footplate.trainer.base import TrainerBase
from footplate.training.buffers import BufferKeeper
from footplate.training.loss import call_compute_loss
from footplate.training.meter import Records
from footplate.training.modes import evaluating
from footplate.training.rehearsal import CannotPutBack, Kept
from footplate.wrappers import bare_model

if TYPE_CHECKING:
    from footplate.trainer.evaluating import Evaluating

NUM_OBJECTS = 20_000  # beyond so many, what a subclass collects is not copied


@contextmanager
def looking(trainer: Evaluating) -> Iterator[nn.Module]:
    """The model as evaluation calls it; when the block ends, the Trainer is as it was.

    Dropout is off, nothing is logged, `record` is kept out of the logs. Put back are the random states, the
    buffers of the model, the attributes that a subclass sets in its `compute_loss`, and what it collects in
    lists, dictionaries and tensors there.
    """
    wrapped = trainer.model_wrapped
    if not trainer.is_in_train:
        wrapped = trainer._wrap_model(wrapped, training=False)
    model = trainer._strategy.for_evaluation(wrapped)
    extras, kept, own = trainer.callback_handler.extras, keep_collected(trainer), own_attributes(trainer)
    before, buffers = dict(extras), BufferKeeper(trainer.model)
    buffers.note()
    seed = rng.data_seed(trainer.args)  # random masks of a collator are the same in each pass
    try:
        with rng.scoped(seed), torch.no_grad(), evaluating(wrapped), trainer._evaluating() as evaluation:
            evaluation.records = Records()
            vars(trainer)["log"] = log_nothing
            yield model
    finally:
        for name in own_attributes(trainer).keys() - own.keys():
            del vars(trainer)[name]
        vars(trainer).update(own)
        buffers.restore()
        extras.clear()
        extras.update(before)
        for state in kept:
            state.put_back()


def log_nothing(*args: Any, **kwargs: Any) -> None:
    """In the place of `log` while rows are looked at."""


def own_attributes(trainer: Evaluating) -> dict[str, Any]:
    """What a subclass has added to its Trainer."""
    return {name: value for name, value in vars(trainer).items() if name not in TrainerBase.__annotations__}


def keep_collected(trainer: Evaluating) -> list[Kept]:
    """The lists, dictionaries and tensors that a subclass has added to its Trainer, with their contents."""
    kept = []
    for value in own_attributes(trainer).values():
        is_tensor = isinstance(value, torch.Tensor)
        if not is_tensor and not isinstance(value, (list, dict)):
            continue
        try:
            kept.append(Kept([value], NUM_OBJECTS, keeps_arrays=is_tensor))
        except CannotPutBack:  # it holds data, or what cannot be put back
            continue
    return kept


def find_loss(
    trainer: Evaluating, model: nn.Module, inputs: Any, wants_outputs: bool = False
) -> tuple[float, Any]:
    """The loss of a batch as training computes it, and the outputs if they are asked for.

    The caller makes an evaluation of it, so that the items counted are those of this batch: see `looking`.
    """
    inputs = trainer._prepare_inputs(comm.move_to_device(inputs, trainer._device))
    weighs_items = trainer.args.weighs_items
    num_items = None if weighs_items else trainer._get_num_items_in_batch([inputs], trainer._device)
    with trainer.compute_loss_context_manager():
        context, inputs = trainer._prepare_context_parallel_inputs(model, inputs)
        with context():
            loss, outputs = call_compute_loss(trainer.compute_loss, model, inputs, wants_outputs, num_items)
    return float(loss.detach().float().mean()), outputs  # host sync


def show_rows(trainer: Evaluating, batch: Any, outputs: Any, num_rows: int) -> list[dict[str, Any]]:
    """The rows of a batch in readable form: input, target, and what the model answered.

    Args:
        trainer: Knows labels and tokens.
        batch: The batch.
        outputs: What the model answered to it; None if that is not known.
        num_rows: Rows of the batch.
    """
    model = bare_model(trainer.model)
    batch = comm.move_to_device(batch, "cpu")
    answers = None
    if outputs is not None:
        answers = outputs_without_loss(outputs, ignored_outputs(model), has_loss=True)
        answers = comm.move_to_device(comm.nested_detach(answers), "cpu")
    if comm.find_batch_size(answers) != num_rows:
        answers = None
    labels = find_labels(batch, trainer.label_names, callable(trainer.compute_loss_func))
    reader = TextReader(trainer.processing_class)
    return show_all(SampleBatch(batch, labels, answers, model, reader, trainer.label_names), num_rows)
