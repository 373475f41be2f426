"""Columns: which of them the model's forward names, and dropping the others before the collator sees them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch.utils.data import get_worker_info

from footplate.data.collators.default import check_no_missing
from footplate.wrappers import forward_parameters

logger = logging.getLogger(__name__)

_already_named: set[tuple[str | None, str | None, bool, frozenset[str]]] = set()


def signature_columns(model: Any, label_names: Iterable[str] | None) -> list[str]:
    """The columns worth keeping: what forward names, and labels by any of their names."""
    return list(dict.fromkeys([*forward_parameters(model), "label", "label_ids", *(label_names or [])]))


def can_drop_columns(dataset: Any) -> bool:
    """Whether columns can be taken off the dataset itself; else `ColumnFilter` takes them off the samples."""
    package = sys.modules.get("datasets")
    if package is None or not isinstance(dataset, (package.Dataset, package.IterableDataset)):
        return False
    # A transform on access works on columns that forward may never see: drop from what it returns instead.
    transformed = isinstance(dataset, package.Dataset) and dataset.format["type"] == "custom"
    return dataset.column_names is not None and not transformed


def drop_unused_columns(
    dataset: Any,
    keep: Sequence[str],
    *,
    description: str | None = None,
    model_name: str | None = None,
    custom: bool = False,
) -> Any:
    """A `datasets` dataset with only the columns in `keep`; other datasets come back as they are.

    Args:
        dataset: What `can_drop_columns` says yes to.
        keep: The names that stay, see `signature_columns`.
        description: Which set this is, for the notice.
        model_name: Whose forward decides, for the notice.
        custom: The collator or the loss is the user's own and may want what is dropped: warn about it.
    """
    if not can_drop_columns(dataset):
        return dataset
    dropped = [column for column in dataset.column_names if column not in set(keep)]
    if not dropped:
        return dataset
    if len(dropped) == len(dataset.column_names):
        raise _nothing_left_error(dropped, keep, description, model_name)
    _name_dropped(logger, dropped, description, model_name, custom)
    return dataset.remove_columns(dropped)


_PLAIN = {dict}


class ColumnFilter:
    """A collator that first takes unknown columns off dictionary samples; other samples pass untouched.

    Args:
        data_collator: What makes a batch of the samples.
        signature_columns: The names that stay.
        logger: Where dropped columns are named; this module's own if not given.
        model_name: Whose forward decides, for the notice.
        description: Which set this is, for the notice.
        custom: The collator or the loss is the user's own and may want what is dropped: warn about it.
    """

    def __init__(
        self,
        data_collator: Callable[[list[Any]], Any],
        signature_columns: Sequence[str],
        logger: Any | None = None,
        model_name: str | None = None,
        description: str | None = None,
        custom: bool = False,
    ) -> None:
        self.data_collator = data_collator
        self.signature_columns = signature_columns
        self.logger = logger
        self.model_name = model_name
        self.description = description
        self.custom = custom
        self._keep = frozenset(signature_columns)
        self._seen: frozenset[str] = frozenset()  # what was dropped and reported so far

    def __call__(self, features: list[Any]) -> Any:
        # looked at in every batch, as keys may change; half a microsecond for eight plain dictionaries
        is_plain = {*map(type, features)} == _PLAIN
        named = features if is_plain else [feature for feature in features if isinstance(feature, dict)]
        if not all(map(self._keep.issuperset, named)):
            features = [self._remove_columns(feature) for feature in features]
        try:
            return self.data_collator(features)
        except Exception as error:  # one that leaves out samples that are None does not fail on them
            check_no_missing(features, error)
            raise

    def _remove_columns(self, feature: Any) -> Any:
        """One sample without the columns that nobody names."""
        if not isinstance(feature, dict):
            return feature
        keep = self._keep
        kept = {name: value for name, value in feature.items() if name in keep}
        if feature and not kept:
            raise _nothing_left_error(feature, self.signature_columns, self.description, self.model_name)
        if len(kept) != len(feature) and not self._seen.issuperset(dropped := feature.keys() - keep):
            self._seen |= dropped
            log = self.logger or logger
            _name_dropped(log, sorted(dropped), self.description, self.model_name, self.custom)
        return kept


RemoveColumnsCollator = ColumnFilter  # the API's name for it


def _name_dropped(
    log: Any, dropped: Sequence[str], description: str | None, model_name: str | None, custom: bool
) -> None:
    """Say which columns do not reach the model, once for the same columns of the same set."""
    notice = (description, model_name, custom, frozenset(dropped))
    worker = get_worker_info()
    if notice in _already_named or (worker is not None and worker.id > 0):  # one of several workers is enough
        return
    _already_named.add(notice)
    text = (
        f"Columns{_of_set(description)} that {_forward_of(model_name)} does not name were dropped: "
        f"{', '.join(dropped)}."
    )
    if custom:
        log.warning(
            f"{text} If your collator or loss needs one of them, name it in keep_columns=[...] or set "
            "remove_unused_columns=False."
        )
    else:
        log.info(text)


def _nothing_left_error(
    columns: Iterable[str], keep: Iterable[str], description: str | None, model_name: str | None
) -> ValueError:
    """Both sets side by side, and the two settings that help."""
    return ValueError(
        f"None of the columns{_of_set(description)} is named by {_forward_of(model_name)}: the data has "
        f"{sorted(columns)}, the model takes {list(keep)} (a bare *args or **kwargs names no column). Rename "
        "columns, list those to keep in keep_columns=[...], or set remove_unused_columns=False to pass all."
    )


def _of_set(description: str | None) -> str:
    """The set's name as part of a sentence."""
    return f" of the {description} set" if description else ""


def _forward_of(model_name: str | None) -> str:
    """The forward's name as part of a sentence."""
    return f"{model_name}.forward" if model_name else "the model's forward"


def names_of(dataset: Any) -> list[str]:
    """The columns of a dataset, from its table or from its first sample; none where they cannot be had."""
    if isinstance(dataset, dict):
        dataset = next(iter(dataset.values()), None)
    if getattr(dataset, "column_names", None) is not None:
        return list(dataset.column_names)
    sample = dataset[0] if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__") else None
    return [str(name) for name in sample] if isinstance(sample, Mapping) else []
