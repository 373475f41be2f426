"""How the Trainer describes what it has trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from footplate.hub import facts as card_facts
from footplate.hub.card import CardFacts, save_card
from footplate.hub.metadata import DatasetFacts
from footplate.hub.results import find_results
from footplate.trainer.api import TrainerApi

FROM_TRAINER = "generated_from_trainer"  # the tag by which the Hub finds such cards


class Sharing(TrainerApi):
    """The model card."""

    def create_model_card(
        self,
        language: str | list[str] | None = None,
        license: str | None = None,
        tags: str | list[str] | None = None,
        model_name: str | None = None,
        finetuned_from: str | None = None,
        tasks: str | list[str] | None = None,
        dataset_tags: str | list[str] | None = None,
        dataset: str | list[str] | None = None,
        dataset_args: str | list[str] | None = None,
    ) -> None:
        """Write `README.md` into `args.output_dir`; what a person wrote between its marks is kept.

        Args:
            language: Of the data, as a code such as "en".
            license: Of the model, as the Hub names it.
            tags: Further tags.
            model_name: Default: the name of the folder.
            finetuned_from: The model that training began with; default: its name on the Hub, if it has one.
            tasks: What the model is for, as the Hub names it; default: what its class is made for.
            dataset_tags: Names of the data on the Hub; default: those of the Trainer's own, if they have one.
            dataset: Names of the data for people.
            dataset_args: Further arguments of each.
        """
        if not self.is_world_process_zero():
            return
        named = name_datasets(self, dataset_tags, dataset, dataset_args)
        found = describe_model(
            self,
            model_name=model_name,
            finetuned_from=finetuned_from,
            tasks=card_facts.as_list(tasks),
            tags=card_facts.as_list(tags),
            datasets=named,
        )
        found.language, found.license = card_facts.as_list(language), license
        save_card(found, Path(self._current_run.locate(str(self.args.output_dir))))


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
    trainer: TrainerApi,
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
