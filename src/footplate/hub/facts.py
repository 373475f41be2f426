"""What a card can say of a model, its data and its settings without asking anybody."""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any

from footplate.hub.metadata import DatasetFacts
from footplate.wrappers import bare_model, is_adapter, unwrap_model

if TYPE_CHECKING:
    from footplate.arguments import TrainingArguments

# where transformers lists the classes of each task; the first that names the model's class decides
_CLASSES_OF_TASKS = (
    ("automatic-speech-recognition", "CTC"),
    ("automatic-speech-recognition", "SPEECH_SEQ_2_SEQ"),
    ("audio-classification", "AUDIO_CLASSIFICATION"),
    ("image-classification", "IMAGE_CLASSIFICATION"),
    ("image-segmentation", "IMAGE_SEGMENTATION"),
    ("image-segmentation", "SEMANTIC_SEGMENTATION"),
    ("object-detection", "OBJECT_DETECTION"),
    ("question-answering", "QUESTION_ANSWERING"),
    ("table-question-answering", "TABLE_QUESTION_ANSWERING"),
    ("text-classification", "SEQUENCE_CLASSIFICATION"),
    ("token-classification", "TOKEN_CLASSIFICATION"),
    ("multiple-choice", "MULTIPLE_CHOICE"),
    ("zero-shot-image-classification", "ZERO_SHOT_IMAGE_CLASSIFICATION"),
    ("image-text-to-text", "IMAGE_TEXT_TO_TEXT"),
    ("text2text-generation", "SEQ_TO_SEQ_CAUSAL_LM"),
    ("fill-mask", "MASKED_LM"),
    ("text-generation", "CAUSAL_LM"),
)
_FILE_KINDS = ("csv", "json", "pandas", "parquet", "text", "arrow", "generator", "imagefolder", "audiofolder")
_ON_THE_HUB = re.compile(r"[\w.-]+(/[\w.-]+)?")
_SOURCE = re.compile(r"hf://datasets/([\w.-]+(?:/[\w.-]+)?)@")
_PACKAGES = {
    **{"footplate": "Footplate", "peft": "PEFT", "transformers": "Transformers", "torch": "Pytorch"},
    **{"datasets": "Datasets", "tokenizers": "Tokenizers"},
}
# listed by name already, of this machine alone, or nobody else's business
_LEFT_OUT = re.compile(
    r"output_dir|logging_dir|run_name|report_to|hub_.*|push_to_hub.*|.*_token|do_(train|eval|predict)|disable_tqdm"
    r"|learning_rate|per_(device|gpu)_.*|seed|optim(_args)?|adam_(beta1|beta2|epsilon)|lr_scheduler_type"
    r"|warmup_steps|max_steps|num_train_epochs|fp16|label_smoothing_factor|gradient_accumulation_steps"
    r"|resume_from_checkpoint|overwrite_output_dir|logging_.*|save_.*|dataloader_.*|use_cpu|no_cuda|.*_config|project"
)


def find_library(model: Any) -> str:
    """The library whose classes load the model."""
    if is_adapter(unwrap_model(model)):
        return "peft"
    return "transformers" if _is_of_transformers(bare_model(model)) else "footplate"


def find_task(model: Any) -> str | None:
    """The Hub's name of the task that the class of a model is made for."""
    inner = bare_model(model)
    if not _is_of_transformers(inner):
        return None
    tables = importlib.import_module("transformers.models.auto.modeling_auto")
    for task, classes in _CLASSES_OF_TASKS:
        listed = getattr(tables, f"MODEL_FOR_{classes}_MAPPING_NAMES", {}).values()
        names = {name for entry in listed for name in ([entry] if isinstance(entry, str) else entry)}
        if type(inner).__name__ in names:
            return task
    return None


def find_base_model(model: Any) -> str | None:
    """The name on the Hub of the model that training began with; None for a folder, or random weights."""
    adapters = getattr(unwrap_model(model), "peft_config", None)
    adapter = next(iter(adapters.values()), None) if isinstance(adapters, Mapping) else None
    name = getattr(adapter, "base_model_name_or_path", None) or getattr(
        getattr(bare_model(model), "config", None), "_name_or_path", None
    )
    if not isinstance(name, str) or not _ON_THE_HUB.fullmatch(name):
        return None
    return name if not os.path.exists(name) else None


def find_tags(model: Any, base_model: str | None) -> list[str]:
    """The tags that a model itself asks for: its own, and those of its adapter."""
    outer, found = unwrap_model(model), []
    adapters = getattr(outer, "peft_config", None)
    if is_adapter(outer) and isinstance(adapters, Mapping):
        kinds = (getattr(adapter, "peft_type", None) for adapter in adapters.values())
        found += [str(getattr(kind, "value", kind)).lower() for kind in kinds if kind is not None]
        found += [f"base_model:adapter:{base_model}"] if base_model else []
    return [*found, *as_list(getattr(bare_model(outer), "model_tags", None))]


