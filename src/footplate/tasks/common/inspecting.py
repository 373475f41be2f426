"""What the rows of a task become: shown for a few, counted for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from footplate.tasks.common.models import load_config, load_processor
from footplate.tasks.common.preparing import drop_bad_rows
from footplate.tasks.common.reading import limit_rows
from footplate.tasks.common.recipe import Recipe, Row
from footplate.tasks.common.running import count_of, prepare, read_rows, source_name, texts_of

GREEN, GREY, BOLD, PLAIN = "\x1b[32m", "\x1b[90m", "\x1b[1m", "\x1b[0m"
LABELS = ("labels", "label", "start_positions", "end_positions")
IGNORED = -100
MAX_TEXT, MAX_TOKENS = 400, 160


class Painter(NamedTuple):
    """Colours words on a terminal, and marks them in plain text."""

    has_colours: bool

    def bold(self, text: str) -> str:
        """A heading."""
        return f"{BOLD}{text}{PLAIN}" if self.has_colours else text

    def tokens(self, words: Sequence[str], counts: Sequence[bool] | None, is_padding: Sequence[bool]) -> str:
        """Tokens in a line: those that carry loss stand out, padding is left out."""
        shown = []
        for place, word in enumerate(words[:MAX_TOKENS]):
            if is_padding[place]:
                continue
            carries = counts is not None and counts[place]
            if self.has_colours:
                shown.append(f"{GREEN if carries else GREY if counts is not None else ''}{word}{PLAIN}")
            else:
                shown.append(f"[{word}]" if carries else word)
        more = len(words) - MAX_TOKENS - sum(is_padding[MAX_TOKENS:])
        return " ".join(shown) + (f" ... and {more} more" if more > 0 else "")


def inspect_task(recipe: Recipe, count: int, painter: Painter) -> Iterator[str]:
    """Lines that show the first rows of each split and what they become, then figures over all rows."""
    rows = read_rows(recipe)
    recipe.learn(rows)
    rows = {split: drop_bad_rows(part, recipe, source_name(recipe, split)) for split, part in rows.items()}
    recipe.config = load_config(recipe)
    recipe.processor = load_processor(recipe, texts_of(recipe, rows.get("train", ())))
    for split, part in rows.items():
        features = prepare(recipe, part, split)
        part = limit_rows(part, count_of(recipe, split) if recipe.limits_rows else None)
        yield painter.bold(f"{split}: {source_name(recipe, split)}")
        for index in range(min(count, len(part))):
            yield f"\nrow {index + 1}"
            yield from describe_row(part[index])
        for index in range(min(count, len(features))):
            yield f"\nfeature {index + 1}"
            yield from describe_feature(features[index], recipe, painter)
        yield ""
        yield from count_features(part, features, recipe, painter)
        yield ""


def describe_row(row: Row) -> Iterator[str]:
    """A row as it was read."""
    for name, value in row.items():
        text = value if isinstance(value, str) else describe_value(value)
        yield f"  {name}: {text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + ' ...'}"


def describe_feature(feature: Row, recipe: Recipe, painter: Painter) -> Iterator[str]:
    """What the model gets: tokens and labels, shapes of other arrays."""
    ids: Any = feature.get("input_ids")
    labels: Any = feature.get("labels", feature.get("label"))
    tokenizer = getattr(recipe.processor, "tokenizer", recipe.processor)
    if is_list_of_numbers(ids) and hasattr(tokenizer, "convert_ids_to_tokens"):
        words = tokenizer.convert_ids_to_tokens(list(ids))
        mask = feature.get("attention_mask") or [1] * len(ids)
        is_padding = [not bit for bit in mask]
        counts = None
        if is_list_of_numbers(labels) and len(labels) == len(ids):
            counts = [label != IGNORED for label in labels]
        kept = len(ids) - sum(is_padding)
        yield f"  {kept} tokens: {painter.tokens(words, counts, is_padding)}"
        if counts is not None:
            yield f"  {sum(counts)} of them carry loss"
    for name in LABELS:
        value: Any = feature.get(name)
        if value is None or (
            is_list_of_numbers(value) and is_list_of_numbers(ids) and len(value) == len(ids)
        ):
            continue
        if is_list_of_numbers(value) and hasattr(tokenizer, "decode"):
            kept_ids = [token for token in value if token != IGNORED and token >= 0]
            yield f"  {name}: {tokenizer.decode(kept_ids)!r} ({len(kept_ids)} tokens)"
        else:
            yield f"  {name}: {name_label(value, recipe)}"
    for name, value in feature.items():
        if name not in ("input_ids", "attention_mask", "token_type_ids", "offset_mapping", *LABELS):
            yield f"  {name}: {describe_value(value)}"


def name_label(value: Any, recipe: Recipe) -> str:
    """A label, with its name if it is a class."""
    names = getattr(recipe.config, "id2label", None) or {}
    is_class = isinstance(value, (int, np.integer)) and "id2label" in recipe.configure()
    if is_class and int(value) in names:
        return f"{value} ({names[int(value)]})"
    return describe_value(value)


def count_features(rows: Any, features: Any, recipe: Recipe, painter: Painter) -> Iterator[str]:
    """Figures over all rows: how many, how long, what is cut off, which labels."""
    yield painter.bold(f"{len(rows):,} rows became {len(features):,} features")
    names = features.column_names or []
    if features.format["type"] == "custom" or "input_ids" not in names:
        return  # made when they are read
    masks = features["attention_mask"] if "attention_mask" in names else features["input_ids"]
    lengths = [sum(mask) if "attention_mask" in names else len(mask) for mask in masks]
    if lengths:
        shape = f"{min(lengths):,} to {max(lengths):,}, median {median(lengths):,.0f}"
        yield f"  tokens: {sum(lengths):,} in all; {shape} a feature"
        yield from count_cuts(rows, lengths, recipe)
    for name in ("labels", "label"):
        if name in names:
            yield from count_labels(features[name], recipe)


def count_cuts(rows: Any, lengths: Sequence[int], recipe: Recipe) -> Iterator[str]:
    """How many rows are longer than what is kept of them."""
    tokenizer = getattr(recipe.processor, "tokenizer", recipe.processor)
    if len(rows) != len(lengths) or not hasattr(tokenizer, "convert_ids_to_tokens"):
        return
    texts = [recipe.text_of(row) for row in rows]
    flat = tokenizer([text for row in texts for text in row], add_special_tokens=False)["input_ids"]
    whole, place = [], 0
    for row in texts:
        whole.append(sum(len(ids) for ids in flat[place : place + len(row)]))
        place += len(row)
    added = [tokenizer.num_special_tokens_to_add(pair=len(row) > 1) for row in texts]
    kept = [length - more for length, more in zip(lengths, added, strict=True)]
    longer = [long - short for long, short in zip(whole, kept, strict=True) if long > short]
    if longer:
        tokens = f"{sum(longer):,} of {sum(whole):,} tokens"
        yield f"  cut off: {len(longer):,} of {len(rows):,} rows lose {tokens}"
    else:
        yield "  cut off: nothing"


def count_labels(values: Any, recipe: Recipe) -> Iterator[str]:
    """How often each label occurs; of labels per token, how many carry loss."""
    values = list(values)
    if values and isinstance(values[0], list):
        flat = [label for row in values for label in row]
        carrying = sum(label != IGNORED for label in flat)
        yield f"  carrying loss: {carrying:,} of {len(flat):,} labels"
        return
    if values and isinstance(values[0], int):
        counts = Counter(values)
        listed = ", ".join(f"{name_label(value, recipe)}: {counts[value]:,}" for value in sorted(counts)[:20])
        yield f"  labels: {listed}{' ...' if len(counts) > 20 else ''}"


def is_list_of_numbers(value: Any) -> bool:
    """Whether this is a list of whole numbers."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], int)


def describe_value(value: Any) -> str:
    """A short text for any value: arrays and long lists by their shape and range."""
    if isinstance(value, (list, np.ndarray)) or hasattr(value, "shape"):
        try:
            array = np.asarray(value)
        except ValueError:
            return f"{len(value)} items"
        if array.dtype != object and array.size > 8:
            numbers = f", {array.min():.4g} to {array.max():.4g}" if array.dtype.kind in "biuf" else ""
            return f"{array.dtype} {list(array.shape)}{numbers}"
        return str(array.tolist())
    return str(value)
