"""A search by a sweep of W&B: `FOLDER`; prints what came out as one line. Used by test_sweep_search.py."""

import json
import sys

from wandb.agents.pyagent import Agent

import tiny
from footplate import Trainer, TrainerCallback

Agent.HEARTBEAT_SLEEP_SECONDS = 0.2  # of the real one: 5


class Fail(TrainerCallback):
    """Fails in the second trial."""

    num_trials = 0

    def on_train_begin(self, args, state, control, **kwargs):
        Fail.num_trials += 1

    def on_step_end(self, args, state, control, **kwargs):
        if Fail.num_trials == 2 and state.global_step == 2:
            raise FloatingPointError("the second trial fails")


def sweep_space(trial):
    return {
        "method": "random",
        "metric": {"name": "objective", "goal": "minimize"},
        "parameters": {"learning_rate": {"distribution": "uniform", "min": 0.01, "max": 0.2}},
    }


args = tiny.arguments(
    sys.argv[1],
    max_steps=4,
    eval_strategy="steps",
    eval_steps=2,
    save_strategy="best",
    metric_for_best_model="loss",
    logging_steps=2,
)
data = tiny.regression_data(32)
trainer = Trainer(
    args=args, model_init=tiny.Regression, train_dataset=data, eval_dataset=data, callbacks=[Fail()]
)
best = trainer.hyperparameter_search(
    direction="minimize",
    backend="wandb",
    hp_space=sweep_space,
    n_trials=3,
    project="a-project",
    load_best=True,
)
print("SEEN", json.dumps([*best, trainer.evaluate()["eval_loss"]]), flush=True)
