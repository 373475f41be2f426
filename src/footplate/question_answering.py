"""The trainers for question answering: predictions become answers before they are measured."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from footplate import comm
from footplate.evaluation import metrics as metric_tools
from footplate.evaluation.collector import Collector
from footplate.evaluation.post_processing import check_answers, check_rows, choose_rows, keep_asked
from footplate.evaluation.streaming import is_streaming
from footplate.outputs import EvalLoopOutput, PredictionOutput
from footplate.seq2seq import Seq2SeqTrainer
from footplate.trainer import Trainer

logger = logging.getLogger(__name__)


class _Asked(NamedTuple):
    """What an evaluation is about: the examples of its features, or by name those of several sets."""

    datasets: Any
    examples: Any
    stage: str
    prefix: str
    is_part: bool  # only some of the features are evaluated, and only their examples count

    def examples_of(self, dataset: Any) -> Any:
        """The examples of one of the sets, given by its name or as itself, or of all."""
        if dataset is self.datasets or not isinstance(self.datasets, dict) or self.examples is None:
            return self.examples
        if isinstance(dataset, str):
            return self.examples[dataset]
        return next((self.examples[name] for name, given in self.datasets.items() if given is dataset), None)


class QuestionAnsweringTrainer(Trainer):
    """A `Trainer` that scores answers: `post_process_function` makes them, `compute_metrics` measures them.

    Args:
        args: As for `Trainer`.
        eval_examples: The examples that `eval_dataset` was made of; by name where there are several sets.
        post_process_function: `(examples, features, predictions[, stage])` to an `EvalPrediction`, whose
            `predictions` and `label_ids` are what `compute_metrics` gets. It sees the features with all
            their columns.
        kwargs: As for `Trainer`.
    """

    _asked: _Asked | None = None
    _answers: Any = None
    _has_told = False

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
                "batch_eval_metrics=True measures batch by batch, but post_process_function needs the "
                "features of a whole set. Set batch_eval_metrics=False."
            )
        if post_process_function is not None and is_streaming(self.compute_metrics):
            raise ValueError(
                "compute_metrics is an object that takes batches of scores, but post_process_function makes "
                "answers of them first. Pass a function of those answers, such as build_squad_metrics()."
            )

    def evaluate(  # type: ignore[override]  # the API has its examples in second place
        self,
        eval_dataset: Any = None,
        eval_examples: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Metrics of the answers to an evaluation set, or to each of several, and the loss.

        Args:
            eval_dataset: Other features than the Trainer's own, or several sets of them by name.
            eval_examples: The examples that they were made of.
            ignore_keys: Keys of the model's outputs to leave out.
            metric_key_prefix: What every key begins with.
        """
        with self._asking(eval_dataset, eval_examples, metric_key_prefix, metric_key_prefix):
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
        """Answers to the questions of a dataset, and metrics; logits where nothing makes answers of them.

        Args:
            predict_dataset: The features to predict on.
            predict_examples: The examples that they were made of.
            ignore_keys: Keys of the model's outputs to leave out.
            metric_key_prefix: What every key of the metrics begins with.
            test_dataset: An earlier name of `predict_dataset`.
            test_examples: An earlier name of `predict_examples`.
        """
        dataset = predict_dataset if predict_dataset is not None else test_dataset
        examples = predict_examples if predict_examples is not None else test_examples
        if dataset is None:
            raise ValueError("predict() needs data. Pass `predict_dataset`, and its `predict_examples`.")
        with self._asking(dataset, examples, "predict", metric_key_prefix):
            output = super().predict(dataset, ignore_keys=ignore_keys, metric_key_prefix=metric_key_prefix)
        answers, self._answers = self._answers, None
        if answers is None:
            return output
        return output._replace(predictions=answers.predictions, label_ids=answers.label_ids)

    @contextmanager
    def _asking(
        self, dataset: Any, examples: Any, stage: str, prefix: str, is_rehearsal: bool = False
    ) -> Iterator[None]:
        """Know the examples while their features are evaluated."""
        outer, is_prediction = self._asked, stage == "predict"
        dataset = dataset if dataset is not None or is_prediction else self.eval_dataset
        if examples is None and outer is not None:  # one set of a round, or the base of a trainer above
            examples = outer.examples_of(dataset)
        elif examples is None and not is_prediction:
            examples = self.eval_examples
        if isinstance(dataset, dict) and examples is not None:
            _check_names(dataset, examples)
        is_part = is_rehearsal or (self.args.max_eval_samples is not None and not is_prediction)
        self._asked, self._answers = _Asked(dataset, examples, stage, prefix, is_part), None
        try:
            yield
        finally:
            self._asked = outer

    def _check_evaluation(self, ignore_keys: list[str] | None) -> None:
        lacks_examples = self._measures_answers and self.eval_examples is None
        if lacks_examples and self.args.eval_strategy != "no" and not self._evaluates_in_its_own_way():
            self._tell_of_examples()
        super()._check_evaluation(ignore_keys)

    def _gives_nothing(self, keys: list[str]) -> bool:
        """Whether such a batch gives neither a loss nor answers to measure."""
        gives_answers = self._measures_answers and self.eval_examples is not None
        return super()._gives_nothing(keys) and not gives_answers

    def _rehearse_metrics(self, set_name: str, ignore_keys: list[str] | None) -> list[str]:
        """The keys that evaluation gives on the first features of a set and their examples."""
        with (
            self._asking(None, None, "eval", "eval"),
            self._asking(set_name or None, None, "eval", "eval", is_rehearsal=True),
        ):
            return super()._rehearse_metrics(set_name, ignore_keys)

    @property
    def _measures_answers(self) -> bool:
        return self.post_process_function is not None and self.compute_metrics is not None

    def _compute_metrics(self, collector: Collector) -> dict[str, Any]:
        """What `compute_metrics` says of the answers; nothing where none can be made."""
        asked, predictions = self._asked, collector.predictions
        if self.post_process_function is None or self.compute_metrics is None or predictions is None:
            return {}
        if asked is None or asked.examples is None:
            self._tell_of_examples()
            return {}
        examples, features = self._find_asked(asked, collector)
        check_rows(comm.find_batch_size(predictions), features, self.args.eval_do_concat_batches)
        answers = _call_post_process(
            self.post_process_function,
            (examples, features, self._to_post_process(collector)),
            asked,
            self.args,
        )
        self._answers = check_answers(answers, examples, is_prediction=asked.stage == "predict")
        if self._answers.label_ids is None:
            return {}
        return metric_tools.check_metrics(self.compute_metrics(self._answers))

    def _tell_of_examples(self) -> None:
        """Say once why there are no answers."""
        if not self._has_told:
            logger.warning(
                "No examples were given with the features, so no answers are made of them and measured. Pass "
                "eval_examples to %s or to evaluate(), predict_examples to predict().",
                type(self).__name__,
            )
        self._has_told = True

    def _find_asked(self, asked: _Asked, collector: Collector) -> tuple[Any, Any]:
        """Examples and features of the evaluation under way; fewer of both where it is about a part."""
        features, rows = self._current_eval_dataset, collector.indices
        if rows is None or (len(rows) != len(features) and not asked.is_part):
            return asked.examples, features
        features = choose_rows(features, rows)
        return keep_asked(asked.examples, features) if asked.is_part else asked.examples, features

    def _to_post_process(self, collector: Collector) -> Any:
        """What `post_process_function` gets as predictions."""
        return collector.predictions


