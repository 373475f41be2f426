"""Batches of one kind, kept until the end of an evaluation and joined once."""

from __future__ import annotations

from typing import Any

import torch

from footplate.comm import map_nested, nested_join, nested_numpify


class EvalLoopContainer:
    """Collects nested tensors batch by batch and gives them back as numpy arrays.

    Args:
        do_nested_concat: Join the batches to one structure; else give a list with one entry per batch.
        padding_index: What fills up rows that are shorter than the longest along dimension 1.
    """

    def __init__(self, do_nested_concat: bool = True, padding_index: int = -100) -> None:
        self.do_nested_concat = do_nested_concat
        self.padding_index = padding_index
        self._arrived: list[Any] = []
        self._on_host: list[Any] = []

    def add(self, tensors: Any) -> None:
        """Keep one more batch, where it is.

        Args:
            tensors: A tensor, or a nested list, tuple or mapping of them.
        """
        self._arrived.append(tensors)

    def to_cpu_and_numpy(self) -> None:
        """Bring what has arrived since the last call to the host."""
        self._on_host.extend(map_nested(_to_host, batch) for batch in self._arrived)
        self._arrived.clear()

    def get_arrays(self) -> Any:
        """All batches as numpy arrays; None when nothing was added."""
        self.to_cpu_and_numpy()
        if not self._on_host:
            return None
        if not self.do_nested_concat:
            return nested_numpify(self._on_host)
        self._on_host = [nested_join(self._on_host, self.padding_index)]
        return nested_numpify(self._on_host[0])


def _to_host(leaf: Any) -> Any:
    """A leaf in host memory that it shares with nothing bigger."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    host = leaf.detach().cpu()
    # one column of the logits would keep all of them alive until the end
    return host.clone() if host.untyped_storage().nbytes() > host.nbytes else host
