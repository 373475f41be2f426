"""Continue a text with a language model; nothing is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from footplate import HfArg, set_seed
from footplate.tasks import DataFlags, Recipe, TaskError
from footplate.tasks.common.contrastive import search_contrastively
from footplate.tasks.common.models import load_config, load_model, load_processor

MOST_TOKENS = 10_000  # if neither flags nor model say how long a text may get


@dataclass
class GenerationFlags(DataFlags):
    """The beginning, and how it goes on."""

    prompt: str = HfArg(default="", help="The beginning of the text; asked for if it is not given.")
    length: int = HfArg(default=20, help="How many tokens to add at most; -1 for as many as the model can.")
    stop_token: str | None = HfArg(default=None, help="Where to end the text: before this word.")
    temperature: float = HfArg(default=1.0, help="Above 1, less likely words come more often; below, less.")
    repetition_penalty: float = HfArg(default=1.0, help="Above 1, words of the text come less often again.")
    k: int = HfArg(default=0, help="Choose among so many of the likeliest words; 0 for all.")
    p: float = HfArg(default=0.9, help="Choose among the likeliest words that have this chance together.")
    penalty_alpha: float = HfArg(
        default=0.0, help="Weight of saying something new: contrastive search among --k words, by no chance."
    )
    prefix: str = HfArg(default="", help="A text before the prompt that is read but not shown.")
    padding_text: str = HfArg(default="", help="An earlier name of prefix.")
    xlm_language: str = HfArg(default="", help="Language, for XLM models of several languages.")
    num_return_sequences: int = HfArg(default=1, help="How many texts to write.")


class Generation(Recipe):
    """A prompt, and texts that begin with it."""

    summary = "Continue a text with a language model; nothing is trained."
    example = "--model_name_or_path MODEL --prompt 'Once upon a time' --length 50 --num_return_sequences 3"
    data_flags = GenerationFlags
    first_flags = ("prompt", "length", "temperature", "k", "p", "num_return_sequences")
    old_flags = {"jit": None}
    head = "AutoModelForCausalLM"
    data: GenerationFlags

    def run(self) -> dict[str, float]:
        """Print the texts."""
        set_seed(self.args.seed)
        model = self.load()
        prompt = self.data.prompt or input("Prompt: ")
        for number, text in enumerate(self.continue_text(model, prompt), start=1):
            print(f"=== GENERATED SEQUENCE {number} ===\n{text}")
        return {}

    def load(self) -> Any:
        """The model, ready to write."""
        self.config = load_config(self)
        self.processor = load_processor(self, ())
        model = load_model(self).to(self.args.device).eval()
        if self.data.xlm_language:
            known = getattr(self.config, "lang2id", None) or {}
            if self.data.xlm_language not in known:
                raise TaskError(f"--xlm_language {self.data.xlm_language}: the model knows {sorted(known)}.")
            model.config.lang_id = known[self.data.xlm_language]
        return model.half() if self.args.fp16 else model

    @torch.no_grad()
    def continue_text(self, model: Any, prompt: str) -> list[str]:
        """Texts that begin with the prompt."""
        data, tokenizer = self.data, self.processor
        beginning = (data.prefix or data.padding_text) + prompt
        tokens = tokenizer.encode(beginning, add_special_tokens=False) or self.start_tokens()
        row = torch.tensor([tokens], dtype=torch.long, device=self.args.device)
        num_new = self.count_new(len(tokens))
        if data.penalty_alpha:
            if data.k < 2:
                raise TaskError(f"--k {data.k}: --penalty_alpha chooses among several words. Try --k 4.")
            written = search_contrastively(model, row, num_new, data.k, data.penalty_alpha)
        else:
            written = model.generate(
                row,
                attention_mask=torch.ones_like(row),
                max_new_tokens=num_new,
                do_sample=True,
                temperature=data.temperature,
                top_k=data.k,
                top_p=data.p,
                repetition_penalty=data.repetition_penalty,
                num_return_sequences=data.num_return_sequences,
                pad_token_id=tokenizer.eos_token_id
                if tokenizer.pad_token_id is None
                else tokenizer.pad_token_id,
            )
        # the whole is decoded: alone, the new tokens would lose the space before them
        shown = len(self.decode(tokens))
        texts = [self.decode(one)[shown:] for one in written.tolist()]
        return [prompt + (text.partition(data.stop_token)[0] if data.stop_token else text) for text in texts]

    def start_tokens(self) -> list[int]:
        """What a text without a prompt begins with."""
        for token in (self.processor.bos_token_id, self.processor.eos_token_id):
            if token is not None:
                return [token]
        raise TaskError("This model needs a prompt: give --prompt.")

    def count_new(self, num_read: int) -> int:
        """How many tokens to add, as many as the model has places for."""
        most = getattr(self.config, "max_position_embeddings", None) or MOST_TOKENS + num_read
        if num_read >= most:
            raise TaskError(f"The prompt has {num_read} tokens, the model reads {most}. Give a shorter one.")
        wanted = self.data.length if self.data.length >= 0 else MOST_TOKENS
        return min(wanted, most - num_read)

    def decode(self, tokens: list[int]) -> str:
        """The text of tokens."""
        text: str = self.processor.decode(tokens, clean_up_tokenization_spaces=True)
        return text
