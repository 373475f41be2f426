"""What the builder of an optimizer goes by: arguments, model, and the options in `optim_args`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from torch import nn

from footplate.outputs import OptimizerNames

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

ClassAndKwargs = tuple[Any, dict[str, Any]]

Value = TypeVar("Value")

SWITCHES = {
    **dict.fromkeys(("true", "1", "yes", "y", "t", "on"), True),
    **dict.fromkeys(("false", "0", "no", "n", "f", "off"), False),
}


class OptimizerOptions:
    """Options such as "momentum=0.9,nesterov=true"; remembers which of them nobody has taken.

    Args:
        text: The whole of `optim_args`.
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
        """One option, or `default` where it was not given."""
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
        """Every option left, each read as what it looks like."""
        return self.take_given(list(self._texts), parse_value)


def parse_switch(text: str) -> bool:
    """True or false, in any of the usual spellings."""
    if text.lower() not in SWITCHES:
        raise ValueError(f"{text!r} is neither true nor false")
    return SWITCHES[text.lower()]


def parse_value(text: str) -> int | float | bool | str:
    """A number or a truth value where it looks like one, else the text."""
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)


@dataclass
class Request:
    """What a builder goes by: the arguments, the model, and the options given in `optim_args`."""

    name: OptimizerNames
    args: TrainingArguments
    model: nn.Module | None
    options: OptimizerOptions

    @property
    def adam(self) -> dict[str, Any]:
        """The settings that every relative of Adam takes."""
        return {"betas": (self.args.adam_beta1, self.args.adam_beta2), "eps": self.args.adam_epsilon}

    def load(self, path: str, package: str) -> Any:
        """A class from a package that footplate does not depend on."""
        module, _, attribute = path.rpartition(".")
        try:
            return getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise ImportError(
                f"optim={self.name.value!r} needs {path}, which this environment lacks ({error}): "
                f"run `pip install {package}`, or choose another optim."
            ) from error
