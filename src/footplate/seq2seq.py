"""`Seq2SeqTrainer`: evaluation and prediction with text that the model generates."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import torch
from torch import nn

from footplate import batch as batch_tools
from footplate import rng
from footplate.arguments import Seq2SeqTrainingArguments
from footplate.evaluation import generation, prompts
from footplate.evaluation.collector import Collector
from footplate.outputs import PredictionOutput
from footplate.trainer import Trainer
from footplate.training import traits
from footplate.training.loss import call_compute_loss
from footplate.wrappers import bare_model

logger = logging.getLogger(__name__)

_ROWS_TO_TRY = 32  # of each evaluation set, when the lengths of prompts are checked before training


class Seq2SeqTrainer(Trainer):
    """A `Trainer` that measures generated text, of encoder-decoder and of decoder-only models.

    With `predict_with_generate=True`, predictions are token ids that a tokenizer can decode. A model without
    an encoder gets the tokens before the first label as its prompt; predictions do not include the prompt.
    """

    args: Seq2SeqTrainingArguments
    _gen_kwargs: dict[str, Any]
    _last_notice: str | None = None

    # ---- construct ----

    def _check_inputs(self, model: nn.Module | None) -> None:
        if not hasattr(self.args, "predict_with_generate"):
            raise TypeError(
                f"Seq2SeqTrainer got {type(self.args).__name__} as `args`, which has no settings for "
                "generation. Pass footplate.Seq2SeqTrainingArguments(...)."
            )
        super()._check_inputs(model)

    def _set_model(self, model: nn.Module) -> None:
        """Set the model and the generation settings of the arguments on it; it is saved with them."""
        super()._set_model(model)
        if self.args.generation_config is not None:
            config: Any = self.load_generation_config(self.args.generation_config)
            for owner in (self.model, bare_model(self.model)):
                owner.generation_config = config

    def _read_traits(self) -> None:
        super()._read_traits()
        self._gen_kwargs = {}
        if self.args.predict_with_generate:
            self._check_generation()
            return
        for name in ("generation_max_length", "generation_num_beams"):
            if getattr(self.args, name) is not None:
                logger.warning("%s has no effect: predict_with_generate is False.", name)

    def _check_generation(self) -> None:
        """Refuse settings and prompts that generation cannot use, before the first update."""
        evaluates = self.args.eval_strategy != "no"
        is_looked_at = self.compute_metrics is not None or self.args.show_samples > 0
        generation.check_is_looked_at(self.args.prediction_loss_only, is_looked_at, evaluates)
        settings = self._complete_settings({})
        self._pad_token_id(settings)
        if self._continues_prompt:
            with rng.scoped():  # reading a row may draw random numbers
                for num_tokens in self._measure_prompts():
                    prompts.check_prompt(num_tokens, self._total_length(settings))

    @staticmethod
    def load_generation_config(gen_config_arg: Any) -> Any:
        """A checked `GenerationConfig`.

        Args:
            gen_config_arg: A `GenerationConfig`, which is copied, or a file, a folder, or a name on the Hub.
        """
        return generation.load_generation_config(gen_config_arg)

    # ---- evaluate ----

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
        **gen_kwargs: Any,
    ) -> dict[str, float]:
        """Metrics on an evaluation set, or on each of several, of generated text if the arguments say so.

        Args:
            eval_dataset: A dataset to use instead of the Trainer's, or several by name.
            ignore_keys: Keys of the model's outputs to leave out.
            metric_key_prefix: The prefix of every key.
            gen_kwargs: Arguments of the model's `generate`; they override the training arguments.
        """
        # `evaluate` calls itself for each of several sets; the settings of the outer call stay in force
        if self._current_evaluation is None or not self._current_evaluation.holds_round:
            self._gen_kwargs = self._complete_settings(gen_kwargs)
        return super().evaluate(eval_dataset, ignore_keys=ignore_keys, metric_key_prefix=metric_key_prefix)

    def predict(
        self,
        test_dataset: Any,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "test",
        **gen_kwargs: Any,
    ) -> PredictionOutput:
        """Generated text, or logits, for a dataset, and metrics if it has labels.

        Args:
            test_dataset: The dataset to predict.
            ignore_keys: Keys of the model's outputs to leave out.
            metric_key_prefix: The prefix of every key of the metrics.
            gen_kwargs: Arguments of the model's `generate`; they override the training arguments.
        """
        self._gen_kwargs = self._complete_settings(gen_kwargs)
        output = super().predict(test_dataset, ignore_keys=ignore_keys, metric_key_prefix=metric_key_prefix)
        self._fill_generated(output.predictions)
        return output

    def prediction_step(
        self,
        model: nn.Module,
        inputs: Any,
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
        **gen_kwargs: Any,
    ) -> tuple[torch.Tensor | None, Any, Any]:
        """Loss, generated tokens and labels of one batch; as in `Trainer` if nothing is generated."""
        if not self.args.predict_with_generate or prediction_loss_only:
            return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys=ignore_keys)
        inputs = self._prepare_inputs(inputs)
        if not isinstance(inputs, Mapping):
            raise TypeError(
                f"predict_with_generate=True needs batches with names, got {type(inputs).__name__}. Let the "
                "collator return a dictionary, or set predict_with_generate=False."
            )
        labels = batch_tools.find_labels(inputs, self.label_names, callable(self.compute_loss_func))
        # a subclass with an evaluate of its own writes `_gen_kwargs` itself, with None for what is not given
        given = drop_unset(gen_kwargs) or drop_unset(self._gen_kwargs)
        settings = given or self._complete_settings({})
        generated = self._generate(inputs, labels, settings)
        loss = self._loss_beside_generation(model, inputs) if labels is not None else None
        if self._continues_prompt and isinstance(labels, torch.Tensor):
            labels = prompts.cut_answers(labels)
        return loss, generated, labels

    def _generate(self, inputs: Mapping[str, Any], labels: Any, settings: dict[str, Any]) -> torch.Tensor:
        """The tokens that the model generates for a batch, without the prompt of a decoder-only model."""
        inputs = batch_tools.without(
            inputs, {*self.label_names, *batch_tools.known_labels(inputs), *self._held_back}
        )
        pad_token_id = self._pad_token_id(settings)
        if self._continues_prompt:
            inputs = prompts.cut_prompts(inputs, labels, pad_token_id)
        else:
            inputs = prompts.free_decoder(inputs, labels, pad_token_id)
        prompt = inputs.get("input_ids") if self._continues_prompt else None
        if prompt is not None:
            prompts.check_prompt(prompt.shape[1], self._total_length(settings))
        generate = generation.get_generator(self.model).generate
        taken = {name: value for name, value in inputs.items() if traits.declares(generate, name)}
        if self._generation_config is not None and traits.declares(generate, "pad_token_id"):
            # else transformers chooses one, and warns at every batch
            settings = {"pad_token_id": pad_token_id, **settings}
        if self._strategy.shards:  # every rank must go on until the last one's texts are complete
            settings = {"synced_gpus": True, **settings}
        with torch.no_grad(), self.compute_loss_context_manager():
            generated = generate(**taken, **settings)
        tokens: torch.Tensor = getattr(generated, "sequences", generated)
        return tokens if prompt is None else prompts.drop_prompt(tokens, prompt)

    def _loss_beside_generation(self, model: nn.Module, inputs: Any) -> torch.Tensor | None:
        """The mean loss of a batch; its items are counted only if a loss function of the user needs them."""
        # the names of labels are unknown if forward does not list its parameters
        if not self.label_names and not callable(self.compute_loss_func):
            return super().prediction_step(model, inputs, True)[0]
        counts = callable(self.compute_loss_func) and not self.args.weighs_items
        num_items = self._get_num_items_in_batch([inputs], self._device) if counts else None
        with torch.no_grad(), self.compute_loss_context_manager():
            loss, _ = call_compute_loss(self.compute_loss, model, inputs, True, num_items)
        return loss.detach().mean()

    def _compute_metrics(self, collector: Collector) -> dict[str, Any]:
        """The metrics; joining batches filled up short rows with -100, which becomes the pad token first."""
        self._fill_generated(collector.predictions)
        return super()._compute_metrics(collector)

    def _fill_generated(self, predictions: Any) -> None:
        if self.args.predict_with_generate:
            prompts.fill_ignored(predictions, self._pad_token_id(self._gen_kwargs))

    # ---- settings of generation ----

    @property
    def _generation_config(self) -> Any:
        """The model's generation settings; None if it has none."""
        return getattr(generation.get_generator(self.model), "generation_config", None)

    @property
    def _continues_prompt(self) -> bool:
        return generation.continues_prompt(self.model)

    def _complete_settings(self, gen_kwargs: dict[str, Any]) -> dict[str, Any]:
        """The checked settings for `generate`: those of the call override those of the arguments."""
        if not self.args.predict_with_generate:
            return drop_unset(gen_kwargs)
        from_arguments = {"num_beams": self.args.generation_num_beams}
        if gen_kwargs.get("max_new_tokens") is None:
            from_arguments["max_length"] = self.args.generation_max_length
        settings = drop_unset(from_arguments) | drop_unset(gen_kwargs)
        generate = generation.get_generator(self.model).generate
        config = self._generation_config
        generation.check_settings(settings, config, lambda name: traits.declares(generate, name))
        self._describe_generation(*generation.describe_settings(settings, config))
        return settings

    def _describe_generation(self, notice: str, is_unchosen: bool) -> None:
        """Log how text is generated, unless the last message was the same."""
        if notice != self._last_notice:
            logger.log(logging.WARNING if is_unchosen else logging.INFO, notice)
        self._last_notice = notice

    def _pad_token_id(self, settings: Mapping[str, Any]) -> int:
        token = settings.get("pad_token_id")
        return generation.get_pad_token_id(self.processing_class, self.model) if token is None else token

    def _pad_tensors_to_max_len(self, tensor: torch.Tensor, max_length: int) -> torch.Tensor:
        """Rows padded with the pad token to one length, for subclasses."""
        return prompts.pad_to_length(tensor, max_length, self._pad_token_id(self._gen_kwargs))

    def _total_length(self, settings: Mapping[str, Any]) -> int | None:
        """The most tokens of prompt and answer together; None if no setting limits them."""
        config = self._generation_config
        if (settings.get("max_new_tokens") or getattr(config, "max_new_tokens", None)) is not None:
            return None
        return settings.get("max_length") or getattr(config, "max_length", None)

    def _measure_prompts(self) -> Iterator[int]:
        """The lengths of the prompts of the first rows of each evaluation set that can be indexed."""
        sets = self.eval_dataset if isinstance(self.eval_dataset, dict) else {"": self.eval_dataset}
        for dataset in sets.values():
            if dataset is None or not batch_tools.has_length(dataset) or not hasattr(dataset, "__getitem__"):
                continue
            rows = (dataset[index] for index in range(len(dataset)))
            for row in islice(rows, _ROWS_TO_TRY):
                if isinstance(row, Mapping) and "input_ids" in row:
                    yield prompts.count_prompt(row["input_ids"], row.get("labels"))


def drop_unset(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Generation settings without those that are None, which means that they were not given."""
    return {name: value for name, value in settings.items() if value is not None}