class QuestionAnsweringSeq2SeqTrainer(Seq2SeqTrainer, QuestionAnsweringTrainer):
    """The same for models that generate their answers; post-processing gets the whole `EvalLoopOutput`."""

    def evaluate(  # type: ignore[override]
        self,
        eval_dataset: Any = None,
        eval_examples: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
        **gen_kwargs: Any,
    ) -> dict[str, float]:
        """Metrics of the answers to an evaluation set, or to each of several, and the loss.

        Args:
            eval_dataset: Other features than the Trainer's own, or several sets of them by name.
            eval_examples: The examples that they were made of.
            ignore_keys: Keys of the model's outputs to leave out.
            metric_key_prefix: What every key begins with.
            gen_kwargs: Whatever the model's `generate` takes; goes before the training arguments.
        """
        with self._asking(eval_dataset, eval_examples, metric_key_prefix, metric_key_prefix):
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
            predict_dataset: The features to predict on.
            predict_examples: The examples that they were made of.
            ignore_keys: Keys of the model's outputs to leave out.
            metric_key_prefix: What every key of the metrics begins with.
            gen_kwargs: Whatever the model's `generate` takes; goes before the training arguments.
        """
        with self._asking(predict_dataset, predict_examples, "predict", metric_key_prefix):
            return super().predict(
                predict_dataset, ignore_keys=ignore_keys, metric_key_prefix=metric_key_prefix, **gen_kwargs
            )

    def _to_post_process(self, collector: Collector) -> EvalLoopOutput:
        prefix = self._asked.prefix if self._asked is not None else "eval"
        metrics = {} if collector.loss is None else {f"{prefix}_loss": collector.loss}
        return EvalLoopOutput(collector.predictions, collector.labels, metrics, collector.num_samples)


def _check_names(datasets: dict[str, Any], examples: Any) -> None:
    """Refuse examples that are not given by the names of their sets."""
    if not isinstance(examples, dict) or set(datasets) - set(examples):
        given = sorted(examples) if isinstance(examples, dict) else type(examples).__name__
        raise ValueError(
            f"eval_examples must be a dictionary with the names of the evaluation sets, {sorted(datasets)}; "
            f"got {given}."
        )


def _call_post_process(
    function: Callable[..., Any], values: tuple[Any, Any, Any], asked: _Asked, args: Any
) -> Any:
    """Call a post-processing function of any year, with those further parameters that it declares."""
    stage = asked.stage
    known = {"stage": stage, "prefix": asked.prefix, "metric_key_prefix": asked.prefix}
    known |= {"training_args": args, "args": args}
    parameters = inspect.signature(function).parameters.values()
    by_name = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)][len(values) :]
    further = {}
    for place, parameter in enumerate(by_name):
        has_default = parameter.default is not parameter.empty
        if has_default and stage == "eval":  # the stage that functions have as their default
            continue
        if parameter.name in known or not has_default or place == 0:
            further[parameter.name] = known.get(parameter.name, stage)
    return function(*values, **further)
