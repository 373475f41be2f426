"""Let a script build its Trainer with other settings than it gives."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from footplate.arguments import TrainingArguments
from footplate.trainer import Trainer


def build_with(
    change: Callable[[TrainingArguments], TrainingArguments], finish: Callable[[Trainer], None]
) -> Any:
    """A `Trainer.__init__` for the place of the one that is there.

    Args:
        change: Changes the settings that a script gives, in place or by others.
        finish: Is handed each Trainer when it is built.
    """
    build = Trainer.__init__
    signature = inspect.signature(build)

    @functools.wraps(build)
    def build_changed(self: Trainer, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(self, *args, **kwargs)
        settings = given.arguments.get("args")
        given.arguments["args"] = change(settings if settings is not None else TrainingArguments())
        build(*given.args, **given.kwargs)
        finish(self)

    return build_changed
