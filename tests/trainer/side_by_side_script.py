"""A search with two trials side by side: `FOLDER OPTIONS`; used by test_side_by_side.py."""

import json
import os
import signal
import sys
import time

import tiny
from footplate import Trainer, TrainerCallback

options = json.loads(sys.argv[2])


class Beat(TrainerCallback):
    """Makes updates slow, and dies in the trial that is named."""

    def on_step_end(self, args, state, control, **kwargs):
        time.sleep(options.get("sleep", 0.0))
        if state.global_step == 2 and state.trial_name == options.get("dies"):
            os.kill(os.getpid(), signal.SIGKILL)


def model_init(trial):
    if trial is not None:
        trial.suggest_categorical("width", [8, 16])  # a further name, which only the search can choose
    return tiny.Regression()


args = tiny.arguments(
    sys.argv[1],
    max_steps=6,
    eval_strategy="steps",
    eval_steps=2,
    save_strategy="best",
    metric_for_best_model="loss",
    logging_strategy="no",
    report=False,
)
data = tiny.regression_data(32)
trainer = Trainer(args=args, model_init=model_init, train_dataset=data, eval_dataset=data, callbacks=[Beat()])
space = {"learning_rate": {"low": 0.001, "high": 1.0, "log": True}}
best = trainer.hyperparameter_search(
    space, n_trials=options["trials"], backend=options.get("backend", "random"), n_jobs=2, load_best=True
)
print(json.dumps({"objective": best.objective, "again": trainer.evaluate()["eval_loss"]}))
