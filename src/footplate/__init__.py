"""footplate: the Hugging Face Trainer API as a small, fast, readable library."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from footplate.homes import find_homes

__version__ = "0.1.0"

if TYPE_CHECKING:
    from footplate.public import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        """A public name or a module, loaded when first asked for: the command starts without torch."""
        is_hidden = name.startswith("_") and name != "__all__"
        home = None if is_hidden else find_homes().get(name)
        if (
            home is None
            and not is_hidden
            and name != "__all__"
            and find_spec(f"footplate.{name}") is not None
        ):
            return import_module(f"footplate.{name}")
        found = None if is_hidden else import_module(home or "footplate.public")
        if not hasattr(found, name):
            raise AttributeError(f"module 'footplate' has no attribute {name!r}")
        globals()[name] = getattr(found, name)  # the next look-up does not come here
        return globals()[name]

    def __dir__() -> list[str]:
        """The public names, for completion."""
        return sorted({*globals(), *import_module("footplate.public").__all__})
