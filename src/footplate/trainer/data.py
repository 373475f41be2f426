"""The Trainer's data: loaders, samplers, columns, and the micro-batches of one update."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch

from footplate.batch import MAPPING, has_length
from footplate.data import columns, samplers
from footplate.data.build import build_loader
from footplate.data.choice import limit_rows
from footplate.data.loader import Loader
from footplate.data.shares import FILL
from footplate.trainer.api import TrainerApi
from footplate.training import checks, traits
from footplate.training.exchanges import may_exchange


class Data(TrainerApi):
    """From datasets to batches on the device."""

    def get_train_dataloader(self) -> Any:
        """The loader of the training data. An override may return any iterable of batches."""
        if self.train_dataset is None:
            raise ValueError("train() needs data. Pass `train_dataset` to Trainer.")
        return self._get_dataloader(
            dataset=self.train_dataset,
            description="Training",
            batch_size=self._train_batch_size,
            sampler_fn=self._get_train_sampler,
            is_training=True,
        )

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """The loader of an evaluation set: a dataset, the name of one of several, None for the only one."""
        if eval_dataset is None and self.eval_dataset is None:
            raise ValueError("evaluate() needs data. Pass `eval_dataset` to it or to Trainer.")
        is_named = isinstance(eval_dataset, str)
        key = eval_dataset if is_named else "eval"
        dataset = self.eval_dataset[eval_dataset] if is_named else eval_dataset
        dataset = dataset if dataset is not None else self.eval_dataset
        # new workers for every evaluation would pile up
        keeps = self.args.dataloader_persistent_workers and (is_named or dataset is self.eval_dataset)
        kept = self._eval_dataloaders.get(key) if keeps else None
        if kept is not None and getattr(kept, "whole_dataset", dataset) is dataset:
            return kept
        limited, chosen = limit_rows(dataset, self.args.max_eval_samples, self.args.seed)
        loader = self._get_dataloader(
            dataset=limited,
            description="Evaluation",
            batch_size=self.args.eval_batch_size,
            sampler_fn=self._get_eval_sampler,
            dataloader_key=key if keeps else None,
        )
        if isinstance(loader, Loader):
            loader.whole_dataset, loader.chosen_rows = dataset, chosen
        return loader

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """The loader of a test set."""
        return self._get_dataloader(
            dataset=test_dataset,
            description="test",
            batch_size=self.args.eval_batch_size,
            sampler_fn=self._get_eval_sampler,
        )

    def _get_dataloader(
        self,
        dataset: Any,
        description: str,
        batch_size: int,
        sampler_fn: Callable[..., Any] | None = None,
        is_training: bool = False,
        dataloader_key: str | None = None,
    ) -> Any:
        """A loader without the columns that nothing asks for; all loaders of the Trainer are made here.

        Args:
            dataset: What to read.
            description: Which set this is, for notices.
            batch_size: Rows of a batch.
            sampler_fn: Gives the sampler of a dataset that has an index; None for the dataset's own order.
            is_training: Whether epochs are counted.
            dataloader_key: With persistent workers, the name under which the loader is kept.
        """
        checks.check_is_dataset(dataset, description)
        collate = self.data_collator if is_training else self.eval_data_collator or self.data_collator
        is_map_style = not isinstance(dataset, torch.utils.data.IterableDataset)
        if is_map_style and columns.can_drop_columns(dataset):  # of a stream, from its samples
            dataset = self._remove_unused_columns(dataset, description)
        else:
            collate = self._get_collator_with_removed_columns(collate, description)
        sampler = None
        if is_map_style and sampler_fn is not None:
            sampler = traits.call_positional(sampler_fn, dataset)
        loader = build_loader(
            dataset,
            self.args,
            batch_size=batch_size,
            collate=collate,
            sampler=sampler,
            is_training=is_training,
            device=self._device,
            non_blocking=bool(self.args.accelerator_config.non_blocking),
            fills_rounds=is_training or joins_batches(self),
        )
        if self.args.world_size > 1 and loader.ranks.ending == FILL and not is_training:
            loader.gradient_state = self.accelerator.gradient_state
        if dataloader_key is not None and self.args.dataloader_persistent_workers:
            loader.is_resumed = dataloader_key in self._current_run.plan.start.eval_loaders
            self._eval_dataloaders[dataloader_key] = loader
        return loader

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        """The order of training samples, or None for data without length."""
        dataset = train_dataset if train_dataset is not None else self.train_dataset
        if dataset is None or not has_length(dataset):
            return None
        return samplers.build_order(
            samplers.train_strategy(self.args),
            dataset,
            self.args,
            # rows of near-equal length for all ranks: who has short ones would wait for the others
            batch_size=self._train_batch_size * self.args.world_size,
            model_input_name=next(iter(getattr(self.processing_class, "model_input_names", ())), None),
            weights=samplers.read_weights(self.args.sample_weights, self.train_dataset),
        )

    def _get_eval_sampler(self, eval_dataset: Any) -> Any:
        """The order of evaluation samples: that of the dataset."""
        if eval_dataset is None or not has_length(eval_dataset):
            return None
        return samplers.build_order(
            "sequential", eval_dataset, self.args, batch_size=self.args.eval_batch_size
        )

    def _set_signature_columns_if_needed(self) -> None:
        """Set `self._signature_columns`: the names that are not dropped. Override to keep others."""
        if self._signature_columns is None:
            self._signature_columns = columns.signature_columns(self.model, self.label_names)

    def _remove_unused_columns(self, dataset: Any, description: str | None = None) -> Any:
        """A dataset of columns without those that nothing names."""
        if not self.args.remove_unused_columns:
            return dataset
        kept, notice = self._column_settings(description)
        return columns.drop_unused_columns(dataset, kept, **notice)

    def _get_collator_with_removed_columns(
        self, data_collator: Callable[[list[Any]], Any], description: str | None = None
    ) -> Callable[[list[Any]], Any]:
        """A collator that first drops from each sample what nothing names."""
        if not self.args.remove_unused_columns:
            return data_collator
        kept, notice = self._column_settings(description)
        return columns.ColumnFilter(data_collator, kept, **notice)

    def _column_settings(self, description: str | None) -> tuple[list[str], dict[str, Any]]:
        """The columns to keep, and how others are reported: by a warning if the user's code may need them."""
        self._set_signature_columns_if_needed()
        is_own = self._has_own_collator or self.compute_loss_func is not None
        name = None if description is None else description.lower()
        notice = {"description": name, "model_name": type(self.model).__name__, "custom": is_own}
        return [*(self._signature_columns or ()), *(self.args.keep_columns or ())], notice

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device | None = None
    ) -> tuple[list[Any], Any]:
        """The next micro-batches of one update, fewer at the end, and how many items they hold together."""
        micro_batches = list(islice(epoch_iterator, num_batches))
        if self._current_run.feed.may_end_early and len(micro_batches) < num_batches:
            micro_batches = []  # other ranks may have more; the update is left out by all
        return micro_batches, self._get_num_items_in_batch(micro_batches, device or self._device)

    def _prepare_inputs(self, inputs: Any) -> Any:
        """A batch as the model takes it. An override must return a batch that may be changed."""
        inputs = self._prepare_input(inputs)
        if isinstance(inputs, MAPPING) and not inputs:
            raise ValueError(
                "A batch came out empty: no column of the data is among what "
                f"{type(self.model).__name__}.forward takes ({self._signature_columns}). Rename the "
                "columns, or set remove_unused_columns=False."
            )
        return inputs


# code in these may join the results of all processes batch by batch, which needs equal batches
_EVALUATION_JOINTS = ("evaluation_loop", "prediction_loop", "prediction_step", "compute_loss")


def joins_batches(trainer: Data) -> bool:
    """Whether code of a subclass may exchange something with other processes in an evaluation."""
    joints = [getattr(trainer, name) for name in _EVALUATION_JOINTS]
    return any(not traits.is_ours(joint) and may_exchange(joint, trainer) for joint in joints)
