"""What the Trainer tries before the first update: whether evaluation will give what is asked of it."""

from __future__ import annotations

import logging
from itertools import islice
from typing import Any

from torch import nn

from footplate import comm
from footplate.api import TrainerApi
from footplate.data import columns, loaders
from footplate.evaluation.streaming import check_is_object
from footplate.training import batches, checks
from footplate.training.seed import preserved_generators

logger = logging.getLogger(__name__)


class Rehearsing(TrainerApi):
    """One batch of each evaluation set, tried before hours go by; the run afterwards is the same."""

    # what the Trainer brings
    model_wrapped: nn.Module
    eval_dataset: Any
    compute_metrics: Any
    label_names: list[str]
    can_return_loss: bool
    evaluate: Any
    evaluation_loop: Any
    get_eval_dataloader: Any
    prediction_step: Any
    _begin_streaming: Any
    _build_collector: Any
    _compute_metrics: Any
    _enter_train_mode: Any
    _evaluating: Any
    _prepare_for_evaluation: Any
    _preprocess: Any

    def _check_evaluation(self, ignore_keys: list[str] | None) -> None:
        """Say before the first update what evaluation will not give: the best metric, a loss, or anything."""
        if self.args.eval_strategy == "no" or self._evaluates_in_its_own_way():
            return
        check_is_object(self.compute_metrics)
        self._check_best_metric(ignore_keys)
        sets = self.eval_dataset if isinstance(self.eval_dataset, dict) else {"": self.eval_dataset}
        for name, dataset in sets.items():
            names = columns.names_of(dataset)
            if self._gives_nothing(names) and loaders.has_length(dataset):
                with preserved_generators():
                    has_loss = self._rehearse_loss(name)
                if not has_loss:
                    logger.warning(checks.explain_no_labels(name, names, self.label_names))

    def _evaluates_in_its_own_way(self) -> bool:
        """Whether metrics come from somewhere a rehearsal would not see: an override of the user's own."""
        joints = (type(self).evaluate, type(self).evaluation_loop)
        return any(not joint.__module__.startswith("footplate.") for joint in joints)

    def _gives_nothing(self, keys: list[str]) -> bool:
        """Whether a batch with these keys has no labels, so that it gives neither a loss nor metrics."""
        names = self.label_names or batches.known_labels(dict.fromkeys(keys))
        has_labels = bool(names) and any(name in keys for name in names)
        return bool(keys) and not has_labels and not self.can_return_loss

    def _rehearse_loss(self, set_name: str) -> bool:
        """Whether a set's first batch gives a loss after all: labels may be the collator's work."""
        for inputs in islice(self.get_eval_dataloader(set_name or None), 1):
            if not self._gives_nothing(batches.keys_of(inputs)):
                return True
            loss = self.prediction_step(self._prepare_for_evaluation(), inputs, True)[0]
            self._enter_train_mode(self.model_wrapped)
            return loss is not None
        return True  # there is nothing to tell from

    def _check_best_metric(self, ignore_keys: list[str] | None) -> None:
        """Refuse a metric that no evaluation will give, before hours went by: try one batch of each set."""
        name = self.args.metric_for_best_model
        if name is None:
            return
        sets = self.eval_dataset if isinstance(self.eval_dataset, dict) else {"": self.eval_dataset}
        found = checks.keys_without_metrics(sets)
        with preserved_generators():
            for set_name in sets:
                keys = self._rehearse_metrics(set_name, ignore_keys)
                found.update(f"{set_name}_{key}" if set_name else key for key in keys)
                found.update({"loss", checks.ANY_KEY}.intersection(keys))  # a round has a loss of its own
        self._enter_train_mode(self.model_wrapped)
        checks.check_best_metric(name, found, self.label_names)

    def _rehearse_metrics(self, set_name: str, ignore_keys: list[str] | None) -> list[str]:
        """The keys that evaluation gives on the first batch of a set."""
        if self.args.batch_eval_metrics:  # such a function counts what it is given
            return [checks.ANY_KEY]
        model, stream = self._prepare_for_evaluation(), self._begin_streaming()
        loader = self.get_eval_dataloader(set_name or None)
        collector = self._build_collector(loader)
        for inputs in islice(loader, 1):
            loss, logits, labels = self.prediction_step(model, inputs, False, ignore_keys=ignore_keys)
            logits, num_rows = self._preprocess(logits, labels), comm.find_batch_size(inputs)
            collector.add(losses=loss, predictions=logits, labels=labels, num_rows=num_rows)
            if stream is not None and logits is not None and labels is not None:
                stream.update(logits, labels)
        try:
            with self._evaluating(set_name or self.eval_dataset, "eval"):
                metrics = self._compute_metrics(collector) if stream is None else stream.compute()
        except Exception as error:  # a metric may not be defined on so few rows
            logger.info("compute_metrics could not be tried on one batch: %s", error)
            return [checks.ANY_KEY]
        return [*metrics, *collector.loss_keys]
