"""The rules for what a Trainer is given, one function per rule."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.utils.data import DataLoader

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

logger = logging.getLogger(__name__)

_ALWAYS_MEASURED = ("runtime", "samples_per_second", "steps_per_second")
ANY_KEY = "*"  # stands for keys that cannot be known before the evaluation


def check_model_source(model: nn.Module | None, model_init: Callable[..., nn.Module] | None) -> None:
    """There is one source of the model."""
    if (model is None) == (model_init is None):
        given = "neither" if model is None else "both"
        raise ValueError(f"Trainer was given {given} of `model` and `model_init`. Pass exactly one of them.")


def check_order(model: Any, args: Any, data_collator: Any, expected: type) -> None:
    """Values given by position are in the order of the parameters: model, args, data_collator."""
    by_name = "Pass them by name: Trainer(model=..., args=..., train_dataset=...)."
    if isinstance(model, expected):
        raise TypeError(
            f"The first argument of Trainer is `model`, and it is a {type(model).__name__}; `args` comes "
            f"second. {by_name}"
        )
    if not isinstance(args, expected) and _is_data(args):
        raise TypeError(
            f"The second argument of Trainer is `args`, and it is data ({type(args).__name__}); it must be a "
            f"footplate.TrainingArguments. {by_name}"
        )
    if not callable(data_collator) and _is_data(data_collator):
        raise TypeError(
            "The third argument of Trainer is `data_collator`, and it is data "
            f"({type(data_collator).__name__}); datasets come fourth and fifth. {by_name}"
        )


def _is_data(value: Any) -> bool:
    """Whether a value has rows, as a dataset or a loader has: neither text, nor a dictionary, nor a model."""
    if isinstance(value, (str, bytes, Mapping, type, nn.Module)):
        return False
    return isinstance(value, Iterable) or hasattr(value, "__getitem__")


def check_is_arguments(args: Any, expected: type) -> None:
    """The arguments are of footplate's class."""
    if not isinstance(args, expected):
        given = f"{type(args).__module__}.{type(args).__qualname__}"
        raise TypeError(
            f"`args` must be a footplate.TrainingArguments, got {given}. Build it with footplate's class: "
            "it takes the same names."
        )


def check_is_module(model: Any) -> None:
    """The model is a module."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"`model` must be a torch.nn.Module, got {type(model).__name__}.")


def check_is_trainable(model: nn.Module) -> None:
    """At least one parameter is trainable."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError(
            f"No parameter of {type(model).__name__} has requires_grad=True, so training would change "
            "nothing. Unfreeze some, or attach an adapter."
        )


def check_optimizer_sources(
    optimizers: tuple[Any, Any], optimizer_cls_and_kwargs: Any, model_init: Callable[..., nn.Module] | None
) -> None:
    """There is one source of the optimizer, and it belongs to the model."""
    if optimizers[0] is not None and optimizer_cls_and_kwargs is not None:
        raise RuntimeError("Pass either `optimizers` or `optimizer_cls_and_kwargs` to Trainer, not both.")
    if model_init is not None and any(part is not None for part in optimizers):
        raise RuntimeError(
            "`model_init` makes a new model at each train(), and `optimizers` holds parameters of another "
            "model. Pass `optimizer_cls_and_kwargs`, or override create_optimizer."
        )


def check_optimizer_parameters(optimizer: Any, model: nn.Module, has_own_loss: bool) -> None:
    """The optimizer changes at least one parameter of the model.

    Args:
        optimizer: The optimizer of the run.
        model: The model that is trained.
        has_own_loss: The user's own class computes the loss, and may train another model: warn only.
    """
    held = [id(value) for group in getattr(optimizer, "param_groups", ()) for value in group["params"]]
    if not held or not {id(parameter) for parameter in model.parameters()}.isdisjoint(held):
        return
    text = (
        f"None of the {len(held)} parameters in {type(optimizer).__name__} belongs to the model "
        f"({type(model).__name__}): its weights would never change. Build the optimizer from the parameters "
        "of the model that Trainer is given, after it was copied, reloaded or wrapped, or leave out "
        "`optimizers`."
    )
    if not has_own_loss:
        raise ValueError(text)
    logger.warning(text)


def check_is_dataset(dataset: Any, description: str) -> None:
    """Data is a dataset, from which the Trainer makes batches itself: no loader, no dictionary of sets."""
    if isinstance(dataset, DataLoader):
        raise TypeError(
            f"The {description.lower()} set is a DataLoader, which gives batches; Trainer takes a dataset "
            "and makes batches itself. Pass the loader's dataset (loader.dataset), its collate_fn as "
            "data_collator and its batch size as per_device_train_batch_size or per_device_eval_batch_size; "
            "or override get_train_dataloader, get_eval_dataloader or get_test_dataloader to return the "
            "loader."
        )
    if isinstance(dataset, dict) and type(dataset).__getitem__ is dict.__getitem__ and 0 not in dataset:
        raise TypeError(
            f"The {description.lower()} set is a dictionary ({', '.join(map(str, dataset))}), and a batch is "
            "made of rows by number. Pass one of its sets, or join them (torch.utils.data.ConcatDataset, "
            "datasets.concatenate_datasets)."
        )