def find_dataset(dataset: Any) -> DatasetFacts | None:
    """A dataset of the library `datasets` that comes from the Hub, by its name there; else None."""
    info = getattr(dataset, "info", None)
    kind = getattr(dataset, "builder_name", None)
    sources = getattr(info, "download_checksums", None) or {}
    found = next((match[1] for source in sources if (match := _SOURCE.match(str(source)))), None)
    name = found or (kind if kind not in _FILE_KINDS else None)
    if not isinstance(name, str):
        return None
    config, split = getattr(dataset, "config_name", None), getattr(dataset, "split", None)
    return DatasetFacts(name, name, config, str(split) if split is not None else None, config)


def describe_rows(sets: Mapping[str, Any]) -> list[str]:
    """A line for each set of rows: how many, and their columns where they have names."""
    lines = []
    for name, rows in sets.items():
        columns = getattr(rows, "column_names", None)
        try:
            size = f"{len(rows):,} rows"
        except TypeError:
            size = "a stream of rows"
        shown = f" with the columns {', '.join(map(str, columns))}" if columns else ""
        lines += [f"{name}: {size}{shown}"] if rows is not None else []
    return lines


def find_settings(args: TrainingArguments) -> dict[str, Any]:
    """The settings that every card lists, under the names that cards have for them."""
    world, accumulation = args.world_size, args.gradient_accumulation_steps
    optimizer = str(getattr(args.optim, "value", args.optim))
    more = args.optim_args or "No additional optimizer arguments"
    if "adam" in optimizer.lower():
        betas = f"betas=({args.adam_beta1},{args.adam_beta2}) and epsilon={args.adam_epsilon}"
        optimizer = f"{optimizer} with {betas}"
    values: dict[str, Any] = {
        "learning_rate": args.learning_rate,
        "train_batch_size": args.train_batch_size,
        "eval_batch_size": args.eval_batch_size,
        "seed": args.seed,
        "distributed_type": "multi-GPU" if world > 1 else None,
        "num_devices": world if world > 1 else None,
        "gradient_accumulation_steps": accumulation if accumulation > 1 else None,
        "total_train_batch_size": args.train_batch_size * world * accumulation,
        "total_eval_batch_size": args.eval_batch_size * world,
        "optimizer": f"Use {optimizer} and optimizer_args={more}",
        "lr_scheduler_type": getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type),
        "lr_scheduler_warmup_steps": args.warmup_steps or None,
        "training_steps": args.max_steps if args.max_steps > 0 else None,
        "num_epochs": args.num_train_epochs if args.max_steps <= 0 else None,
        "mixed_precision_training": {"no": None, "fp16": "Native AMP"}.get(
            args.mixed_precision, args.mixed_precision
        ),
        "label_smoothing_factor": args.label_smoothing_factor or None,
    }
    for total, part in (
        ("total_train_batch_size", "train_batch_size"),
        ("total_eval_batch_size", "eval_batch_size"),
    ):
        if values[total] == values[part]:
            values[total] = None
    return {name: value for name, value in values.items() if value is not None}


def find_other_settings(args: TrainingArguments) -> dict[str, Any]:
    """Settings that differ from their defaults and that the list of every card does not have."""
    defaults = {
        entry.name: entry.default
        for entry in dataclasses.fields(args)
        if entry.default is not dataclasses.MISSING
    }
    changed = {}
    for name, value in args.to_dict().items():
        default = defaults.get(name, value)
        is_off = value in (None, [], {}, "") or (value is False and not default)
        if not is_off and not _LEFT_OUT.fullmatch(name) and value != getattr(default, "value", default):
            changed[name] = value
    return changed


def find_versions(library: str) -> dict[str, str]:
    """The versions of the packages that a card names, as far as they are installed."""
    found = {}
    for package, name in _PACKAGES.items():
        if package == "peft" and library != "peft":
            continue
        try:
            found[name] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def write_loading(model: Any, library: str, place: str, processing_class: Any = None) -> str:
    """Python code that loads the model.

    Args:
        model: The model.
        library: What `find_library` says.
        place: A name on the Hub, or a folder.
        processing_class: Tokenizer or processor that was saved with it.
    """
    kind = type(bare_model(model)).__name__
    if library == "footplate":
        return (
            "from safetensors.torch import load_model\n\n"
            f"model = {kind}(...)  # as it was made for training\n"
            f'load_model(model, "{place}/model.safetensors")'
        )
    if library == "peft":
        name = f"Auto{type(unwrap_model(model)).__name__}"
        return f'from peft import {name}\n\nmodel = {name}.from_pretrained("{place}")'
    processing = type(processing_class).__name__ if _is_of_transformers(processing_class) else None
    imports = ", ".join(sorted({kind, *([processing] if processing else [])}))
    lines = [f"from transformers import {imports}", "", f'model = {kind}.from_pretrained("{place}")']
    return "\n".join(
        [*lines, *([f'processor = {processing}.from_pretrained("{place}")'] if processing else [])]
    )


def as_list(value: str | Iterable[Any] | None) -> list[Any]:
    """One value, several, or none, as a list."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(value)


def _is_of_transformers(thing: Any) -> bool:
    return any(parent.__module__.split(".")[0] == "transformers" for parent in type(thing).__mro__)
