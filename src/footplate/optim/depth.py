"""How many layers below the output each parameter is, read from the numbered blocks in its name."""

from __future__ import annotations

import re
from typing import NamedTuple

from torch import nn

# "bert.encoder.layer.3.attention...": a stack, here "bert.encoder.layer", and the number of its block
BLOCK = re.compile(r"^(?P<stack>(?:.*?\.)?(?P<word>[A-Za-z_]\w*))\.(?P<number>\d+)\.")
# A module with such a name belongs to the head, wherever it is: "lm_head.weight", "cls.predictions.bias".
HEAD = re.compile(r"(?:^|\.)(?:\w*heads?|\w*classifier|\w*pooler|score|qa_outputs|cls|embed_out)\.")


class Depth(NamedTuple):
    """Where a parameter is in the model."""

    label: str  # "head", "block.3" or "embeddings"
    layers_below_head: int


def find_depths(model: nn.Module) -> dict[str, Depth]:
    """The depth of every parameter: the head at 0, the blocks from last to first, then the embeddings."""
    names = [name for name, _ in model.named_parameters()]
    blocks = _find_blocks(names)
    if not blocks:
        raise ValueError(
            "param_groups: layer_decay needs numbered blocks, such as 'encoder.layer.3.', in the names of "
            f"the parameters, and this model has none ({names[:3]} ...): use rules with 'match' instead."
        )
    num_layers = max(depth.layers_below_head for depth in blocks.values())
    first_block = next(position for position, name in enumerate(names) if name in blocks)
    embedding_modules = {name for name, module in model.named_modules() if isinstance(module, nn.Embedding)}

    def is_before_blocks(position: int, name: str) -> bool:
        if HEAD.search(name):
            return False
        is_embedding = "embed" in name.lower() or name.rpartition(".")[0] in embedding_modules
        return is_embedding or position < first_block

    depths = {}
    for position, name in enumerate(names):
        if name in blocks:
            depths[name] = blocks[name]
        elif is_before_blocks(position, name):
            depths[name] = Depth("embeddings", num_layers + 1)
        else:
            depths[name] = Depth("head", 0)
    return depths


def _find_blocks(names: list[str]) -> dict[str, Depth]:
    """The depth of each parameter that is part of a block of the model's main stacks."""
    matches = {name: match for name in names if (match := BLOCK.match(name))}
    numbers: dict[str, set[int]] = {}
    for match in matches.values():
        numbers.setdefault(match["stack"], set()).add(int(match["number"]))
    if not numbers:
        return {}
    longest = max(numbers, key=lambda stack: len(numbers[stack]))
    # encoder and decoder use the same word for their blocks; a numbered classifier uses another one
    main_word = longest.rpartition(".")[2]
    num_layers = len(numbers[longest])
    blocks = {}
    for name, match in matches.items():
        if match["word"] != main_word:
            continue
        siblings = numbers[match["stack"]]
        layers_below_head = sum(number >= int(match["number"]) for number in siblings)
        blocks[name] = Depth(f"block.{num_layers - layers_below_head}", layers_below_head)
    return blocks
