"""Put footplate in the place of the Trainer of transformers, for scripts and libraries that import that one.

The modules of transformers stay what they are, and its own code sees them unchanged: whatever it needs of
its Trainer keeps working. Only who asks from outside gets footplate's object for a name that both have.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import FunctionType, ModuleType
from typing import Any

logger = logging.getLogger(__name__)

PACKAGE = "transformers"
PACKAGES = (PACKAGE, "transformers.data", "transformers.integrations")  # they only pass names on
HOMES = (  # modules of the original that hold what users of the Trainer import
    "transformers.trainer",
    "transformers.trainer_callback",
    "transformers.trainer_jit_checkpoint",
    "transformers.trainer_optimizer",
    "transformers.trainer_pt_utils",
    "transformers.trainer_seq2seq",
    "transformers.trainer_utils",
    "transformers.training_args",
    "transformers.training_args_seq2seq",
    "transformers.optimization",
    "transformers.data.data_collator",
    "transformers.debug_utils",
    "transformers.hf_argparser",
    "transformers.hyperparameter_search",
    "transformers.integrations.deepspeed",
    "transformers.integrations.fsdp",
    "transformers.integrations.integration_utils",
    "transformers.integrations.neftune",
    "transformers.utils.notebook",
)
MODULES = frozenset(PACKAGES + HOMES)
MAKES_ANOTHER = "transformers.processing_utils"  # runs the package once more: there are two of it afterwards
MAIN_NAMES = ("Trainer", "Seq2SeqTrainer", "TrainingArguments", "TrainerCallback")


def take_over() -> None:
    """From now on, names of the Trainer that are imported from transformers are footplate's.

    In a notebook, call it first: a class that a library has already built on the Trainer of transformers
    cannot be moved, and is refused. `hand_back()` ends it.
    """
    if _place.is_taken:
        return
    original = _import_original()
    check_nothing_is_built()
    _place.take()
    shown = sorted(set(dir(original)) & _our_names())
    logger.warning(
        "%s and %d more names of %s %s are footplate's now, and so are the helpers in its trainer modules.",
        ", ".join(MAIN_NAMES),
        len(set(shown) - set(MAIN_NAMES)),
        PACKAGE,
        original.__version__,
    )


def hand_back() -> None:
    """From now on, transformers gives its own names again; what was built in between stays footplate's."""
    _place.leave()


def check_nothing_is_built() -> None:
    """Refuse if a library is already built on the original's Trainer: half of it would be footplate's."""
    trainer = sys.modules.get("transformers.trainer")
    original: type[Any] | None = vars(trainer).get("Trainer") if trainer is not None else None
    built = [kind for kind in _subclasses(original) if not _is_of_transformers(kind.__module__)]
    if built:
        names = ", ".join(sorted(f"{kind.__module__}.{kind.__qualname__}" for kind in built))
        packages = ", ".join(sorted({kind.__module__.split(".")[0] for kind in built}))
        raise ValueError(
            f"take_over() comes too late: {names} are already built on the Trainer of transformers, and a "
            f"class cannot change its base. Restart Python and call take_over() before importing {packages}."
        )


def _subclasses(kind: type[Any] | None) -> Iterator[type[Any]]:
    for below in kind.__subclasses__() if kind is not None else ():
        yield below
        yield from _subclasses(below)


def _import_original() -> Any:
    try:
        return importlib.import_module(PACKAGE)
    except ImportError as error:
        raise ImportError(
            "There is nothing to take over: transformers is not installed. pip install footplate[hf]"
        ) from error


@cache
def _our_names() -> frozenset[str]:
    from footplate import public

    return frozenset(public.__all__)


def _our(name: str) -> Any:
    from footplate import public

    return getattr(public, name)


def _is_ours(name: str, held: dict[str, Any]) -> bool:
    """Whether footplate has this name of a module, from the module's dictionary: lazy ones hold a list."""
    return name in _our_names() and (name in held or name in held.get("__all__", ()))


def _is_of_transformers(module: str) -> bool:
    return module == PACKAGE or module.startswith(f"{PACKAGE}.")


