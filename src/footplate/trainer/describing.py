"""What a model card says of the Trainer's model and data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from footplate.hub import facts as card_facts
from footplate.hub.card import CardFacts
from footplate.hub.metadata import DatasetFacts
from footplate.hub.results import find_results
from footplate.trainer.api import TrainerApi

if TYPE_CHECKING:
    from footplate.trainer.sharing import Sharing

FROM_TRAINER = "generated_from_trainer"  # the tag by which the Hub finds such cards


def name_datasets(trainer: TrainerApi, tags: Any, names: Any, arguments: Any) -> list[DatasetFacts]:
    """The datasets that were named; else the Trainer's own, if it comes from the Hub."""
    tags, names, arguments = (card_facts.as_list(given) for given in (tags, names, arguments))
    own = trainer.eval_dataset if trainer.eval_dataset is not None else trainer.train_dataset
    sets = list(own.values()) if isinstance(own, dict) else [own]
    found = card_facts.find_dataset(sets[0]) if sets else None
    if not tags and not names:
        return [found] if found is not None else []
    size = max(len(tags), len(names))
    rows = zip(*([*given, *[None] * (size - len(given))] for given in (tags, names, arguments)), strict=False)
    named = [DatasetFacts(name or tag, tag, args=argument) for tag, name, argument in rows]
    if found is not None and len(named) == 1:
        named[0].config, named[0].split = found.config, found.split
    return named


def describe_model(
    trainer: Sharing,
    *,
    model_name: str | None = None,
    finetuned_from: str | None = None,
    tasks: list[str] | None = None,
    tags: list[str] | None = None,
    datasets: list[DatasetFacts] | None = None,
) -> CardFacts:
    """What a card says of the Trainer's model, as plain values."""
    args, model, state = trainer.args, trainer.model, trainer.state
    name = model_name or Path(str(args.output_dir)).resolve().name
    base = finetuned_from or card_facts.find_base_model(model)
    library = card_facts.find_library(model)
    task = card_facts.find_task(model)
    is_best = args.load_best_model_at_end and state.best_model_checkpoint is not None
    sets = trainer.eval_dataset if isinstance(trainer.eval_dataset, dict) else {"": trainer.eval_dataset}
    rows = {"Training": trainer.train_dataset}
    rows |= {f"Evaluation ({key})" if key else "Evaluation": value for key, value in sets.items()}
    return CardFacts(
        name,
        library,
        base_model=base,
        tags=list(dict.fromkeys([*(tags or []), FROM_TRAINER, *card_facts.find_tags(model, base)])),
        tasks=tasks or ([task] if task is not None else []),
        datasets=datasets or [],
        results=find_results(state.log_history, state.best_global_step if is_best else None),
        history=state.log_history,
        settings=card_facts.find_settings(args),
        other_settings=card_facts.find_other_settings(args),
        versions=card_facts.find_versions(library),
        data=card_facts.describe_rows(rows),
        loading=card_facts.write_loading(
            model, library, trainer.hub_model_id or args.hub_model_id or name, trainer.processing_class
        ),
    )
