"""A model card: what was trained, on what, and how well it did."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import footplate
from footplate.report.files import save_text
from footplate.tasks.common.parsing import given_arguments

if TYPE_CHECKING:
    from footplate.tasks.common.recipe import Recipe

CARD = "README.md"


def save_card(recipe: Recipe, name: str, results: dict[str, float], folder: Path) -> None:
    """Write `README.md` beside the model: metadata that the Hub reads, results and settings."""
    start, data = recipe.start, recipe.data
    base = start.model_name_or_path
    source = data.dataset_name or ", ".join(Path(path).name for path in recipe.files().values())
    head = ["---", "library_name: transformers", f"tags: [footplate, {name}]"]
    if base and not Path(base).exists():
        head.append(f"base_model: {base}")
    if data.dataset_name:
        head.append(f"datasets: [{data.dataset_name}]")
    origin = (
        f"fine-tuned from `{base}`" if base else f"of type `{start.model_type}`, trained from random weights"
    )
    lines = [
        *head,
        "---",
        "",
        f"# {folder.resolve().name}",
        "",
        f"A model for `{name}`, {origin} on {source}.",
        "",
    ]
    figures = {key: value for key, value in results.items() if key.startswith(("eval_", "test_", "predict_"))}
    if figures:
        lines += ["## Results", "", "| | |", "|---|---|"]
        lines += [
            f"| {key} | {value:.4g} |" for key, value in figures.items() if isinstance(value, (int, float))
        ]
        lines.append("")
    lines += ["## Settings of training", "", "| | |", "|---|---|"]
    lines += [
        f"| {key} | {value} |" for key, value in given_arguments(recipe.args).items() if key != "output_dir"
    ]
    lines += ["", f"Made with footplate {footplate.__version__}.", ""]
    save_text("\n".join(lines), folder / CARD)
