"""Learn to fill in words that are hidden."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from footplate import DataCollatorForLanguageModeling, EvalPrediction, HfArg
from footplate.tasks import Row, TaskError
from footplate.tasks.common.blocks import MAX_LENGTH, LineBlocks, LineFlags, token_accuracy

MASK_WORDS = ("[MASK]", "<mask>")  # understood in a text, whatever the tokenizer calls it
NUM_GUESSES = 5


@dataclass
class MaskingFlags(LineFlags):
    """How much is hidden."""

    mlm_probability: float = HfArg(default=0.15, help="Share of the tokens that are to be predicted.")


class MaskedLanguageModeling(LineBlocks):
    """Running text in blocks, or lines; hidden tokens are predicted from both sides."""

    summary = "Learn to fill in words that are hidden."
    example = (
        "--model_name_or_path MODEL --train_file train.txt --validation_file dev.txt "
        "--max_seq_length 256 --do_train --do_eval --output_dir out"
    )
    data_flags = MaskingFlags
    first_flags = ("max_seq_length", "line_by_line", "mlm_probability")
    head = "AutoModelForMaskedLM"
    token_options = {"return_special_tokens_mask": True}  # those are never hidden
    data: MaskingFlags

    def default_length(self, allowed: int) -> int:
        """What the tokenizer and the model allow, 1024 at most."""
        places = getattr(self.config, "max_position_embeddings", 0)
        return int(min(allowed, MAX_LENGTH, places if places > 0 else MAX_LENGTH))

    def collator(self) -> Any:
        """Hide tokens by chance, anew in each epoch."""
        if self.processor.mask_token is None:
            raise TaskError(
                "The tokenizer has no mask token, so nothing can be hidden. Use that of an encoder such as "
                "BERT, or learn to predict the next token: footplate run clm."
            )
        is_padded = self.data.line_by_line and not self.data.pad_to_max_length
        return DataCollatorForLanguageModeling(
            self.processor,
            mlm_probability=self.data.mlm_probability,
            pad_to_multiple_of=8 if is_padded and self.args.fp16 else None,
        )

    def metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """The share of hidden tokens that are found."""
        return {"accuracy": token_accuracy(prediction.predictions, prediction.label_ids)}

    @torch.no_grad()
    def reply(self, model: Any, rows: Any) -> list[Row]:
        """Each text with its masks filled in, and the likeliest words of each mask."""
        return [self.fill_in(model, text) for text in rows[self.column]]

    def fill_in(self, model: Any, text: str) -> Row:
        """A text with its masks filled in, each by itself."""
        tokenizer = self.processor
        for word in MASK_WORDS:
            text = text.replace(word, tokenizer.mask_token)
        tokens = tokenizer(text, truncation=True, max_length=self.length, return_tensors="pt")
        places = (tokens["input_ids"][0] == tokenizer.mask_token_id).nonzero()[:, 0]
        if not len(places):
            raise TaskError(f"{text[:60]!r} hides no word. Write {tokenizer.mask_token} in its place.")
        chances = model(**tokens.to(model.device)).logits[0, places].float().softmax(dim=-1)
        best, words = chances.topk(min(NUM_GUESSES, chances.shape[-1]))
        guesses = [
            [
                {"word": tokenizer.decode(word).strip(), "score": score}
                for word, score in zip(*pair, strict=True)
            ]
            for pair in zip(words.tolist(), best.tolist(), strict=True)
        ]
        for guess in guesses:
            text = text.replace(tokenizer.mask_token, guess[0]["word"], 1)
        return {"text": text, "masks": guesses}
