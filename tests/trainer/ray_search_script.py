"""Searches with Ray Tune: `FOLDER`; prints what came out as one line of JSON. Used by test_ray_search.py."""

import json
import sys
from pathlib import Path

import ray
from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler

import tiny
from footplate import Trainer, TrainerCallback


class Mine(Trainer):
    """A subclass of a script, which no other process can import."""


class Fail(TrainerCallback):
    """Fails where the rate is too high."""

    def on_step_end(self, args, state, control, **kwargs):
        if args.learning_rate > 1.0:
            raise FloatingPointError("the rate is too high")


def build(name):
    args = tiny.arguments(
        str(Path(sys.argv[1], name)),
        num_train_epochs=3,
        eval_strategy="epoch",
        save_strategy="best",
        metric_for_best_model="loss",
        logging_strategy="no",
    )
    data = tiny.regression_data(32)
    made = {"model_init": lambda trial: tiny.Regression(), "train_dataset": data, "eval_dataset": data}
    return Mine(args=args, callbacks=[Fail()], **made)


def describe(best):
    return {
        "id": best.run_id,
        "objective": best.objective,
        "values": best.hyperparameters,
        "ids": sorted(trial.trial_id for trial in best.run_summary.trials),
        "last": {trial.trial_id: trial.last_result.get("objective") for trial in best.run_summary.trials},
    }


ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
results = {}
for key in ("first", "second"):  # the second call makes no further trial
    trainer = build("grid")
    best = trainer.hyperparameter_search(
        lambda trial: {"learning_rate": tune.grid_search([0.01, 0.1, 2.0, 0.05])},
        n_trials=1,
        backend="ray",
        direction="minimize",
        compute_objective=lambda metrics: metrics["eval_loss"],
        load_best=True,
    )
    results[key] = {**describe(best), "again": trainer.evaluate()["eval_loss"]}
scheduler = AsyncHyperBandScheduler(
    metric="objective", mode="min", max_t=9, grace_period=1, reduction_factor=2
)
trainer = build("stopped")
space = {"learning_rate": [0.2, 0.001], "seed": {"low": 1, "high": 40}}
best = trainer.hyperparameter_search(
    space,
    n_trials=4,
    backend="ray",
    scheduler=scheduler,
    n_jobs=1,
    hp_name=lambda trial: f"seed-{trial['seed']}",
)
results["stopped"] = describe(best)
ray.shutdown()
print(json.dumps(results))
