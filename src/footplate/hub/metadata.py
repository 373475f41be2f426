"""The front matter of a card: what the Hub reads of it."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from footplate.hub.results import split_of, title

logger = logging.getLogger(__name__)

TASK_NAMES = {
    "fill-mask": "Masked Language Modeling",
    "text-generation": "Causal Language Modeling",
    "text2text-generation": "Sequence-to-sequence Language Modeling",
}
# the Hub's names of metrics that are called otherwise in results; others keep their own name
_METRIC_TYPES = {
    **dict.fromkeys(("rouge1", "rouge2", "rougeL", "rougeLsum", "rougel", "rougelsum"), "rouge"),
    **{"pearson": "pearsonr", "spearman": "spearmanr", "matthews": "matthews_correlation"},
}
_FRONT = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*$\n?", re.DOTALL | re.MULTILINE)


@dataclass
class DatasetFacts:
    """A dataset as a card names it.

    Args:
        name: For people.
        tag: Its name on the Hub; None for one that is not there.
        config: The configuration of it that was used.
        split: The split that results are of; None: what the metrics' own names say.
        args: Further arguments.
    """

    name: str
    tag: str | None = None
    config: str | None = None
    split: str | None = None
    args: Any = None


def build_metadata(
    *,
    name: str,
    library: str,
    language: list[str],
    license: str | None,
    base_model: str | None,
    tags: list[str],
    tasks: list[str],
    datasets: list[DatasetFacts],
    results: Mapping[str, Mapping[str, float]],
) -> dict[str, Any]:
    """The front matter as plain values, in the order in which it is written."""
    metrics = {metric_type(metric): None for found in results.values() for metric in found}
    metrics.pop("loss", None)
    values: dict[str, Any] = {
        "library_name": library,
        "language": language,
        "license": license,
        "base_model": base_model,
        "tags": tags,
        "datasets": [dataset.tag for dataset in datasets if dataset.tag],
        "metrics": list(metrics),
    }
    values = {key: value for key, value in values.items() if value not in (None, [], "")}
    values["model-index"] = [{"name": name, "results": build_results(tasks, datasets, results)}]
    return values


def build_results(
    tasks: list[str], datasets: list[DatasetFacts], results: Mapping[str, Mapping[str, float]]
) -> list[dict[str, Any]]:
    """One entry per task, dataset and split; none without a task or a dataset, which the Hub refuses."""
    entries = []
    for task in tasks:
        for dataset in datasets:
            for prefix, found in results.items():
                measured = [
                    {"name": title(name), "type": metric_type(name), "value": value}
                    for name, value in found.items()
                    if math.isfinite(value) and (name != "loss" or len(found) == 1)
                ]
                described: dict[str, Any] = {"name": dataset.name, "type": dataset.tag or dataset.name}
                if dataset.config:
                    described["config"] = dataset.config
                is_evaluation = split_of(prefix) == "validation"
                described["split"] = (dataset.split if is_evaluation else None) or split_of(prefix)
                if dataset.args is not None:
                    described["args"] = dataset.args
                task_name = TASK_NAMES.get(task, title(task.replace("-", "_")))
                entry = {"task": {"name": task_name, "type": task}, "dataset": described, "metrics": measured}
                entries += [entry] if measured else []
    return entries


def metric_type(name: str) -> str:
    """The name of a metric on the Hub."""
    plain = name.replace(" ", "_")
    return _METRIC_TYPES.get(plain, _METRIC_TYPES.get(plain.lower(), plain.lower()))


def split_front(card: str) -> tuple[dict[str, Any], str]:
    """The front matter of a card, and its body; front matter that cannot be read counts as none."""
    import yaml

    card = card.replace("\r\n", "\n")
    found = _FRONT.match(card)
    if found is None:
        return {}, card
    try:
        values = yaml.safe_load(found[1])
    except yaml.YAMLError as error:
        logger.warning("The front matter of the old card cannot be read, so it is not kept: %s", error)
        values = {}
    return values if isinstance(values, dict) else {}, card[found.end() :]


def merge_front(new: dict[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """The new front matter, with what only the old one has: a person may have added it."""
    merged = {**new, **{str(key): value for key, value in old.items() if key not in new}}
    tags = old.get("tags")
    old_tags = [tags] if isinstance(tags, str) else tags if isinstance(tags, list) else []
    merged["tags"] = list(dict.fromkeys([*new.get("tags", []), *map(str, old_tags)]))
    order = [key for key in merged if key != "model-index"]  # it is long: last, so that the rest is seen
    return {key: merged[key] for key in [*order, *(["model-index"] if "model-index" in merged else [])]}


def write_front(values: Mapping[str, Any]) -> str:
    """The front matter as text, with its two lines."""
    import yaml

    return f"---\n{yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)}---\n"
