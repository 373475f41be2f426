"""Load the adapters of a PEFT model from the files that its `save_pretrained` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from footplate.checkpoint.tensors import check_shapes, load_tensors, to_names_of

ADAPTER_NAMES = ("adapter_model.safetensors", "adapter_model.bin")


def has_adapters(module: Any) -> bool:
    """Whether PEFT has put adapters into the module."""
    return isinstance(getattr(module, "peft_config", None), dict)


def load_adapters(module: Any, folder: Path) -> tuple[list[str], list[str]] | None:
    """Load each adapter that has a file; return missing and unexpected names, None if there is no file."""
    files = _find_adapter_files(module, folder)
    if not files:
        return None
    missing = [f"every tensor of adapter {name!r}" for name in module.peft_config if name not in files]
    unexpected: list[str] = []
    for name, path in files.items():
        lacking, surplus = _load_adapter(module, name, path)
        missing += lacking
        unexpected += surplus
    return missing, unexpected


def _load_adapter(module: Any, adapter: str, path: Path) -> tuple[list[str], list[str]]:
    from peft import get_peft_model_state_dict, set_peft_model_state_dict

    own = get_peft_model_state_dict(module, adapter_name=adapter, save_embedding_layers=False)
    # names in the file start with the path through a PeftModel, even if transformers added the adapter
    stored = {_own_name(name, own): tensor for name, tensor in load_tensors(path).items()}
    state = to_names_of(own, stored)
    try:
        result = set_peft_model_state_dict(module, state, adapter_name=adapter)
    except (RuntimeError, ValueError, KeyError):
        check_shapes(own, state, path)  # raises if sizes are the reason
        raise
    # PEFT reports prompt embeddings as unexpected although it loads them
    surplus = [name for name in result.unexpected_keys if name not in own]
    return [name for name in own if name not in state], surplus


def _own_name(name: str, own: dict[str, Any]) -> str:
    shorter = name.removeprefix("base_model.model.")
    return shorter if name not in own and shorter in own else name


def _find_adapter_files(module: Any, folder: Path) -> dict[str, Path]:
    """The file of each adapter: in its own folder, or in `folder` for the one that is written there."""
    top = _adapter_at_top(module)
    found = {}
    for adapter in module.peft_config:
        places = [folder / adapter, folder] if adapter == top else [folder / adapter]
        paths = [place / name for place in places for name in ADAPTER_NAMES]
        path = next((path for path in paths if path.is_file()), None)
        if path is not None:
            found[adapter] = path
    return found


def _adapter_at_top(module: Any) -> str:
    """Which adapter `save_pretrained` writes into the folder itself."""
    active = module.active_adapters
    if callable(active):  # transformers added the adapters: the active one, whatever its name
        return str(active()[0])
    return "default" if "default" in module.peft_config else str(active[0])
