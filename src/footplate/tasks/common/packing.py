"""Several sequences in one row that do not see each other."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import Any

import torch

from footplate.tasks.common.blocks import IGNORED
from footplate.tasks.common.problems import TaskError
from footplate.tasks.common.recipe import Batch

# how a model learns where sequences begin:
POSITIONS = "positions"  # its attention sees that position_ids start anew
MASK = "mask"  # it is told who may look at whom
FLAT = "flat"  # flash attention: as by positions, but in one row for the whole batch

# of how far a change of one sequence's token moves its own scores, what another sequence may show of it:
# experts and kernels may round in another way, an attention that looks across moves as much
LEAK = 1e-3


def pack_rows(rows: Batch, length: int) -> Batch:
    """Put sequences together in rows of at most `length` tokens: the longest first, each where it fits best.

    Args:
        rows: `input_ids` and `labels` of some sequences, none longer than a row.
        length: Tokens of a row.
    """
    packed: list[list[int]] = []
    rooms: list[tuple[int, int]] = []  # what is free in which row, in order
    for index in sorted(range(len(rows["input_ids"])), key=lambda index: -len(rows["input_ids"][index])):
        size = len(rows["input_ids"][index])
        place = bisect_left(rooms, (size, -1))
        if place < len(rooms):
            room, row = rooms.pop(place)
        else:
            room, row = length, len(packed)
            packed.append([])
        packed[row].append(index)
        insort(rooms, (room - size, row))
    return join(rows, packed)


def join(rows: Batch, packed: list[list[int]]) -> Batch:
    """The sequences of each row one after the other; positions start anew, first tokens carry no loss."""
    made: Batch = {"input_ids": [], "labels": [], "position_ids": []}
    for row in packed:
        made["input_ids"].append([token for index in row for token in rows["input_ids"][index]])
        # nothing comes before a first token, or the last token of another sequence would predict it
        made["labels"].append([label for index in row for label in (IGNORED, *rows["labels"][index][1:])])
        made["position_ids"].append([place for index in row for place in range(len(rows["labels"][index]))])
    return made


@dataclass
class PackedCollator:
    """Batches of packed rows, for a model that keeps their sequences apart.

    Args:
        pad_token_id: What short rows are filled up with; each such token is a sequence of its own.
        way: How the model learns where sequences begin.
        mask_type: The type of a mask that is added to scores; None for one of yes and no.
    """

    pad_token_id: int
    way: str
    mask_type: torch.dtype | None = None

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """The batch; a row without positions is one sequence."""
        rows = [{"position_ids": range(len(row["input_ids"])), **row} for row in rows]
        if self.way == FLAT:
            rows = [{name: [value for row in rows for value in row[name]] for name in rows[0]}]
        width = max(len(row["input_ids"]) for row in rows)
        fill = {"input_ids": self.pad_token_id, "labels": IGNORED, "position_ids": 0}
        batch: dict[str, Any] = {
            name: torch.tensor([[*row[name], *[value] * (width - len(row[name]))] for row in rows])
            for name, value in fill.items()
        }
        if self.way == MASK:
            batch["attention_mask"] = self.build_mask(batch["position_ids"])
        # transformers looks at positions only where no cache is made, which training does not need
        return {**batch, "use_cache": False}

    def build_mask(self, positions: torch.Tensor) -> torch.Tensor:
        """Who may look at whom: at tokens before it, of the same sequence."""
        sequences = (positions == 0).cumsum(dim=-1)
        is_same = sequences[:, None, :, None] == sequences[:, None, None, :]
        allowed = is_same.tril()
        if self.mask_type is None:
            return allowed
        lowest = torch.finfo(self.mask_type).min
        return torch.zeros(allowed.shape, dtype=self.mask_type).masked_fill(~allowed, lowest)


def choose_collator(model: Any, pad_token_id: int) -> PackedCollator:
    """A collator by which the sequences of a row do not see each other; an error if the model has no way."""
    found = find_collator(model, pad_token_id)
    if found is None:
        raise TaskError(
            f"--packing: in a row of {type(model).__name__}, one conversation would see others, by "
            "positions and by masks. Leave --packing out, and save padding by "
            "--train_sampling_strategy group_by_length."
        )
    return found


def find_collator(model: Any, pad_token_id: int) -> PackedCollator | None:
    """The collator by which this model keeps sequences apart, found by trying; None if there is none."""
    implementation = str(getattr(model.config, "_attn_implementation", ""))
    if "flash" in implementation:  # runs on a GPU alone, where the model is not yet
        return PackedCollator(pad_token_id, FLAT)
    mask_type = None if implementation == "sdpa" else model.dtype
    for way in (POSITIONS, MASK):
        collator = PackedCollator(pad_token_id, way, mask_type)
        try:
            if keeps_apart(model, collator):
                return collator
        except (IndexError, RuntimeError, TypeError, ValueError):  # the model takes no such input
            continue
    return None


def keeps_apart(model: Any, collator: PackedCollator) -> bool:
    """Whether a sequence's scores stay as they are when another one of its row changes."""
    tokens = [(7 * place + 3) % model.config.get_text_config().vocab_size for place in range(12)]
    own, other = list(tokens), list(tokens)
    own[5], other[1] = own[6], other[2]  # the second sequence begins at 5
    was_training = model.training
    model.eval()
    with torch.no_grad():
        scores, own_scores, other_scores = (score(model, collator, row) for row in (tokens, own, other))
    model.train(was_training)
    moved, leaked = (own_scores - scores).abs().max(), (other_scores - scores).abs().max()
    return bool(leaked <= LEAK * moved)


def score(model: Any, collator: PackedCollator, tokens: list[int]) -> Any:
    """What the model says after the first token of the second of two sequences."""
    halves: Batch = {"input_ids": [tokens[:5], tokens[5:]]}
    batch = collator([take(join({**halves, "labels": halves["input_ids"]}, [[0, 1]]), 0)])
    moved = {name: value.to(model.device) if hasattr(value, "to") else value for name, value in batch.items()}
    return model(**moved).logits[:, 6:].float()


def take(rows: Batch, index: int) -> dict[str, Any]:
    """One of several rows."""
    return {name: values[index] for name, values in rows.items()}
