"""What a callback is handed to predict rows of its own choice."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tiny
from footplate import TrainerCallback, rng
from footplate.samples import Predictor
from footplate.samples.predictor import name_eval_sets


@pytest.mark.parametrize(
    ("given", "expected"),
    [(None, {}), ([1], {"eval": [1]}), ({"a": [1], "b": [2]}, {"eval_a": [1], "eval_b": [2]})],
)
def test_evaluation_sets_have_names(given, expected):
    assert name_eval_sets(given) == expected


class Curious(TrainerCallback):
    """Predicts the evaluation sets after every update, as a user's own callback could."""

    wants_step_data = False

    def __init__(self) -> None:
        self.answers: list[torch.Tensor] = []
        self.sets: list[list[str]] = []
        self.told: list[Any] = []

    def on_step_end(self, args: Any, state: Any, control: Any, predictor: Predictor, **kwargs: Any) -> None:
        for name, dataset in predictor.eval_sets().items():
            with rng.scoped():
                batches = list(predictor.read(dataset))
            for batch in batches:
                assert set(predictor.label_names()) <= batch.keys()
                answers, labels = predictor.predict(batch)
                assert torch.equal(labels, batch["labels"])
                self.answers.append(answers)
            returned = predictor.tell(args, state, control, samples=[{"prediction": 1}], source=name)
            assert returned is control

    def on_evaluate(self, args: Any, state: Any, control: Any, predictor: Predictor, **kwargs: Any) -> None:
        self.sets.append(list(predictor.eval_sets()))

    on_round_end = on_evaluate

    def on_samples(self, args: Any, state: Any, control: Any, samples: Any, source: Any, **kw: Any) -> None:
        self.told.append((source, samples))


def trained(folder: Any, *callbacks: Any) -> Any:
    data = tiny.classification_data(12)
    settings = {"max_steps": 3, "logging_steps": 1, "per_device_eval_batch_size": 4}
    trainer = tiny.build_trainer(
        folder, tiny.bert_classifier(), data, data, options={"callbacks": list(callbacks)}, **settings
    )
    trainer.train()
    return trainer


def test_a_callback_predicts_and_the_run_stays_the_same(tmp_path):
    curious = Curious()
    plain, watched = trained(tmp_path), trained(tmp_path, curious)
    assert [answers.shape for answers in curious.answers] == [(4, 3)] * 9
    assert curious.told == [("eval", [{"prediction": 1}])] * 3
    losses = [[entry.get("loss") for entry in trainer.state.log_history] for trainer in (plain, watched)]
    assert losses[0] == losses[1]
    weights = [trainer.model.state_dict() for trainer in (plain, watched)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_the_sets_are_those_that_are_evaluated(tmp_path):
    curious = Curious()
    trainer = trained(tmp_path, curious)
    trainer.evaluate()
    trainer.evaluate({"far": tiny.classification_data(4)})
    assert curious.sets == [["eval"], ["eval"], ["eval_far"]]


def test_label_names_are_those_that_a_subclass_sets_later(tmp_path):
    trainer = tiny.build_trainer(tmp_path, tiny.Regression(), None, tiny.regression_data(4))
    predictor = trainer.callback_handler.extras["predictor"]
    assert predictor.label_names() == ["labels"]
    trainer.label_names = ["x"]
    assert predictor.label_names() == ["x"]
