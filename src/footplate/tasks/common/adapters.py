"""Small trainable additions to a large model (LoRA), by the package peft."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from footplate import HfArg, Trainer, TrainingArguments
from footplate.tasks.common.flags import ModelFlags
from footplate.tasks.common.models import import_transformers
from footplate.tasks.common.problems import TaskError


@dataclass
class AdapterFlags(ModelFlags):
    """Whether the whole model is trained, or an adapter."""

    use_peft: bool = HfArg(default=False, help="Train a LoRA adapter and leave the model as it is.")
    lora_r: int = HfArg(default=16, help="Rank of the adapter.")
    lora_alpha: int = HfArg(default=32, help="Its weight, divided by the rank.")
    lora_dropout: float = HfArg(default=0.05, help="Its dropout.")
    lora_target_modules: list[str] | None = HfArg(  # noqa: RUF009
        default=None, help="Layers that get one, such as q_proj v_proj, or all-linear."
    )
    load_in_4bit: bool = HfArg(default=False, help="Load the model in 4 bits (needs bitsandbytes).")
    merge_adapter: bool = HfArg(default=False, help="Merge the adapter at the end, and save the whole model.")


def check_adapter_flags(flags: AdapterFlags) -> None:
    """Refuse flags that cannot work together, before anything is loaded."""
    for package, is_needed in (("peft", flags.use_peft), ("bitsandbytes", flags.load_in_4bit)):
        if is_needed and find_spec(package) is None:
            flag = "use_peft" if package == "peft" else "load_in_4bit"
            raise TaskError(f"--{flag} needs the package {package}: pip install {package}")
    if flags.load_in_4bit and not flags.use_peft:
        raise TaskError("--load_in_4bit: weights of 4 bits cannot be trained. Train an adapter: --use_peft.")
    if flags.merge_adapter and not flags.use_peft:
        raise TaskError("--merge_adapter: there is no adapter to merge. Train one with --use_peft.")
    if flags.use_peft and flags.model_name_or_path is None and not flags.merge_adapter:
        raise TaskError(
            "--use_peft saves the adapter alone, and random weights would be lost. Name a model with "
            "--model_name_or_path, or save the whole with --merge_adapter."
        )


def quantize_options(flags: AdapterFlags, args: TrainingArguments) -> dict[str, Any]:
    """What loads the model in 4 bits, if that is asked for."""
    if not flags.load_in_4bit:
        return {}
    import torch

    kind = torch.bfloat16 if args.bf16 else torch.float16 if args.fp16 else torch.float32
    config = import_transformers().BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=kind,
    )
    return {"quantization_config": config}


def add_adapter(model: Any, flags: AdapterFlags, args: TrainingArguments) -> Any:
    """The model with an adapter, the only part of it that learns."""
    import peft

    if flags.load_in_4bit:
        model = peft.prepare_model_for_kbit_training(model, args.gradient_checkpointing)
    elif args.gradient_checkpointing:
        model.enable_input_require_grads()  # frozen embeddings would cut the recomputed part off
    names: Any = flags.lora_target_modules
    config = peft.LoraConfig(
        r=flags.lora_r,
        lora_alpha=flags.lora_alpha,
        lora_dropout=flags.lora_dropout,
        target_modules=names[0] if names == ["all-linear"] else names,
        task_type="CAUSAL_LM",
    )
    try:
        return peft.get_peft_model(model, config)
    except ValueError as error:
        raise TaskError(
            f"The adapter cannot be added: {error} Name layers of the model with --lora_target_modules, such "
            "as q_proj v_proj, or all-linear."
        ) from error


class AdapterTrainer(Trainer):
    """Saves the model with its adapter merged, if that is asked for; checkpoints hold the adapter alone."""

    def __init__(self, *args: Any, merges_adapter: bool = False, **kwargs: Any) -> None:
        self.merges_adapter = merges_adapter
        super().__init__(*args, **kwargs)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model; at the end of a run, the adapter becomes a part of it first."""
        model: Any = self.model
        if self.merges_adapter and not _internal_call and hasattr(model, "merge_and_unload"):
            self.model = self.model_wrapped = model.merge_and_unload()
        super().save_model(output_dir, _internal_call)
