"""What the builder of an optimizer gets: arguments, model, and the options in `optim_args`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from torch import nn

from footplate.outputs import OptimizerNames
from footplate.words import string_to_bool

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

ClassAndKwargs = tuple[Any, dict[str, Any]]

Value = TypeVar("Value")

parse_switch = string_to_bool  # for `OptimizerOptions.take`


class OptimizerOptions:
    """Options such as "momentum=0.9,nesterov=true"; `unused` lists those that no builder has taken.

    Args:
        text: The value of `optim_args`.
    """

    def __init__(self, text: str | None) -> None:
        self._texts: dict[str, str] = {}
        for part in (text or "").replace(" ", "").split(","):
            name, separator, value = part.partition("=")
            if separator and name:
                self._texts[name] = value
            elif part:
                raise ValueError(
                    f"optim_args={text!r}: {part!r} is not of the form name=value. Write 'a=1,b=true'."
                )

    @property
    def unused(self) -> list[str]:
        """Names that were given and not taken."""
        return list(self._texts)

    def take(self, name: str, convert: Callable[[str], Value], default: Any) -> Any:
        """One option, or `default` if it was not given."""
        if name not in self._texts:
            return default
        text = self._texts.pop(name)
        try:
            return convert(text)
        except ValueError as error:
            raise ValueError(f"optim_args has {name}={text}, which cannot be read: {error}.") from error

    def take_given(self, names: Iterable[str], convert: Callable[[str], Value]) -> dict[str, Value]:
        """Those of the named options that were given."""
        return {name: self.take(name, convert, None) for name in names if name in self._texts}

    def take_all(self) -> dict[str, Any]:
        """All options that are left, as numbers and booleans if they look like them."""
        return self.take_given(list(self._texts), parse_value)


def parse_value(text: str) -> int | float | bool | str:
    """`text` as a number or a boolean if it looks like one, else as it is."""
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)


@dataclass
class Request:
    """What a builder gets: the name, the arguments, the model, and the options in `optim_args`."""

    name: OptimizerNames
    args: TrainingArguments
    model: nn.Module | None
    options: OptimizerOptions

    @property
    def adam(self) -> dict[str, Any]:
        """The settings that every variant of Adam takes."""
        return {"betas": (self.args.adam_beta1, self.args.adam_beta2), "eps": self.args.adam_epsilon}

    def load(self, path: str, package: str) -> Any:
        """A class from a package that footplate does not depend on."""
        module, _, attribute = path.rpartition(".")
        try:
            return getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise ImportError(
                f"optim={self.name.value!r} needs {path}, which is not installed ({error}). "
                f"Run `pip install {package}`, or choose another optim."
            ) from error
