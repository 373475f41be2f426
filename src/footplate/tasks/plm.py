"""Learn to predict the tokens of a text in any order (XLNet)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from footplate import DataCollatorForPermutationLanguageModeling, HfArg
from footplate.tasks import Batch, ModelFlags, Row, TaskError
from footplate.tasks.common.blocks import LineBlocks, LineFlags, continue_texts


@dataclass
class PermutationFlags(LineFlags):
    """Which tokens are predicted."""

    max_seq_length: int | None = HfArg(default=512, help="Tokens of a block, or of a line at most; even.")
    plm_probability: float = HfArg(
        default=1 / 6, help="Length of a span of predicted tokens, as a share of the text around it."
    )
    max_span_length: int = HfArg(default=5, help="Longest span of predicted tokens.")
    max_new_tokens: int = HfArg(default=50, help="Tokens of an answer of `footplate predict`, at most.")


@dataclass
class XlnetFlags(ModelFlags):
    """Random weights are those of XLNet."""

    model_type: str | None = HfArg(default="xlnet", help="Architecture of a model with random weights.")


class PermutationLanguageModeling(LineBlocks):
    """Running text in blocks, or lines; spans are predicted from what comes before them in a random order."""

    summary = "Learn to predict the tokens of a text in any order (XLNet)."
    example = (
        "--model_name_or_path MODEL --train_file train.txt --validation_file dev.txt "
        "--max_seq_length 256 --do_train --do_eval --output_dir out"
    )
    data_flags = PermutationFlags
    model_flags = XlnetFlags
    first_flags = ("max_seq_length", "line_by_line", "plm_probability", "max_span_length")
    head = "AutoModelForCausalLM"
    data: PermutationFlags

    def adjust(self, model: Any) -> Any:
        """Refuse an odd length: each half of a block must be able to look at the other."""
        model = super().adjust(model)
        if self.length % 2:
            raise TaskError(f"--max_seq_length {self.length}: the length must be even.")
        return model

    def features(self, rows: Batch) -> Batch:
        """Tokens; a line of odd length gets a filler."""
        made = super().features(rows)
        if not self.data.line_by_line:
            return made
        filler = self.processor.pad_token_id
        return {"input_ids": [ids + [filler] * (len(ids) % 2) for ids in made["input_ids"]]}

    def collator(self) -> Any:
        """Choose spans and an order by chance, anew in each epoch."""
        return DataCollatorForPermutationLanguageModeling(
            self.processor,
            plm_probability=self.data.plm_probability,
            max_span_length=self.data.max_span_length,
        )

    def reply(self, model: Any, rows: Any) -> list[Row]:
        """How each text goes on."""
        return continue_texts(model, self.processor, rows[self.column], self.data.max_new_tokens)
