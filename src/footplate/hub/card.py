"""The model card: what was trained, on what, how, and how well it did. The one writer of `README.md`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from footplate.disk import read_bytes, replacing
from footplate.hub.curves import draw_curves, find_curves
from footplate.hub.marks import block, find_blocks, is_ours, is_signed, keep_blocks, sign
from footplate.hub.metadata import DatasetFacts, build_metadata, merge_front, split_front, write_front
from footplate.hub.results import find_rows, set_name, thin, title

CARD = "README.md"
CURVES = "training_curves.svg"
MAX_CARD_BYTES = 4 << 20

logger = logging.getLogger(__name__)


@dataclass
class CardFacts:
    """All that a card says, as plain values.

    Args:
        name: Of the model.
        library: Whose classes load it: `transformers`, `peft` or `footplate`.
        summary: What it is for, in a few words; empty if nobody said it.
        base_model: The model that training began with, by its name on the Hub.
        results: Metrics by set, as `results.find_results` gives them.
        history: `state.log_history`, for the table of evaluations and the curves.
        settings: Those of training that every card lists.
        other_settings: Others that differ from their defaults.
        versions: Of packages, by name.
        data: Lines about the rows that were used.
        loading: Python code that loads the model.
    """

    name: str
    library: str = "transformers"
    summary: str = ""
    language: list[str] = field(default_factory=list)
    license: str | None = None
    tags: list[str] = field(default_factory=list)
    base_model: str | None = None
    tasks: list[str] = field(default_factory=list)
    datasets: list[DatasetFacts] = field(default_factory=list)
    results: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    other_settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    data: list[str] = field(default_factory=list)
    loading: str = ""


def save_card(facts: CardFacts, folder: Path) -> Path:
    """Write `README.md` into a folder, with what a person wrote into the old one; return its path.

    Front matter that only the old card has is kept too. A card that somebody else wrote, or that was changed
    outside of the marks, is kept beside the new one under another name.
    """
    path = folder / CARD
    front, old_body = split_front(_read(path))
    is_of_peft = front.get("library_name") == "peft" and not is_signed(old_body)  # it fills a template in
    if old_body.strip() and not is_ours(old_body) and not is_of_peft:
        _set_aside(path)
    curves = find_curves(facts.history)
    if curves:
        _save(draw_curves(curves), folder / CURVES)
    body = keep_blocks(write_body(facts, has_curves=bool(curves)), find_blocks(old_body))
    _save(write_front(merge_front(_front_of(facts), front)) + sign(body), path)
    return path


def write_body(facts: CardFacts, has_curves: bool = False) -> str:
    """The card below its front matter, with headings as those of transformers."""
    parts = [
        f"\n# {facts.name}\n\n{_origin(facts)}",
        *_result_lists(facts),
        f"\n## Model description\n\n{block('description')}",
        f"\n## Intended uses & limitations\n\n{block('limitations')}",
        "\n## Training and evaluation data\n",
        *([_list(facts.data), ""] if facts.data else []),
        block("data"),
        *([f"\n## How to load it\n\n```python\n{facts.loading}\n```"] if facts.loading else []),
        "\n## Training procedure\n\n### Training hyperparameters\n",
        "The following hyperparameters were used during training:",
        _list(f"{name}: {value}" for name, value in facts.settings.items()),
    ]
    if facts.other_settings:
        parts += ["\nOther settings that differ from their defaults:\n"]
        parts += [_list(f"{name}: {_in_line(value)}" for name, value in facts.other_settings.items())]
    rows = find_rows(facts.history)
    if rows or has_curves:
        parts.append("\n### Training results\n")
        parts += [f"![Losses over the steps of training]({CURVES})\n"] if has_curves else []
        parts += [_table(thin(rows))] if rows else []
        shown = len(thin(rows))
        parts += [f"\n{shown} of {len(rows)} evaluations are shown."] if shown < len(rows) else []
    versions = _list(f"{name} {version}" for name, version in facts.versions.items())
    parts.append(f"\n### Framework versions\n\n{versions}\n")
    return "\n".join(parts)


def _front_of(facts: CardFacts) -> dict[str, Any]:
    return build_metadata(
        name=facts.name,
        library=facts.library,
        language=facts.language,
        license=facts.license,
        base_model=facts.base_model,
        tags=facts.tags,
        tasks=facts.tasks,
        datasets=facts.datasets,
        results=facts.results,
    )


def _origin(facts: CardFacts) -> str:
    if facts.base_model:
        link = f"[{facts.base_model}](https://huggingface.co/{facts.base_model})"
        start = f"This model is a fine-tuned version of {link}"
    else:
        start = "This model was trained from scratch"
    names = [f"the {dataset.name}" for dataset in facts.datasets]
    together = " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
    source = f"{together} dataset{'s' if len(names) > 1 else ''}" if names else "an unknown dataset"
    return f"{start} on {source}." + (f" It is for {facts.summary}." if facts.summary else "")


def _result_lists(facts: CardFacts) -> list[str]:
    parts = []
    for prefix, found in facts.results.items():
        lines = _list(f"{title(name)}: {_short(value)}" for name, value in found.items())
        parts.append(f"\nIt achieves the following results on the {set_name(prefix)} set:\n{lines}")
    return parts


def _list(lines: Any) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _in_line(value: Any) -> str:
    return " ".join(str(value).split())


def _table(rows: list[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    cells = [columns, *([_short(row.get(name, "")) for name in columns] for row in rows)]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in cells
    ]
    return "\n".join([lines[0], "|" + "|".join(f":{'-' * width}:" for width in widths) + "|", *lines[1:]])


def _short(value: Any) -> str:
    """At most four digits after the point; a very small number keeps its size."""
    if not isinstance(value, float):
        return str(value)
    if value and abs(value) < 1e-3:
        return f"{value:.4g}"
    return f"{value:.4f}" if round(value, 4) != value else str(value)


# ---- files ----


def _read(path: Path) -> str:
    try:
        return read_bytes(path, MAX_CARD_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    except ValueError:
        return "too large to be ours"


def _set_aside(path: Path) -> None:
    names = (path.with_name(f"{path.stem}.old{number or ''}{path.suffix}") for number in count())
    other = next(name for name in names if not name.exists())
    path.rename(other)
    logger.warning(
        "%s was written or changed by somebody else, outside of the marks of a card, so it is kept as %s. "
        "Text between the marks stays where it is.",
        path,
        other.name,
    )


def _save(text: str, path: Path) -> None:
    with replacing(path) as file:
        file.write(text.encode("utf-8"))
