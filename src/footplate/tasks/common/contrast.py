"""Contrastive pretraining on sound: hidden moments, the loss for each of them, and the choice of codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from footplate import HfArg, Trainer, TrainerCallback, TrainingArguments
from footplate.tasks.common.problems import TaskError
from footplate.tasks.common.recipe import Row


@dataclass
class PretrainingArguments(TrainingArguments):
    """Arguments of training with the defaults of the original's script, which does not clip gradients."""

    seed: int = HfArg(default=0, help="Seed of all randomness.")
    max_grad_norm: float = HfArg(default=0.0, help="Clip gradients to this norm; 0 does not clip.")


def check_stable(config: Any, extractor: Any) -> None:
    """Refuse a model that cannot be pretrained, or whose sounds are not normalized."""
    if not config.do_stable_layer_norm or config.feat_extract_norm != "layer":
        raise TaskError(
            "Pretraining is stable only with layer norm. Add --config_overrides "
            "do_stable_layer_norm=True,feat_extract_norm=layer."
        )
    if not extractor.do_normalize:
        raise TaskError("Pretraining needs normalized sounds. Set do_normalize in preprocessor_config.json.")


class HidingCollator:
    """Pads sounds, hides moments by chance, and chooses other hidden moments to tell each of them from.

    Args:
        extractor: Pads sounds.
        config: Says how many samples make a moment, and how many others to choose.
        probability: Share of moments to hide.
        length: How many moments are hidden together.
        pad_to_multiple_of: Pad sounds to a multiple of this.
    """

    def __init__(
        self, extractor: Any, config: Any, probability: float, length: int, pad_to_multiple_of: int | None
    ) -> None:
        self.extractor, self.config = extractor, config
        self.probability, self.length, self.pad_to_multiple_of = probability, length, pad_to_multiple_of

    def __call__(self, rows: Sequence[Row]) -> Any:
        """The batch of some rows."""
        from transformers.models.wav2vec2 import modeling_wav2vec2

        name = self.extractor.model_input_names[0]
        multiple = {"pad_to_multiple_of": self.pad_to_multiple_of} if self.pad_to_multiple_of else {}
        sounds = [{name: row[name]} for row in rows]
        batch = self.extractor.pad(sounds, padding="longest", return_tensors="pt", **multiple)
        shape = (len(rows), count_moments(batch[name].shape[-1], self.config))
        is_sound = None
        if "attention_mask" in batch:
            lengths = [count_moments(int(length), self.config) for length in batch["attention_mask"].sum(-1)]
            is_sound = torch.arange(shape[1])[None] < torch.tensor(lengths)[:, None]
        hidden = modeling_wav2vec2._compute_mask_indices(
            shape, self.probability, self.length, attention_mask=None if is_sound is None else is_sound.long()
        )
        others = modeling_wav2vec2._sample_negative_indices(shape, self.config.num_negatives, hidden)
        batch["mask_time_indices"] = torch.tensor(hidden, dtype=torch.long)
        batch["sampled_negative_indices"] = torch.tensor(others, dtype=torch.long)
        return batch


def count_moments(num_samples: int, config: Any) -> int:
    """How many moments the model's first layers make of so many samples."""
    for kernel, stride in zip(config.conv_kernel, config.conv_stride, strict=True):
        num_samples = (num_samples - kernel) // stride + 1
    return num_samples


class ContrastTrainer(Trainer):
    """Divides the loss, which the model gives as a sum, by the number of hidden moments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.model_accepts_loss_kwargs = False  # the model does not divide its loss itself

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The loss for each hidden moment; its parts and the number of codes in use are logged."""
        _, outputs = super().compute_loss(model, inputs, return_outputs=True)
        count = inputs["mask_time_indices"].sum()
        self.record("contrastive_loss", outputs.contrastive_loss.detach() / count)
        self.record("diversity_loss", outputs.diversity_loss.detach() / count)
        self.record("codevector_perplexity", outputs.codevector_perplexity.detach())
        if not model.training:
            self.record("accuracy", share_of_found(outputs, inputs))
        loss = outputs.loss / count
        return (loss, outputs) if return_outputs else loss


def share_of_found(outputs: Any, inputs: Any) -> torch.Tensor:
    """The share of hidden moments whose own code is nearer than those of all others.

    Others with the same code do not count, nor moments of which all others have it.
    """
    states, codes = outputs.projected_states, outputs.projected_quantized_states
    places = inputs["sampled_negative_indices"]
    others = codes.flatten(0, 1)[places.flatten()].view(*places.shape, -1)
    differs = (others != codes[:, :, None]).any(dim=-1)
    nearest = (
        torch.cosine_similarity(states[:, :, None], others, dim=-1).masked_fill(~differs, -2).amax(dim=-1)
    )
    counts = inputs["mask_time_indices"].bool() & differs.any(dim=-1)
    is_found = torch.cosine_similarity(states, codes, dim=-1) > nearest
    share: torch.Tensor = (is_found & counts).sum() / counts.sum().clamp(min=1)
    return share


class GumbelCallback(TrainerCallback):
    """Lowers the temperature at which codes are chosen, update by update.

    Args:
        highest: The temperature at first.
        lowest: The temperature that it does not fall below.
        decay: What is left of it after an update.
    """

    def __init__(self, highest: float, lowest: float, decay: float) -> None:
        self.highest, self.lowest, self.decay = highest, lowest, decay

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Set it from the number of updates, so that a resumed run has the same."""
        num_updates = max(state.global_step - 1, 0)  # as in the original, the first two updates share one
        model.set_gumbel_temperature(max(self.highest * self.decay**num_updates, self.lowest))
