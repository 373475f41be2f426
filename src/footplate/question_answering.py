"""The trainers for question answering: they turn predictions into answers, and measure those."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from footplate import comm
from footplate.evaluation import metrics as metric_tools
from footplate.evaluation.collector import Collector
from footplate.evaluation.streaming import is_streaming
from footplate.outputs import EvalLoopOutput, PredictionOutput
from footplate.qa.by_length import describe_answers
from footplate.qa.post_processing import check_answers, check_rows, choose_examples, choose_rows
from footplate.seq2seq import Seq2SeqTrainer
from footplate.trainer import Trainer
from footplate.trainer.rehearsing import has_own_part

logger = logging.getLogger(__name__)


class _Scope(NamedTuple):
    """The features and examples of the current evaluation; several sets by name."""

    datasets: Any
    examples: Any
    stage: str
    prefix: str
    is_part: bool  # only some features are evaluated, and only their examples are measured

    def examples_of(self, dataset: Any) -> Any:
        """The examples of `dataset`, which is one of the sets, the name of one, or all of them."""
        if dataset is self.datasets or not isinstance(self.datasets, dict) or self.examples is None:
            return self.examples
        if isinstance(dataset, str):
            return self.examples[dataset]
        return next((self.examples[name] for name, given in self.datasets.items() if given is dataset), None)


class QuestionAnsweringTrainer(Trainer):
    """A `Trainer` that measures answers, which `post_process_function` makes from predictions.

    Args:
        args: As for `Trainer`.
        eval_examples: The examples that `eval_dataset` was made from; by name if there are several sets.
        post_process_function: Gets `(examples, features, predictions[, stage])`, the features with all
            columns, and returns the `EvalPrediction` that `compute_metrics` gets.
        kwargs: As for `Trainer`.
    """

    _scope: _Scope | None = None
    _answers: Any = None
    _has_warned = False

    def __init__(
        self,
        *args: Any,
        eval_examples: Any = None,
        post_process_function: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.eval_examples = eval_examples
        self.post_process_function = post_process_function
        if post_process_function is not None and self.args.batch_eval_metrics:
            raise ValueError(
                "batch_eval_metrics=True measures each batch alone, but post_process_function needs the "
                "features of a whole set. Set batch_eval_metrics=False."
            )
        if post_process_function is not None and is_streaming(self.compute_metrics):
            raise ValueError(
                "compute_metrics is an object that takes batches of scores, but post_process_function turns "
                "them into answers first. Pass a function of answers, such as build_squad_metrics()."
            )

    def evaluate(  # type: ignore[override]  # in the API, the examples are the second parameter
        self,
        eval_dataset: Any = None,
        eval_examples: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """The loss and the metrics of the answers on an evaluation set, or on each of several.

        Args:
            eval_dataset: Features to use instead of the Trainer's, or several sets of them by name.
            eval_examples: The examples that they were made from.
            ignore_keys: Keys of the model's outputs to leave out.
            metric_key_prefix: The prefix of every key.
        """
        with self._scoped_to(eval_dataset, eval_examples, metric_key_prefix, metric_key_prefix):
            return super().evaluate(
                eval_dataset, ignore_keys=ignore_keys, metric_key_prefix=metric_key_prefix
            )

    def predict(  # type: ignore[override]
        self,
        predict_dataset: Any = None,
        predict_examples: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "test",
        *,
        test_dataset: Any = None,
        test_examples: Any = None,
    ) -> PredictionOutput:
        """Answers to the questions of a dataset, and metrics; logits if there are no examples or no metrics.

        Args:
            predict_dataset: The features to predict.
            predict_examples: The examples that they were made from.
            ignore_keys: Keys of the model's outputs to leave out.
            metric_key_prefix: The prefix of every key of the metrics.
            test_dataset: An earlier name of `predict_dataset`.
            test_examples: An earlier name of `predict_examples`.
        """
        dataset = predict_dataset if predict_dataset is not None else test_dataset
        examples = predict_examples if predict_examples is not None else test_examples
        if dataset is None:
            raise ValueError("predict() needs data. Pass `predict_dataset` and `predict_examples`.")
        with self._scoped_to(dataset, examples, "predict", metric_key_prefix):
            output = super().predict(dataset, ignore_keys=ignore_keys, metric_key_prefix=metric_key_prefix)
        answers, self._answers = self._answers, None
        if answers is None:
            return output
        return output._replace(predictions=answers.predictions, label_ids=answers.label_ids)

    @contextmanager
    def _scoped_to(
        self, dataset: Any, examples: Any, stage: str, prefix: str, is_rehearsal: bool = False
    ) -> Iterator[None]:
        """Remember the examples while their features are evaluated."""
        outer, is_prediction = self._scope, stage == "predict"
        dataset = dataset if dataset is not None or is_prediction else self.eval_dataset
        if examples is None and outer is not None:  # a call inside another, as for one of several sets
            examples = outer.examples_of(dataset)
        elif examples is None and not is_prediction:
            examples = self.eval_examples
        if isinstance(dataset, dict) and examples is not None:
            _check_names(dataset, examples)
        is_part = is_rehearsal or (self.args.max_eval_samples is not None and not is_prediction)
        self._scope, self._answers = _Scope(dataset, examples, stage, prefix, is_part), None
        try:
            yield
        finally:
            self._scope = outer

    def _check_evaluation(self, ignore_keys: list[str] | None) -> None:
        lacks_examples = self._measures_answers and self.eval_examples is None
        if lacks_examples and self.args.eval_strategy != "no" and not has_own_part(self):
            self._warn_of_missing_examples()
        super()._check_evaluation(ignore_keys)

    def _gives_nothing(self, keys: list[str]) -> bool:
        """Whether a batch with these keys gives neither a loss nor answers to measure."""
        gives_answers = self._measures_answers and self.eval_examples is not None
        return super()._gives_nothing(keys) and not gives_answers

    def _rehearse_metrics(self, set_name: str, ignore_keys: list[str] | None) -> list[str]:
        """The keys of the metrics on the first features of a set and their examples."""
        with (
            self._scoped_to(None, None, "eval", "eval"),
            self._scoped_to(set_name or None, None, "eval", "eval", is_rehearsal=True),
        ):
            return super()._rehearse_metrics(set_name, ignore_keys)

    @property
    def _measures_answers(self) -> bool:
        return self.post_process_function is not None and self.compute_metrics is not None

    def _compute_metrics(self, collector: Collector) -> dict[str, Any]:
        """The metrics of the answers; empty if no answers can be made."""
        scope, predictions = self._scope, collector.predictions
        if self.post_process_function is None or self.compute_metrics is None or predictions is None:
            return {}
        if scope is None or scope.examples is None:
            self._warn_of_missing_examples()
            return {}
        examples, features = self._find_evaluated(scope, collector)
        check_rows(comm.find_batch_size(predictions), features, self.args.eval_do_concat_batches)
        values = (examples, features, self._to_post_process(collector))
        answers = _call_post_process(self.post_process_function, values, scope, self.args)
        self._answers = answers = check_answers(answers, examples, is_prediction=scope.stage == "predict")
        if answers.label_ids is None:
            return {}
        assert self._current_evaluation is not None
        self._current_evaluation.describe_answers = partial(
            describe_answers, examples, answers.predictions, answers.label_ids, self.compute_metrics
        )
        return metric_tools.check_metrics(self.compute_metrics(answers))

    def _warn_of_missing_examples(self) -> None:
        """Warn once that without examples there are no answers."""
        if not self._has_warned:
            logger.warning(
                "No examples were given with the features, so no answers are made and measured. Pass "
                "eval_examples to %s or to evaluate(), predict_examples to predict().",
                type(self).__name__,
            )
        self._has_warned = True

    def _find_evaluated(self, scope: _Scope, collector: Collector) -> tuple[Any, Any]:
        """The examples and features that were evaluated; fewer of both if only a part was."""
        assert self._current_evaluation is not None
        features, rows = self._current_evaluation.dataset, collector.indices
        if rows is None or (len(rows) != len(features) and not scope.is_part):
            return scope.examples, features
        features = choose_rows(features, rows)
        return choose_examples(scope.examples, features) if scope.is_part else scope.examples, features

    def _to_post_process(self, collector: Collector) -> Any:
        """The predictions for `post_process_function`."""
        return collector.predictions


class QuestionAnsweringSeq2SeqTrainer(Seq2SeqTrainer, QuestionAnsweringTrainer):
    """The same for models that generate answers; `post_process_function` gets the whole `EvalLoopOutput`."""

    def evaluate(  # type: ignore[override]
        self,
        eval_dataset: Any = None,
        eval_examples: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
        **gen_kwargs: Any,
    ) -> dict[str, float]:
        """The loss and the metrics of the answers on an evaluation set, or on each of several.

        Args:
            eval_dataset: Features to use instead of the Trainer's, or several sets of them by name.
            eval_examples: The examples that they were made from.
            ignore_keys: Keys of the model's outputs to leave out.
            metric_key_prefix: The prefix of every key.
            gen_kwargs: Arguments of the model's `generate`; they override the training arguments.
        """
        with self._scoped_to(eval_dataset, eval_examples, metric_key_prefix, metric_key_prefix):
            return super().evaluate(
                eval_dataset, ignore_keys=ignore_keys, metric_key_prefix=metric_key_prefix, **gen_kwargs
            )

    def predict(  # type: ignore[override]
        self,
        predict_dataset: Any,
        predict_examples: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "test",
        **gen_kwargs: Any,
    ) -> PredictionOutput:
        """Answers to the questions of a dataset, and metrics.

        Args:
            predict_dataset: The features to predict.
            predict_examples: The examples that they were made from.
            ignore_keys: Keys of the model's outputs to leave out.
            metric_key_prefix: The prefix of every key of the metrics.
            gen_kwargs: Arguments of the model's `generate`; they override the training arguments.
        """
        with self._scoped_to(predict_dataset, predict_examples, "predict", metric_key_prefix):
            return super().predict(
                predict_dataset, ignore_keys=ignore_keys, metric_key_prefix=metric_key_prefix, **gen_kwargs
            )

    def _to_post_process(self, collector: Collector) -> EvalLoopOutput:
        prefix = self._scope.prefix if self._scope is not None else "eval"
        metrics = {} if collector.loss is None else {f"{prefix}_loss": collector.loss}
        return EvalLoopOutput(collector.predictions, collector.labels, metrics, collector.num_samples)


def _check_names(datasets: dict[str, Any], examples: Any) -> None:
    """Refuse examples that are not in a dictionary with the names of the sets."""
    if not isinstance(examples, dict) or set(datasets) - set(examples):
        given = sorted(examples) if isinstance(examples, dict) else type(examples).__name__
        raise ValueError(
            f"eval_examples must be a dictionary with the names of the evaluation sets, {sorted(datasets)}; "
            f"got {given}."
        )


def _call_post_process(
    function: Callable[..., Any], values: tuple[Any, Any, Any], scope: _Scope, args: Any
) -> Any:
    """Call a post-processing function with the further arguments that it declares; scripts differ here."""
    stage = scope.stage
    known = {"stage": stage, "prefix": scope.prefix, "metric_key_prefix": scope.prefix}
    known |= {"training_args": args, "args": args}
    parameters = inspect.signature(function).parameters.values()
    by_name = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)][len(values) :]
    further = {}
    for place, parameter in enumerate(by_name):
        has_default = parameter.default is not parameter.empty
        if has_default and stage == "eval":  # the functions' own default
            continue
        if parameter.name in known or not has_default or place == 0:
            further[parameter.name] = known.get(parameter.name, stage)
    return function(*values, **further)
