"""The question-answering trainers, beside the same written for transformers as its examples do it."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import transformers
from datasets import Dataset, DatasetDict
from torchmetrics import MeanAbsoluteError

import footplate
import tiny
from footplate import EarlyStoppingCallback, EvalPrediction, TrainerCallback
from footplate.qa.answers import postprocess_qa_predictions
from footplate.qa.features import build_qa_features
from footplate.qa.post_processing import build_post_processing
from footplate.qa.scores import build_squad_metrics, compute_squad_metrics
from footplate.question_answering import QuestionAnsweringSeq2SeqTrainer, QuestionAnsweringTrainer
from questions import build_reader, build_tokenizer, make_questions
from slow_answers import answer_slowly

SPEED = {"eval_runtime", "eval_samples_per_second", "eval_steps_per_second"}
TOKENIZER = build_tokenizer()


class Set(SimpleNamespace):
    """Examples and the features made of them."""

    examples: Dataset
    features: Dataset


def make_set(count: int, seed: int, unanswerable: float = 0.0) -> Set:
    examples = Dataset.from_list(make_questions(count, seed, unanswerable))
    settings = {"tokenizer": TOKENIZER, "max_length": 28, "doc_stride": 8}
    features = examples.map(
        build_qa_features, batched=True, remove_columns=examples.column_names, fn_kwargs=settings
    )
    return Set(examples=examples, features=features)


@pytest.fixture(scope="module")
def train_set() -> Set:
    return make_set(96, seed=0)


@pytest.fixture(scope="module")
def eval_set() -> Set:
    return make_set(40, seed=1)


@pytest.fixture(scope="module")
def other_set() -> Set:
    return make_set(17, seed=2)


def post_process(examples: Any, features: Any, predictions: Any, stage: str = "eval") -> EvalPrediction:
    """As users write it."""
    answers = postprocess_qa_predictions(examples=examples, features=features, predictions=predictions)
    formatted = [{"id": key, "prediction_text": text} for key, text in answers.items()]
    references = [{"id": row["id"], "answers": row["answers"]} for row in examples]
    return EvalPrediction(predictions=formatted, label_ids=references)


def post_process_slowly(examples: Any, features: Any, predictions: Any, stage: str = "eval") -> Any:
    answers = answer_slowly(list(examples), list(features), predictions)[0]
    formatted = [{"id": key, "prediction_text": text} for key, text in answers.items()]
    references = [{"id": row["id"], "answers": row["answers"]} for row in examples]
    return transformers.EvalPrediction(predictions=formatted, label_ids=references)


def compute_metrics(prediction: Any) -> dict[str, float]:
    return compute_squad_metrics(prediction.predictions, prediction.label_ids)


def original_trainer(base: type) -> type:
    """A trainer for transformers that does what the one in its examples does, with all keys prefixed."""

    class Original(base):
        def __init__(self, *args: Any, eval_examples: Any, post_process_function: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.eval_examples, self.post_process_function = eval_examples, post_process_function

        def run(self, loader: Any, name: str, ignore_keys: Any, prefix: str) -> Any:
            kept, self.compute_metrics = self.compute_metrics, None
            try:
                return self.evaluation_loop(loader, name, None, ignore_keys, metric_key_prefix=prefix)
            finally:
                self.compute_metrics = kept

        def measure(self, output: Any, answers: Any, prefix: str) -> dict[str, float]:
            own = {f"{prefix}_{key}": value for key, value in self.compute_metrics(answers).items()}
            return {**own, **output.metrics}

        def to_answers(self, examples: Any, features: Any, output: Any, *stage: str) -> Any:
            whole = base is transformers.Seq2SeqTrainer
            return self.post_process_function(
                examples, features, output if whole else output.predictions, *stage
            )

        def evaluate(
            self, eval_dataset: Any = None, eval_examples: Any = None, ignore_keys: Any = None,
            metric_key_prefix: str = "eval", **settings: Any,
        ) -> dict[str, float]:  # fmt: skip
            self._gen_kwargs = settings
            features = self.eval_dataset if eval_dataset is None else eval_dataset
            examples = self.eval_examples if eval_examples is None else eval_examples
            output = self.run(
                self.get_eval_dataloader(features), "Evaluation", ignore_keys, metric_key_prefix
            )
            answers = self.to_answers(examples, features, output)
            metrics = self.measure(output, answers, metric_key_prefix)
            self.log(metrics)
            self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
            return metrics

        def predict(
            self, features: Any, examples: Any, ignore_keys: Any = None, metric_key_prefix: str = "test"
        ) -> Any:
            output = self.run(
                self.get_test_dataloader(features), "Prediction", ignore_keys, metric_key_prefix
            )
            answers = self.to_answers(examples, features, output, "predict")
            return answers.predictions, answers.label_ids, self.measure(output, answers, metric_key_prefix)

    return Original


def build(folder: Any, train: Set | None, evaluate: Any, options: Any = None, **settings: Any) -> Any:
    args = tiny.arguments(folder, **{"per_device_eval_batch_size": 7, "learning_rate": 5e-3, **settings})
    given = {
        "eval_dataset": getattr(evaluate, "features", None),
        "eval_examples": getattr(evaluate, "examples", None),
        "post_process_function": post_process,
        "compute_metrics": compute_metrics,
        "train_dataset": None if train is None else train.features,
    }
    return QuestionAnsweringTrainer(model=build_reader(), args=args, **{**given, **(options or {})})


# ---- the same as transformers ----


def test_metrics_are_those_of_the_original(tmp_path, train_set, eval_set, other_set):
    settings = {"eval_strategy": "steps", "eval_steps": 12, "logging_steps": 6, "max_steps": 36}
    ours = build(tmp_path, train_set, eval_set, **settings)
    args = tiny.arguments(
        tmp_path, transformers, per_device_eval_batch_size=7, learning_rate=5e-3, **settings
    )
    theirs = original_trainer(transformers.Trainer)(
        model=build_reader(),
        args=args,
        train_dataset=train_set.features,
        eval_dataset=eval_set.features,
        eval_examples=eval_set.examples,
        post_process_function=post_process_slowly,
        compute_metrics=compute_metrics,
    )
    ours.train()
    theirs.train()
    names = ("eval_exact_match", "eval_f1", "eval_loss", "loss", "step")

    def history(trainer: Any) -> list[dict[str, float]]:
        rows = [{name: row[name] for name in names if name in row} for row in trainer.state.log_history]
        return [row for row in rows if len(row) > 1]

    assert history(ours) == history(theirs)
    measured = [row["eval_f1"] for row in history(ours) if "eval_f1" in row]
    assert len(measured) == 3
    assert measured[-1] > measured[0]

    output = ours.predict(other_set.features, other_set.examples, metric_key_prefix="held_out")
    predictions, references, metrics = theirs.predict(
        other_set.features, other_set.examples, metric_key_prefix="held_out"
    )
    assert (output.predictions, output.label_ids) == (predictions, references)
    for name in ("exact_match", "f1", "loss"):
        assert output.metrics[f"held_out_{name}"] == metrics[f"held_out_{name}"]


# ---- what the original got wrong ----


def read_notes(folder: Any) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return [event for event in events if event["kind"] == "answers"]


def check_note(note: dict[str, Any], metrics: dict[str, float], prefix: str, count: int) -> None:
    """The note must have the scores of the metrics, and every question in one bucket."""
    assert (note["set"], note["num_items"]) == (prefix, count)
    for name in ("exact_match", "f1"):
        assert note[name] == pytest.approx(metrics[f"{prefix}_{name}"], abs=0.006)
    buckets = note["tables"]["answer"]
    assert sum(num_questions for _, num_questions, _, _ in buckets) == count
    mean = sum(num_questions * f1 for _, num_questions, _, f1 in buckets) / count
    assert mean == pytest.approx(metrics[f"{prefix}_f1"], abs=0.02)


def test_scores_by_length_are_noted_for_every_set_and_prediction(tmp_path, eval_set, other_set):
    trainer = build(tmp_path, None, eval_set)
    metrics = trainer.evaluate(
        {"a": eval_set.features, "b": other_set.features}, {"a": eval_set.examples, "b": other_set.examples}
    )
    output = trainer.predict(other_set.features, other_set.examples)
    first, second, third = read_notes(tmp_path)
    check_note(first, metrics, "eval_a", 40)
    check_note(second, metrics, "eval_b", 17)
    check_note(third, output.metrics, "test", 17)
    assert {row[0] for row in first["tables"]["answer"]} == {"1", "2"}


def test_answers_in_a_form_of_their_own_are_measured_without_a_note(tmp_path, eval_set):
    def post_process_plainly(examples: Any, features: Any, predictions: Any) -> Any:
        return EvalPrediction(np.ones(len(examples)), np.ones(len(examples)))

    options = {"post_process_function": post_process_plainly, "compute_metrics": lambda answers: {"one": 1.0}}
    assert build(tmp_path, None, eval_set, options).evaluate()["eval_one"] == 1.0
    assert read_notes(tmp_path) == []


def test_every_key_of_an_evaluation_is_in_one_log_under_eval(tmp_path, eval_set):
    trainer = build(tmp_path, None, eval_set)
    metrics = trainer.evaluate()
    assert set(metrics) - {"epoch"} >= {"eval_exact_match", "eval_f1", "eval_loss", *SPEED}
    assert [key for key in metrics if not key.startswith("eval_") and key != "epoch"] == []
    (logged,) = trainer.state.log_history
    assert {key: logged[key] for key in metrics} == metrics


def test_the_loss_is_there_whenever_features_have_positions(tmp_path, eval_set):
    trainer = build(tmp_path, None, eval_set)
    bare = eval_set.features.remove_columns(["start_positions", "end_positions"])
    assert math.isfinite(trainer.evaluate()["eval_loss"])
    metrics = trainer.evaluate(bare, eval_set.examples)
    assert "eval_loss" not in metrics
    assert metrics["eval_f1"] == trainer.evaluate()["eval_f1"]


def test_the_best_answers_are_kept_and_training_stops_early(tmp_path, train_set, eval_set):
    seen = []

    class Watch(TrainerCallback):
        def on_evaluate(self, args, state, control, metrics=None, **kwargs):
            seen.append((metrics["eval_f1"], kwargs["best_metric"]))

    trainer = build(
        tmp_path, train_set, eval_set,
        {"callbacks": [Watch(), EarlyStoppingCallback(2)]},
        eval_strategy="steps", eval_steps=8, save_strategy="best", max_steps=400, learning_rate=1e-2,
        load_best_model_at_end=True, metric_for_best_model="f1",
    )  # fmt: skip
    trainer.train()
    values = [value for value, _ in seen]
    assert [best for _, best in seen] == list(np.maximum.accumulate(values))
    assert len(values) < 400 // 8, "it stopped early"
    assert trainer.state.best_metric == max(values)
    assert trainer.evaluate()["eval_f1"] == max(values)


def test_a_metric_that_no_evaluation_gives_is_named(tmp_path, train_set, eval_set):
    trainer = build(
        tmp_path,
        train_set,
        eval_set,
        eval_strategy="steps",
        eval_steps=1,
        max_steps=2,
        metric_for_best_model="em",
    )
    with pytest.raises(ValueError, match=r"metric_for_best_model='em' is not among .*'exact_match', 'f1'"):
        trainer.train()
    assert trainer.state.global_step == 0


def test_each_of_several_sets_is_tried_on_the_examples_of_its_first_batch(tmp_path, eval_set, other_set):
    asked = []

    def note(examples: Any, features: Any, predictions: Any) -> Any:
        asked.append((len(features), {row["id"] for row in examples}))
        return post_process(examples, features, predictions)

    named = {"one": eval_set, "two": other_set}
    options = {
        "eval_dataset": {name: chosen.features for name, chosen in named.items()},
        "eval_examples": {name: chosen.examples for name, chosen in named.items()},
        "post_process_function": note,
    }
    settings = {"eval_strategy": "steps", "eval_steps": 5, "max_steps": 1}
    trainer = build(tmp_path, eval_set, None, options, metric_for_best_model="two_f1", **settings)
    trainer.train()
    owners = [set(chosen.features[:7]["example_id"]) for chosen in named.values()]
    assert asked[:2] == [(7, owners[0]), (7, owners[1])]
    trainer = build(tmp_path, eval_set, None, options, metric_for_best_model="three_f1", **settings)
    with pytest.raises(ValueError, match=r"metric_for_best_model='three_f1' is not among .*'two_f1'"):
        trainer.train()


# ---- without answers ----


@pytest.mark.parametrize("missing", ["post_process_function", "compute_metrics", "eval_examples"])
def test_without_a_part_only_the_loss_is_measured(tmp_path, eval_set, missing):
    trainer = build(tmp_path, None, eval_set, {missing: None})
    metrics = trainer.evaluate()
    assert "eval_loss" in metrics
    assert "eval_f1" not in metrics
    output = trainer.predict(eval_set.features, None if missing == "eval_examples" else eval_set.examples)
    assert [part.shape for part in output.predictions] == [(len(eval_set.features), 28)] * 2


def test_missing_examples_are_told_before_the_first_update(tmp_path, eval_set, caplog):
    class Quit(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            raise KeyboardInterrupt

    options = {"eval_examples": None, "callbacks": [Quit]}
    trainer = build(tmp_path, eval_set, eval_set, options, eval_strategy="steps", max_steps=2)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert "Pass eval_examples" in caplog.text
    assert "neither eval_loss nor metrics" not in caplog.text  # there is a loss


@pytest.mark.parametrize("has_examples", [True, False])
def test_features_without_positions_are_told_of_only_where_no_answers_are_measured(
    tmp_path, eval_set, caplog, has_examples
):
    features = eval_set.features.remove_columns(["start_positions", "end_positions"])
    options = {"eval_dataset": features, "eval_examples": eval_set.examples if has_examples else None}
    settings = {"eval_strategy": "steps", "eval_steps": 5, "max_steps": 1}
    build(tmp_path, eval_set, eval_set, options, **settings).train()
    assert ("neither eval_loss nor metrics" in caplog.text) is not has_examples


def test_a_metric_object_is_refused_where_answers_are_made_first(tmp_path, eval_set):
    with pytest.raises(ValueError, match="compute_metrics is an object"):
        build(tmp_path, None, eval_set, {"compute_metrics": MeanAbsoluteError()})


def test_prediction_loss_only_is_obeyed(tmp_path, eval_set):
    metrics = build(tmp_path, None, eval_set, prediction_loss_only=True).evaluate()
    assert set(metrics) & {"eval_loss", "eval_f1"} == {"eval_loss"}


def test_a_hidden_test_set_gives_answers_and_no_metrics(tmp_path, eval_set):
    def answers_alone(examples, features, predictions, stage):
        return [{"id": row["id"], "prediction_text": f"tea at {stage}"} for row in examples]

    trainer = build(tmp_path, None, eval_set, {"post_process_function": answers_alone})
    output = trainer.predict(eval_set.features, eval_set.examples.remove_columns("answers"))
    assert output.predictions[0]["prediction_text"] == "tea at predict"
    assert output.label_ids is None
    assert "test_f1" not in output.metrics
    with pytest.raises(TypeError, match="post_process_function returned"):
        trainer.evaluate()


# ---- several sets ----


@pytest.mark.parametrize("kind", [dict, DatasetDict])
@pytest.mark.parametrize("is_given", [False, True])
def test_each_of_several_sets_is_measured_on_its_own_examples(tmp_path, eval_set, other_set, kind, is_given):
    features = kind({"near": eval_set.features, "far": other_set.features})
    examples = {"near": eval_set.examples, "far": other_set.examples}
    alone = build(tmp_path, None, None)
    expected = {
        "near": alone.evaluate(eval_set.features, eval_set.examples),
        "far": alone.evaluate(other_set.features, other_set.examples),
    }
    if is_given:
        metrics = alone.evaluate(features, examples)
    else:
        metrics = build(tmp_path, None, Set(features=features, examples=examples)).evaluate()
    for name, values in expected.items():
        for key in ("exact_match", "f1", "loss"):
            assert metrics[f"eval_{name}_{key}"] == values[f"eval_{key}"]
    sizes = {"near": len(eval_set.features), "far": len(other_set.features)}
    joint = sum(expected[name]["eval_loss"] * size for name, size in sizes.items()) / sum(sizes.values())
    assert metrics["eval_loss"] == pytest.approx(joint)


def test_several_sets_write_files_of_their_own(tmp_path, eval_set, other_set):
    features = {"near": eval_set.features, "far": other_set.features}
    examples = {"near": eval_set.examples, "far": other_set.examples}
    options = {"post_process_function": build_post_processing(output_dir=str(tmp_path))}
    trainer = build(tmp_path, None, Set(features=features, examples=examples), options)
    trainer.evaluate()
    trainer.predict(eval_set.features, eval_set.examples)
    written = {path.name for path in tmp_path.glob("*_predictions.json") if "nbest" not in path.name}
    assert written == {"eval_near_predictions.json", "eval_far_predictions.json", "predict_predictions.json"}


@pytest.mark.parametrize("examples", [["rows"], {"near": []}])
def test_examples_of_several_sets_need_their_names(tmp_path, eval_set, other_set, examples):
    features = {"near": eval_set.features, "far": other_set.features}
    trainer = build(tmp_path, None, Set(features=features, examples=examples))
    with pytest.raises(ValueError, match=r"eval_examples must be .* \['far', 'near'\]"):
        trainer.evaluate()


def test_fewer_rows_are_measured_on_their_own_examples(tmp_path, eval_set):
    asked = []

    def spy(examples, features, predictions):
        asked.append(
            ({row["id"] for row in examples}, {row["example_id"] for row in features}, len(features))
        )
        return post_process(examples, features, predictions)

    trainer = build(tmp_path, None, eval_set, {"post_process_function": spy}, max_eval_samples=9)
    trainer.evaluate()
    ((examples, owners, num_features),) = asked
    assert examples == owners
    assert num_features == 9
    assert len(trainer.predict(eval_set.features, eval_set.examples).predictions) == len(eval_set.examples)


# ---- scripts of all years ----


def test_post_processing_gets_the_parameters_that_it_declares(tmp_path, eval_set):
    calls = []

    def note(*values: Any) -> EvalPrediction:
        calls.append(values)
        return EvalPrediction([{"id": key, "prediction_text": ""} for key in eval_set.examples["id"]], None)

    functions = [
        lambda examples, features, predictions: note(),
        lambda examples, features, predictions, stage="eval": note(stage),
        lambda examples, features, predictions, stage="validation": note(stage),
        lambda examples, features, predictions, stage: note(stage),
        lambda examples, features, predictions, training_args: note(training_args),
        lambda examples, features, predictions, mode="x", extra=3: note(mode, extra),
        lambda examples, features, predictions, *, prefix: note(prefix),
    ]
    for function in functions:
        trainer = build(
            tmp_path,
            None,
            eval_set,
            {"post_process_function": function, "compute_metrics": lambda answers: {}},
        )
        trainer.evaluate()
        trainer.predict(eval_set.features, eval_set.examples)
    args = calls[8][0]
    assert isinstance(args, footplate.TrainingArguments)
    assert calls[0::2] == [(), ("eval",), ("validation",), ("eval",), (args,), ("x", 3), ("eval",)]
    assert calls[1::2][:4] == [(), ("predict",), ("predict",), ("predict",)]
    assert calls[1::2][5:] == [("predict", 3), ("test",)]


def test_names_and_places_of_earlier_years_work(tmp_path, eval_set):
    trainer = build(tmp_path, None, eval_set, {"tokenizer": TOKENIZER})
    by_place = trainer.predict(eval_set.features, eval_set.examples, None)
    by_name = trainer.predict(test_dataset=eval_set.features, test_examples=eval_set.examples)
    with pytest.raises(ValueError, match="Pass `predict_dataset`"):
        trainer.predict()
    assert by_place.predictions == by_name.predictions
    assert by_place.metrics["test_f1"] == by_name.metrics["test_f1"]
    assert (
        trainer.evaluate(eval_set.features, eval_set.examples, None)["eval_f1"] == by_place.metrics["test_f1"]
    )


def test_lists_of_rows_serve_as_well(tmp_path, eval_set):
    expected = build(tmp_path, None, eval_set).evaluate()
    rows = Set(features=list(eval_set.features), examples=list(eval_set.examples))
    found = build(tmp_path, None, rows).evaluate()
    assert {key: found[key] for key in found if key not in SPEED} == {
        key: expected[key] for key in expected if key not in SPEED
    }


def test_questions_without_an_answer_are_measured_by_version_2(tmp_path):
    mixed = make_set(40, seed=3, unanswerable=0.5)
    ready = {
        "post_process_function": build_post_processing(version_2_with_negative=True),
        "compute_metrics": build_squad_metrics(version_2_with_negative=True),
    }
    metrics = build(tmp_path, None, mixed, ready).evaluate()
    num_without = sum(not answers["text"] for answers in mixed.examples["answers"])
    assert metrics["eval_NoAns_total"] == num_without > 0
    assert metrics["eval_HasAns_total"] == 40 - num_without
    with pytest.raises(ValueError, match="version_2_with_negative=True"):
        build(tmp_path, None, mixed).evaluate()


# ---- nonsense ----


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda answers: None, TypeError, "post_process_function returned None"),
        (lambda answers: 3.5, TypeError, "post_process_function returned 3.5"),
        (
            lambda answers: (answers.predictions, answers.label_ids),
            TypeError,
            r"post_process_function returned .*\(tuple\)",
        ),
        (
            lambda answers: EvalPrediction(answers.predictions[1:], answers.label_ids),
            ValueError,
            "predictions that do not fit eval_examples: 39 for 40 examples; none for '1-0'",
        ),
        (
            lambda answers: EvalPrediction(answers.predictions, answers.label_ids * 2),
            ValueError,
            "label_ids that do not fit eval_examples: 80 for 40 examples",
        ),
        (
            lambda answers: EvalPrediction([{"id": 7, "prediction_text": ""}] * 40, answers.label_ids),
            ValueError,
            "unknown ids such as 7",
        ),
        (lambda answers: EvalPrediction(["a"] * 3, ["b"] * 4), ValueError, "3 predictions and 4 label_ids"),
    ],
)
def test_a_post_process_function_that_returns_nonsense_is_named(tmp_path, eval_set, change, error, message):
    def nonsense(examples: Any, features: Any, predictions: Any) -> Any:
        return change(post_process(examples, features, predictions))

    trainer = build(tmp_path, None, eval_set, {"post_process_function": nonsense})
    with pytest.raises(error, match=message):
        trainer.evaluate()


def test_settings_that_leave_no_row_per_feature_are_named(tmp_path, eval_set):
    with pytest.raises(ValueError, match="dataloader_drop_last=False"):
        build(tmp_path, None, eval_set, dataloader_drop_last=True).evaluate()
    with pytest.raises(ValueError, match="eval_do_concat_batches=True"):
        build(tmp_path, None, eval_set, eval_do_concat_batches=False).evaluate()
    batchwise = {"compute_metrics": lambda prediction, compute_result: {}}
    with pytest.raises(ValueError, match="batch_eval_metrics=False"):
        build(tmp_path, None, eval_set, batchwise, batch_eval_metrics=True)


def test_features_of_other_examples_are_refused(tmp_path, eval_set, other_set):
    with pytest.raises(ValueError, match=r"example_id '2-0' is not among the ids .*eval_examples"):
        build(tmp_path, None, eval_set).evaluate(other_set.features)


def test_an_evaluation_that_fails_leaves_the_trainer_usable(tmp_path, eval_set, other_set):
    trainer = build(tmp_path, None, eval_set)
    expected = trainer.evaluate()["eval_f1"]
    with pytest.raises(ValueError, match="eval_examples"):
        trainer.evaluate(other_set.features)
    assert trainer.evaluate()["eval_f1"] == expected


# ---- generated answers ----


def build_writer() -> Any:
    import torch

    torch.manual_seed(0)
    sizes = {"d_model": 32, "d_ff": 64, "d_kv": 16, "num_layers": 2, "num_heads": 2}
    ends = {"pad_token_id": 0, "eos_token_id": 3, "decoder_start_token_id": 0}
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(vocab_size=64, dropout_rate=0.0, **sizes, **ends)
    )


def make_text_set(count: int, seed: int) -> Set:
    examples = Dataset.from_list(make_questions(count, seed))

    def encode(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        features = TOKENIZER(rows["question"], rows["context"], padding="max_length", max_length=40)
        answers = TOKENIZER(
            [answers["text"][0] for answers in rows["answers"]], padding="max_length", max_length=8
        )
        labels = [[token if token else -100 for token in row[1:]] for row in answers["input_ids"]]
        kept = {name: features[name] for name in ("input_ids", "attention_mask")}
        return {**kept, "labels": labels, "example_id": rows["id"]}

    return Set(
        examples=examples, features=examples.map(encode, batched=True, remove_columns=examples.column_names)
    )


def read_answers(examples: Any, features: Any, outputs: Any, stage: str = "eval") -> Any:
    tokens = np.where(outputs.predictions < 0, 0, outputs.predictions)
    texts = TOKENIZER.batch_decode(tokens, skip_special_tokens=True)
    owners = dict(zip(features["example_id"], texts, strict=True))
    return EvalPrediction(
        predictions=[{"id": row["id"], "prediction_text": owners[row["id"]]} for row in examples],
        label_ids=[{"id": row["id"], "answers": row["answers"]} for row in examples],
    )


def test_generated_answers_measure_as_in_the_original(tmp_path):
    train, evaluate = make_text_set(64, seed=0), make_text_set(19, seed=1)
    trainers = []
    for library in (footplate, transformers):
        cls = (
            QuestionAnsweringSeq2SeqTrainer
            if library is footplate
            else original_trainer(transformers.Seq2SeqTrainer)
        )
        args = library.Seq2SeqTrainingArguments(
            str(tmp_path), predict_with_generate=True, max_steps=30, learning_rate=1e-2, report_to="none",
            per_device_eval_batch_size=4, save_strategy="no", disable_tqdm=True, use_cpu=True,
            generation_max_length=6,
        )  # fmt: skip
        trainer = cls(
            model=build_writer(), args=args, train_dataset=train.features,
            eval_dataset=evaluate.features, eval_examples=evaluate.examples,
            post_process_function=read_answers, compute_metrics=compute_metrics,
        )  # fmt: skip
        trainer.train()
        trainers.append(trainer)
    settings = {"max_length": 6, "num_beams": 2}
    ours, theirs = (trainer.evaluate(**settings) for trainer in trainers)
    names = ("eval_exact_match", "eval_f1", "eval_loss")
    assert {name: ours[name] for name in names} == {name: theirs[name] for name in names}
    assert ours["eval_f1"] > 0
    output = trainers[0].predict(
        evaluate.features, evaluate.examples, metric_key_prefix="predict", **settings
    )
    assert output.metrics["predict_f1"] == ours["eval_f1"]
    assert isinstance(output.predictions[0]["prediction_text"], str)
    note = read_notes(tmp_path)[-1]
    check_note(note, output.metrics, "predict", 19)
    several = trainers[0].evaluate({"a": evaluate.features}, {"a": evaluate.examples}, **settings)
    assert several["eval_a_f1"] == ours["eval_f1"]
    assert [key for key in ours if not key.startswith("eval_") and key != "epoch"] == []
