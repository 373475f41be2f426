"""A small reader that points at the first and the last word of an answer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu


class SpanReader(nn.Module):
    """Reads a question and a context, and scores each word of the context as the answer's first and last.

    Args:
        num_words: Size of the vocabulary.
        width: Size of a word's vector.
        num_blocks: How many times the reader looks at neighbours, then at all words.
    """

    def __init__(self, num_words: int, width: int = 64, num_blocks: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(num_words, width)
        self.segments = nn.Embedding(2, width)
        self.shared = nn.Embedding(2, width)
        self.blocks = nn.ModuleList(ReaderBlock(width) for _ in range(num_blocks))
        self.scores = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2))

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        attention_mask: Tensor,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """The logits of every span's ends, and the loss where the right positions are given.

        Args:
            input_ids: Word numbers, one row per question and context.
            token_type_ids: 1 on the context, 0 elsewhere.
            attention_mask: 0 on padding, 1 elsewhere.
            start_positions: The index of each answer's first word.
            end_positions: The index of each answer's last word.
        """
        shared = find_shared_words(input_ids, token_type_ids)
        hidden = self.words(input_ids) + self.segments(token_type_ids) + self.shared(shared)
        for block in self.blocks:
            hidden = block(hidden, attention_mask == 0)
        scores = self.scores(hidden)
        # every answer lies in the context: give other positions almost no probability
        scores = scores.masked_fill(token_type_ids[..., None] == 0, -1e4)
        start_logits, end_logits = scores.unbind(-1)
        outputs = {"start_logits": start_logits, "end_logits": end_logits}
        if start_positions is None or end_positions is None:
            return outputs
        loss = (cross_entropy(start_logits, start_positions) + cross_entropy(end_logits, end_positions)) / 2
        return {"loss": loss, **outputs}


class ReaderBlock(nn.Module):
    """Looks at the neighbours of each word, then from each word at all others."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        # only here is word order seen: there is no position embedding; seven words join a name and its fact
        self.neighbours = nn.Conv1d(width, width, kernel_size=7, padding=3)
        self.attention = nn.TransformerEncoderLayer(
            width, nhead=4, dim_feedforward=2 * width, dropout=0.0, batch_first=True, norm_first=True
        )

    def forward(self, hidden: Tensor, is_padding: Tensor) -> Tensor:
        """One round of reading; the shape stays."""
        visible = self.norm(hidden).masked_fill(is_padding[..., None], 0.0)
        nearby = self.neighbours(visible.transpose(1, 2)).transpose(1, 2)
        attended: Tensor = self.attention(hidden + relu(nearby), src_key_padding_mask=is_padding)
        return attended


def find_shared_words(input_ids: Tensor, token_type_ids: Tensor) -> Tensor:
    """1 on every word that stands both in the question and in the context, 0 elsewhere."""
    is_same_word = input_ids[:, :, None] == input_ids[:, None, :]
    is_other_side = token_type_ids[:, :, None] != token_type_ids[:, None, :]
    return torch.any(is_same_word & is_other_side, dim=-1).long()
