"""Teach a chat model by conversations: it learns what the assistant says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from footplate import DataCollatorForTokenClassification, EvalPrediction, HfArg, PredictionOutput
from footplate.tasks import Batch, DataFlags, Recipe, Row, TaskError, source_name
from footplate.tasks.common import conversations
from footplate.tasks.common.adapters import (
    AdapterFlags,
    AdapterTrainer,
    add_adapter,
    check_adapter_flags,
    quantize_options,
)
from footplate.tasks.common.blocks import IGNORED, add_perplexity, keep_best, next_token_accuracy
from footplate.tasks.common.models import fit_embeddings, load_processor
from footplate.tasks.common.packing import PackedCollator, choose_collator, pack_rows
from footplate.tasks.common.predictions import save_json_lines
from footplate.tasks.common.preparing import empty_splits
from footplate.tasks.common.writing import write_on


@dataclass
class ChatFlags(DataFlags):
    """How conversations become tokens."""

    chat_template: str | None = HfArg(
        default=None, help="A file with a chat template, or chatml; default: that of the tokenizer."
    )
    max_length: int = HfArg(default=1024, help="Tokens of a row; what is longer is cut off.")
    packing: bool = HfArg(default=False, help="Put several conversations in one row, without padding.")
    max_new_tokens: int = HfArg(default=128, help="Tokens of an answer, when answers are predicted.")


class Chat(Recipe):
    """Rows with `messages`, with `prompt` and `completion`, or with `text`."""

    summary = "Teach a chat model by conversations; LoRA and packing."
    example = (
        "--model_name_or_path MODEL --train_file train.jsonl --validation_file dev.jsonl "
        "--use_peft --packing --do_train --do_eval --output_dir out"
    )
    data_flags = ChatFlags
    model_flags = AdapterFlags
    first_flags = ("chat_template", "max_length", "packing", "use_peft", "lora_r", "merge_adapter")
    old_flags = {"max_seq_length": "max_length"}
    trainer = AdapterTrainer
    head = "AutoModelForCausalLM"
    ordered_stages = ("pack",)
    data: ChatFlags
    start: AdapterFlags

    column: str  # messages, prompt or text
    template: str | None
    model: Any
    packer: PackedCollator | None = None

    def learn(self, rows: Mapping[str, Any]) -> None:
        """Find the columns, and the template: rows are checked by rendering them."""
        check_adapter_flags(self.start)
        for split, part in rows.items():
            self.column = conversations.find_column(part.column_names, source_name(self, split))
        self.processor = load_processor(self, ())
        given = conversations.read_template(self.data.chat_template)
        self.template = conversations.give_template(self.processor, given)

    def find_problem(self, row: Row) -> str | None:
        """No conversation, no words of the assistant, or a template that does not fit."""
        needs_answer = self.args.do_train or self.args.do_eval
        return conversations.find_bad_row(self.processor, row, needs_answer)

    def text_of(self, row: Row) -> list[str]:
        """The conversation as it is rendered, for a tokenizer that is trained on it."""
        return conversations.texts_of_row(self.processor, row)

    def model_options(self) -> dict[str, Any]:
        """Four bits, if asked for."""
        return quantize_options(self.start, self.args)

    def adjust(self, model: Any) -> Any:
        """Give the model an embedding for every token, an adapter, and a way to keep sequences apart."""
        self.template = conversations.give_template(self.processor, self.template)
        fit_embeddings(model, self.processor)
        if self.data.packing:
            self.packer = choose_collator(model, self.processor.pad_token_id)
        if self.start.use_peft and self.args.do_train:
            model = add_adapter(model, self.start, self.args)
        self.model = model
        return model

    def stages(self, split: str) -> Sequence[Callable[[Batch], Batch]]:
        """Tokens; then, where something is learned or measured, rows that hold words of the assistant."""
        if split == "test":
            return [self.features]
        return [self.features, conversations.keep_labelled, *([self.pack] if self.data.packing else [])]

    def features(self, rows: Batch) -> Batch:
        """Tokens, and those of them that carry loss."""
        made: Batch = {"input_ids": [], "labels": []}
        for values in zip(*rows.values(), strict=True):
            row = dict(zip(rows, values, strict=True))
            tokens, is_said = conversations.tokens_of_row(self.processor, row)
            made["input_ids"].append(tokens[: self.data.max_length])
            made["labels"].append(conversations.labels_of(tokens, is_said)[: self.data.max_length])
        return made

    def pack(self, rows: Batch) -> Batch:
        """Several sequences in one row."""
        return pack_rows(rows, self.data.max_length)

    def collator(self) -> Any:
        """Pad to the longest row of a batch, or keep packed sequences apart."""
        return self.packer or DataCollatorForTokenClassification(self.processor, label_pad_token_id=IGNORED)

    def trainer_options(self, rows: Mapping[str, Any], features: Mapping[str, Any]) -> dict[str, Any]:
        """Keep the most likely token, not the score of each; refuse a set in which nothing is learned."""
        for split in empty_splits(features):
            raise TaskError(
                f"No row of {source_name(self, split)} holds a word of the assistant within "
                f"{self.data.max_length} tokens. Allow more with --max_length."
            )
        return {"preprocess_logits_for_metrics": keep_best, "merges_adapter": self.start.merge_adapter}

    def metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """The share of the assistant's tokens that are predicted."""
        return {"accuracy": next_token_accuracy(prediction.predictions, prediction.label_ids)}

    def finish_metrics(self, metrics: dict[str, float]) -> dict[str, float]:
        """Add the perplexity."""
        return add_perplexity(metrics)

    def row_of(self, line: str) -> Row:
        """A question that was typed."""
        return {self.column: [{"role": "user", "content": line}] if self.column == "messages" else line}

    def reply(self, model: Any, rows: Any) -> list[Row]:
        """What the model says when it is the assistant's turn."""
        length, ends = self.data.max_new_tokens, conversations.find_turn_ends(self.processor)
        prompts = [conversations.prompt_of_row(self.processor, row) for row in rows]
        return [{"answer": write_on(model, self.processor, prompt, length, ends)} for prompt in prompts]

    def save_predictions(self, rows: Any, features: Any, output: PredictionOutput, folder: Path) -> None:
        """One line of JSON for each answer."""
        save_json_lines(self.reply(self.model, rows), folder)
