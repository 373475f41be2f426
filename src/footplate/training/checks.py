"""What must hold of the things handed to a Trainer, one function per rule."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sized
from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

_ALWAYS_MEASURED = ("runtime", "samples_per_second", "steps_per_second")
ANY_KEY = "*"  # stands for keys that could not be found out


def check_model_source(model: nn.Module | None, model_init: Callable[..., nn.Module] | None) -> None:
    """There is one source of the model."""
    if (model is None) == (model_init is None):
        given = "neither" if model is None else "both"
        raise ValueError(f"Trainer was given {given} of `model` and `model_init`. Pass exactly one of them.")


def check_is_arguments(args: Any, expected: type) -> None:
    """The arguments are footplate's own."""
    if not isinstance(args, expected):
        given = f"{type(args).__module__}.{type(args).__qualname__}"
        raise TypeError(
            f"`args` must be a footplate.TrainingArguments, got {given}. Build it with footplate's class: "
            "it takes "
            "the same names."
        )


def check_is_module(model: Any) -> None:
    """The model is a module."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"`model` must be a torch.nn.Module, got {type(model).__name__}.")


def check_is_trainable(model: nn.Module) -> None:
    """Some parameter can learn."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError(
            f"No parameter of {type(model).__name__} has requires_grad=True, so training would change "
            "nothing. Unfreeze some, or attach an adapter."
        )


def check_optimizer_sources(
    optimizers: tuple[Any, Any], optimizer_cls_and_kwargs: Any, model_init: Callable[..., nn.Module] | None
) -> None:
    """There is one source of the optimizer, and it fits the model."""
    if optimizers[0] is not None and optimizer_cls_and_kwargs is not None:
        raise RuntimeError("Pass either `optimizers` or `optimizer_cls_and_kwargs` to Trainer, not both.")
    if model_init is not None and any(part is not None for part in optimizers):
        raise RuntimeError(
            "`model_init` makes a new model at each train(), which the parameters in `optimizers` would "
            "not be of. Pass `optimizer_cls_and_kwargs`, or override create_optimizer."
        )


def check_collator(data_collator: Any) -> None:
    """The collator can be called."""
    if not callable(data_collator):
        raise TypeError(
            f"`data_collator` must be callable with a list of samples, got {type(data_collator).__name__}."
        )


def check_eval_dataset(args: TrainingArguments, eval_dataset: Any) -> None:
    """Evaluation that is asked for has data."""
    if args.eval_strategy != "no" and eval_dataset is None:
        raise ValueError(
            f"eval_strategy={str(args.eval_strategy)!r} needs data to evaluate on. Pass `eval_dataset` to "
            "Trainer, or set eval_strategy='no'."
        )
    sets = eval_dataset if isinstance(eval_dataset, dict) else {"": eval_dataset}
    for name, dataset in sets.items():
        if isinstance(dataset, Sized) and len(dataset) == 0:
            which = f"eval_dataset[{name!r}]" if name else "`eval_dataset`"
            raise ValueError(f"{which} is empty: there is nothing to evaluate. Fill it, or leave it out.")
    if args.eval_on_start and eval_dataset is None:
        raise ValueError("eval_on_start=True needs data. Pass `eval_dataset` to Trainer, or set it to False.")


def check_train_length(args: TrainingArguments, train_dataset: Any, has_length: bool) -> None:
    """A dataset without length comes with a number of updates."""
    if train_dataset is not None and not has_length and args.max_steps <= 0:
        raise ValueError(
            f"`train_dataset` ({type(train_dataset).__name__}) has no length, so the number of updates is "
            "not known. Set max_steps, or give the dataset a __len__."
        )


def check_some_batch(updates_done: int) -> None:
    """The training data gave a batch, for a run that made no update has learned nothing."""
    if updates_done == 0:
        raise ValueError("`train_dataset` gave no batch: it is empty, or its iterator can be read only once.")


def check_batch_metrics(
    args: TrainingArguments, compute_metrics: Callable[..., Any] | None, is_streaming: bool = False
) -> None:
    """Metrics that are computed batch by batch are told of the last batch; objects know by themselves."""
    if not args.batch_eval_metrics or compute_metrics is None or is_streaming:
        return
    if "compute_result" not in inspect.signature(compute_metrics).parameters:
        raise ValueError(
            "batch_eval_metrics=True calls compute_metrics(prediction, compute_result=...) for every "
            "batch, and yours takes no `compute_result`. Add that parameter, or set "
            "batch_eval_metrics=False."
        )


def check_train_metrics(
    args: TrainingArguments, compute_metrics: Callable[..., Any] | None, is_streaming: bool = False
) -> None:
    """Metrics of training batches have a function to compute them."""
    if args.train_metrics and is_streaming:
        raise ValueError(
            f"train_metrics={args.train_metrics} needs `compute_metrics` to be a function, and it is an "
            "object with update and compute, which belongs to the evaluations. Set train_metrics to 0."
        )
    if args.train_metrics and compute_metrics is None:
        raise ValueError(
            f"train_metrics={args.train_metrics} needs a function: pass `compute_metrics` to Trainer, or "
            "set it to 0."
        )


def keys_without_metrics(set_names: Collection[str]) -> set[str]:
    """What evaluation gives without `compute_metrics`; the name of a lone evaluation set is empty."""
    return {f"{name}_{key}" if name else key for name in set_names for key in _ALWAYS_MEASURED}


def check_best_metric(name: str, found: Collection[str], label_names: Collection[str]) -> None:
    """The metric that decides on the best model comes out of evaluation."""
    key = name.removeprefix("eval_")
    if key in found or ANY_KEY in found:
        return
    if key == "loss":
        remedy = f"there is no loss without labels, looked for as {list(label_names)}: set label_names"
    else:
        remedy = f"name one of these, or return {key!r} from compute_metrics"
    raise ValueError(
        f"metric_for_best_model={name!r} is not among what evaluation gives: {sorted(found)}. To mend it, "
        f"{remedy}."
    )


def explain_no_labels(set_name: str, keys: Collection[str], label_names: Collection[str]) -> str:
    """What to say when an evaluation will give neither a loss nor metrics."""
    which = f"The evaluation set {set_name!r}" if set_name else "The evaluation set"
    looked_for = f"looked for as {list(label_names)}" if label_names else "which forward does not name"
    return (
        f"{which} has the columns {sorted(keys)} and no labels, {looked_for}: evaluation will give neither "
        "eval_loss nor metrics. Set label_names to the columns that are labels, or name them so."
    )


def check_not_yet_supported(args: TrainingArguments) -> None:
    """Nothing is asked for that this version does not do: it says so instead of going on without."""
    wanted = {
        "push_to_hub": (args.push_to_hub, "sharing on the Hub"),
        "deepspeed": (args.deepspeed is not None, "DeepSpeed"),
        "fsdp": (args.fsdp, "FSDP"),
        "parallelism_config": (args.parallelism_config, "several processes"),
        "debug": (args.debug, "the debug options"),
    }
    for setting, (value, subject) in wanted.items():
        if value:
            raise NotImplementedError(
                f"{setting}={getattr(args, setting)!r}: {subject} is not in this version of footplate. "
                f"Leave {setting} unset."
            )