def _is_asked_by_transformers() -> bool:
    """Whether the code that asks a module for a name is transformers' own: it gets what it always got."""
    return _is_of_transformers(str(sys._getframe(2).f_globals.get("__name__", "")))


class _Redirected(ModuleType):
    """A module of transformers that answers for some names with footplate's objects.

    Functions of the module read its dictionary, not its attributes, so that they see what they always saw.
    """

    def __getattribute__(self, name: str) -> Any:
        own = super().__getattribute__
        if name.startswith("_") or _is_asked_by_transformers():
            return own(name)
        if _is_ours(name, own("__dict__")):
            key = (own("__name__"), name)
            return _place.assigned[key] if key in _place.assigned else _our(name)
        found = own(name)
        _place.note_original(name, found)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if _is_ours(name, self.__dict__) and not _is_asked_by_transformers():
            _place.assigned[self.__name__, name] = value  # seen by who asks; the original keeps its own
        else:
            super().__setattr__(name, value)


class _Place:
    """Which modules are redirected, and what brings them back."""

    def __init__(self) -> None:
        self.is_taken = False
        self.assigned: dict[tuple[str, str], Any] = {}  # names that somebody replaced by hand since
        self._kinds: list[tuple[ModuleType, type[ModuleType]]] = []  # modules with the class they had
        self._rebound: list[tuple[ModuleType, str, Any]] = []
        self._said: set[str] = set()

    def take(self) -> None:
        """Redirect the modules that are loaded, and each other one when it is."""
        self.is_taken = True
        sys.meta_path.insert(0, _finder)
        self._rebind([sys.modules[name] for name in MODULES & sys.modules.keys()])
        self.redirect()

    def leave(self) -> None:
        """Undo `take`."""
        if not self.is_taken:
            return
        sys.meta_path.remove(_finder)
        for module, kind in self._kinds:
            module.__class__ = kind
        for holder, name, value in self._rebound:
            setattr(holder, name, value)
        self.__init__()  # type: ignore[misc]

    def redirect(self) -> None:
        """Let every module that is loaded answer with footplate's objects for the names that both have."""
        for name in MODULES & sys.modules.keys():
            module = sys.modules[name]
            kind = type(module)
            if not isinstance(module, _Redirected):
                self._kinds.append((module, kind))
                module.__class__ = type(f"Redirected{kind.__name__}", (_Redirected, kind), {})

    def note_original(self, name: str, found: Any) -> None:
        """Say once that something of the original's Trainer is used, as footplate has none of this name."""
        home = getattr(found, "__module__", None)
        if isinstance(found, (type, FunctionType)) and home in HOMES and name not in self._said:
            self._said.add(name)
            logger.warning("%s.%s is the original's: footplate has no %s.", home, name, name)

    def _rebind(self, loaded: list[ModuleType]) -> None:
        """Give modules that imported a name before footplate's object for it, such as a notebook's own."""
        ours = {
            id(vars(module)[name]): name
            for module in loaded
            for name in _our_names() & vars(module).keys()
            if getattr(vars(module)[name], "__module__", None) in HOMES
        }
        for module in list(sys.modules.values()):
            own = str(getattr(module, "__name__", ""))
            if not isinstance(module, ModuleType) or _is_of_transformers(own) or own.startswith("footplate"):
                continue
            for name, value in list(vars(module).items()):
                if id(value) in ours:
                    self._rebound.append((module, name, value))
                    setattr(module, name, _our(ours[id(value)]))


class _Finder(MetaPathFinder):
    """Finds the modules to redirect as Python does, and redirects each when it has run."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The usual spec, with a loader that redirects; None for all other modules."""
        is_watched = fullname in MODULES or fullname == MAKES_ANOTHER
        spec = PathFinder.find_spec(fullname, path, target) if is_watched else None
        if spec is not None and spec.loader is not None:
            spec.loader = _RedirectingLoader(spec.loader)
        return spec


class _RedirectingLoader(Loader):
    """Loads a module as another loader does, then redirects it."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """What the other loader makes."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, then redirect what is new."""
        self._loader.exec_module(module)
        if _place.is_taken:
            _place.redirect()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)  # such as get_source, for tracebacks


_finder = _Finder()
_place = _Place()
