"""The model card of a task: what the Trainer knows, and what the flags say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from footplate.hub import card
from footplate.hub.metadata import DatasetFacts
from footplate.hub.results import split_metrics
from footplate.trainer.describing import describe_model

if TYPE_CHECKING:
    from footplate import Trainer
    from footplate.tasks.common.recipe import Recipe

PREFIXES = ("eval", "test", "predict")


def save_card(recipe: Recipe, name: str, results: dict[str, float], trainer: Trainer, folder: Path) -> None:
    """Write `README.md` beside the model: metadata that the Hub reads, results and settings."""
    data, base = recipe.data, recipe.start.model_name_or_path
    files = ", ".join(dict.fromkeys(Path(path).name for path in recipe.files().values()))
    source = data.dataset_name or files
    config = getattr(data, "dataset_config_name", None)
    facts = describe_model(
        trainer,
        finetuned_from=base if base and not Path(base).exists() else None,
        tags=["footplate", name],
        datasets=[DatasetFacts(source, data.dataset_name, config)] if source else [],
    )
    facts.summary = f"the task `{name}`"
    facts.results = split_metrics(results, PREFIXES)
    card.save_card(facts, folder)
