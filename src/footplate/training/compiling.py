"""Compile a model with torch once for batches of any size, and say what compiling cost."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any

import torch
from torch import nn

from footplate.wrappers import bare_model

logger = logging.getLogger(__name__)

MANY_RECOMPILES = 5  # training and evaluation need one or two each; torch gives up at 8


def compile_model(
    model: nn.Module, backend: str | None, mode: str | None, varied: tuple[int, ...]
) -> nn.Module:
    """The model as torch compiles it at its first call.

    Args:
        model: What to compile.
        backend: What compiles it; inductor by default.
        mode: What the backend optimizes for.
        varied: Dimensions of the inputs whose sizes differ from batch to batch. If torch is not told, it
            compiles for the first sizes, and once more when it sees others.
    """
    compiled: Any = torch.compile(model, backend=backend or "inductor", mode=mode)
    compiled.register_forward_pre_hook(partial(_before_forward, varied=varied), with_kwargs=True)
    return compiled  # type: ignore[no-any-return]


def find_varied(collator: Any, drops_last: bool) -> tuple[int, ...]:
    """The dimensions whose sizes differ: rows if a batch may be short, width if each batch has its own."""
    rows = () if drops_last else (0,)
    width = (1,) if getattr(collator, "padding", None) in (True, "longest") else ()
    return (*rows, *width)


def _before_forward(module: nn.Module, args: Any, kwargs: dict[str, Any], *, varied: tuple[int, ...]) -> None:
    """Tell torch which sizes of the inputs are not constants."""
    from torch._dynamo import maybe_mark_dynamic

    if isinstance(labels := kwargs.get("labels"), torch.Tensor):
        settle_problem_type(bare_model(module), labels)
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            maybe_mark_dynamic(value, [dimension for dimension in varied if dimension < value.dim()])


def settle_problem_type(model: nn.Module, labels: torch.Tensor) -> None:
    """Name the kind of labels as a classifier of transformers does in its first forward.

    A model that changes its config while it is compiled is compiled again at the next batch.
    """
    config: Any = getattr(model, "config", None)
    is_classifier = type(model).__name__.endswith("ForSequenceClassification")
    if not is_classifier or getattr(config, "problem_type", "") is not None:
        return
    if config.num_labels == 1:
        config.problem_type = "regression"
    elif labels.dtype in (torch.long, torch.int):
        config.problem_type = "single_label_classification"
    else:
        config.problem_type = "multi_label_classification"


class CompileWatch:
    """Counts what torch compiles during a run; entered only if something is compiled."""

    def __init__(self) -> None:
        self.num_compiles = 0
        self.num_recompiles = 0
        self.seconds = 0.0
        self._start = 0.0
        self._has_told = self._has_warned = False

    def __enter__(self) -> CompileWatch:
        from torch._dynamo.callback import callback_handler

        callback_handler.register_start_callback(self._begin)
        callback_handler.register_end_callback(self._end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from torch._dynamo.callback import callback_handler

        with suppress(ValueError):  # torch.compiler.reset() has removed all
            callback_handler.remove_start_callback(self._begin)
            callback_handler.remove_end_callback(self._end)

    def _begin(self, *given: Any) -> None:
        self._start = time.perf_counter()

    def _end(self, *given: Any) -> None:
        self.seconds += time.perf_counter() - self._start
        event = given[0] if given else None  # older versions of torch say nothing about it
        trigger = getattr(event, "callback_trigger", None)
        if getattr(trigger, "name", "") == "LAZY_BACKWARD":  # belongs to a forward that was counted
            return
        self.num_compiles += 1
        # "2/1": the second time that the third function is compiled
        self.num_recompiles += str(getattr(event, "compile_id", None)).rpartition("/")[2] not in ("0", "None")

    def report(self, start_time: float) -> None:
        """After an update: say once what the first one cost, and once if torch compiles too often.

        Args:
            start_time: When training began, by `time.time()`.
        """
        if not self._has_told:
            self._has_told = True
            elapsed_seconds = time.time() - start_time
            logger.info("Compiled in %.1f s: the first update took %.1f s.", self.seconds, elapsed_seconds)
        if self.num_recompiles >= MANY_RECOMPILES and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "torch compiled %d times in this run, %d of them because something had changed, which took "
                "%.1f s in all. The last reason that it gives: %s. To fix this, pad to fewer widths "
                "(padding_multiple=64, or a collator that pads to one length), leave out a last batch of "
                "fewer rows (dataloader_drop_last=True), or turn torch_compile off.",
                self.num_compiles,
                self.num_recompiles,
                self.seconds,
                find_last_reason() or "none",
            )


def find_last_reason() -> str | None:
    """Why torch compiled a function again, the last time that it did."""
    from torch._dynamo.utils import get_compilation_metrics

    reasons = (getattr(metrics, "recompile_reason", None) for metrics in reversed(get_compilation_metrics()))
    return next((str(reason).strip().splitlines()[0] for reason in reasons if reason), None)