def check_output_dir(output_dir: Any) -> None:
    """The output folder is a folder, or can become one."""
    folder = Path(str(output_dir))
    for place in (folder, *folder.parents):
        if place.is_dir():
            return
        if place.exists():
            where = "is a file" if place == folder else f"lies below {str(place)!r}, which is a file"
            raise ValueError(
                f"output_dir={str(output_dir)!r} {where}; checkpoints need a folder. Set output_dir to a "
                "folder, or to a path that does not exist yet."
            )


def check_collator(data_collator: Any) -> None:
    """The collator can be called."""
    if not callable(data_collator):
        raise TypeError(
            f"`data_collator` must be callable with a list of samples, got {type(data_collator).__name__}."
        )


def check_eval_dataset(args: TrainingArguments, eval_dataset: Any) -> None:
    """An evaluation has data; a set that nothing evaluates by itself may be empty."""
    if args.eval_strategy != "no" and eval_dataset is None:
        raise ValueError(
            f"eval_strategy={str(args.eval_strategy)!r} needs data to evaluate on. Pass `eval_dataset` to "
            "Trainer, or set eval_strategy='no'."
        )
    sets = eval_dataset if isinstance(eval_dataset, dict) else {"": eval_dataset}
    for name, dataset in sets.items() if args.eval_strategy != "no" or args.eval_on_start else ():
        if isinstance(dataset, Sized) and len(dataset) == 0:
            which = f"eval_dataset[{name!r}]" if name else "`eval_dataset`"
            raise ValueError(f"{which} is empty: there is nothing to evaluate. Fill it, or leave it out.")
    if args.eval_on_start and eval_dataset is None:
        raise ValueError("eval_on_start=True needs data. Pass `eval_dataset` to Trainer, or set it to False.")


def check_train_length(args: TrainingArguments, train_dataset: Any, has_length: bool) -> None:
    """A dataset without a length needs a number of updates."""
    if train_dataset is not None and not has_length and args.max_steps <= 0:
        raise ValueError(
            f"`train_dataset` ({type(train_dataset).__name__}) has no length, so the number of updates is "
            "not known. Set max_steps, or give the dataset a __len__."
        )


def report_no_batch(updates_done: int) -> None:
    """Refuse training data that gave nothing at all; warn if it gives nothing more."""
    if updates_done == 0:
        raise ValueError("`train_dataset` gave no batch: it is empty, or its iterator can be read only once.")
    logger.warning("An epoch gave no batch: training stops at update %d.", updates_done)


def check_batch_metrics(
    args: TrainingArguments, compute_metrics: Callable[..., Any] | None, is_streaming: bool = False
) -> None:
    """A function that is called for each batch takes `compute_result`; an object needs no such flag."""
    if not args.batch_eval_metrics or compute_metrics is None or is_streaming:
        return
    if "compute_result" not in inspect.signature(compute_metrics).parameters:
        raise ValueError(
            "batch_eval_metrics=True calls compute_metrics(prediction, compute_result=...) for every "
            "batch, and yours does not take `compute_result`. Add that parameter, or set "
            "batch_eval_metrics=False."
        )


def check_train_metrics(
    args: TrainingArguments, compute_metrics: Callable[..., Any] | None, is_streaming: bool = False
) -> None:
    """Metrics of training batches need a function."""
    if args.train_metrics_batches and (is_streaming or compute_metrics is None):
        raise ValueError(
            f"train_metrics_batches={args.train_metrics_batches} needs a function as `compute_metrics`, and "
            f"it is {'an object with update and compute' if is_streaming else 'None'}. Pass a function to "
            "Trainer, or set train_metrics_batches to 0."
        )


def keys_without_metrics(set_names: Collection[str]) -> set[str]:
    """The keys that evaluation gives without `compute_metrics`; the name of a single set is empty."""
    return {f"{name}_{key}" if name else key for name in set_names for key in _ALWAYS_MEASURED}


def check_best_metric(
    name: str, found: Collection[str], label_names: Collection[str], is_sure: bool = True
) -> None:
    """Evaluation gives the metric that decides which model is best.

    Args:
        name: The metric.
        found: What evaluation gave when it was tried.
        label_names: What labels are called.
        is_sure: Nothing of the user's own may add the metric: raise; else warn.
    """
    key = name.removeprefix("eval_")
    if key in found or ANY_KEY in found:
        return
    if key == "loss":
        fix = f"set label_names: there is no loss without labels, and none of {list(label_names)} was found"
    else:
        fix = f"name one of these, or return {key!r} from compute_metrics"
    text = (
        f"metric_for_best_model={name!r} is not among what evaluation gives: {sorted(found)}. To fix this, "
        f"{fix}."
    )
    if is_sure:
        raise ValueError(text)
    logger.warning("%s Training goes on, as a callback or log() of your own may add it.", text)


def explain_failed_trial(which: str, failure: str) -> str:
    """The warning that an evaluation will probably fail."""
    return (
        f"compute_metrics was tried on the first batch of {which}, and evaluation failed: "
        f"{failure.rstrip('.')}. Training goes on. If this is not for the few rows of one batch, an "
        "evaluation will end it with this error: fix it now."
    )


def explain_no_labels(set_name: str, keys: Collection[str], label_names: Collection[str]) -> str:
    """The warning that an evaluation will give neither a loss nor metrics."""
    which = f"The evaluation set {set_name!r}" if set_name else "The evaluation set"
    why = f"none of {list(label_names)} is there" if label_names else "forward does not name any"
    return (
        f"{which} has the columns {sorted(keys)} and no labels ({why}): evaluation will give neither "
        "eval_loss nor metrics. Set label_names to the columns that are labels, or rename them."
    )
