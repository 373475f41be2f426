"""What a save costs: CPU time of the whole process with saves and without, the stall, and updates beside it.

`python benchmarks/save_cost.py` runs each side in fresh processes, round by round: the loop of an expert, who
writes in place with safetensors and torch.save, transformers and footplate.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from measure import Result, interleave, run_script
from tables import print_table

SIDES = ("transformers", "expert", "footplate")  # the first is the yardstick
RUN = {"workload": "tower", "batch_size": 1, "learning_rate": 1e-5, "steps": 100, "skip_steps": 0}
SAVE_STEPS, QUICK_STEPS, QUICK_SAVE_STEPS = 20, 8, 4
KEPT = 2  # checkpoints
HEADER = ["", "CPU per save best, s", "median (all)", "to transformers: median (all)"]
HEADER += ["stands still median, s", "updates beside it lose, s", "one update, s", "peak memory, MB"]


def train_as_expert(model: Any, rows: Any, collate: Any, settings: Any) -> None:
    """Fused AdamW, and a save in place: weights as safetensors, the rest with torch.save, two kept."""
    import torch
    from safetensors.torch import save_file
    from torch.optim.lr_scheduler import LambdaLR
    from torch.utils.data import DataLoader

    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )
    schedule = LambdaLR(optimizer, lambda step: max(0.0, 1.0 - step / settings.steps))
    loader = DataLoader(rows, batch_size=settings.batch_size, shuffle=True, collate_fn=collate)
    for step, batch in enumerate(loader, start=1):
        model(**batch)["loss"].backward()
        torch.nn.utils.clip_grad_norm_(parameters, settings.max_grad_norm, foreach=True)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if settings.save_steps and step % settings.save_steps == 0:
            folder = Path(settings.output_dir, f"checkpoint-{step}")
            folder.mkdir()
            save_file(model.state_dict(), folder / "model.safetensors")
            states = {"optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
            torch.save(states | {"rng": torch.get_rng_state()}, folder / "states.pt")
            earlier = folder.with_name(f"checkpoint-{step - KEPT * settings.save_steps}")
            shutil.rmtree(earlier, ignore_errors=True)


def train_with_library(name: str, model: Any, rows: Any, collate: Any, settings: Any) -> None:
    """The Trainer of a library with the Hugging Face API."""
    api = importlib.import_module(name)
    args = api.TrainingArguments(
        output_dir=settings.output_dir,
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        logging_strategy="no",
        save_strategy="steps" if settings.save_steps else "no",
        save_steps=settings.save_steps or 500,
        save_total_limit=KEPT,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    api.Trainer(model=model, args=args, data_collator=collate, train_dataset=rows).train()


def run_side(choices: dict[str, Any]) -> None:
    """One run in this process; prints CPU seconds from the first batch to the end of the last save."""
    import torch

    from workloads import WORKLOADS, Clock, SaveClock, Settings

    side = choices.pop("side")
    settings = Settings(**choices)
    torch.manual_seed(0)
    model, rows = WORKLOADS[settings.workload](settings.num_rows)
    clock = SaveClock(settings) if settings.save_steps else Clock(settings)
    clock.marks.add(0)
    train = train_as_expert if side == "expert" else partial(train_with_library, side)
    train(model, rows, clock, settings)
    cpu = time.process_time() - clock.readings[0][0]
    print(json.dumps(clock.report() | {"run_cpu": [cpu]}))


def measure_save_cost(options: argparse.Namespace) -> dict[str, list[Result]]:
    """Each side with saves and without, in turn; prints the table."""
    steps, save_steps = (QUICK_STEPS, QUICK_SAVE_STEPS) if options.quick else (RUN["steps"], SAVE_STEPS)
    jobs = {
        f"{side}, {way}": partial(
            run_script, "save_cost", RUN | {"side": side, "steps": steps, "save_steps": every}
        )
        for side in SIDES
        for way, every in (("saves", save_steps), ("no saves", 0))
    }
    raw = interleave(jobs, options.rounds)
    errors = [result["error"] for results in raw.values() for result in results if "error" in result]
    if errors:
        print(f"\nThe cost of a save was not measured: {errors[0]}")
        return raw
    costs = {side: find_costs(raw, side, steps // save_steps) for side in SIDES}
    rows = [format_side(side, costs, raw[f"{side}, saves"]) for side in SIDES]
    print_table("What a save of 60 million parameters with AdamW (720 MB) costs", HEADER, rows)
    return raw


def find_costs(raw: dict[str, list[Result]], side: str, num_saves: int) -> list[float]:
    """CPU seconds per save in each round."""
    pairs = zip(raw[f"{side}, saves"], raw[f"{side}, no saves"], strict=True)
    return [(saves["run_cpu"][0] - none["run_cpu"][0]) / num_saves for saves, none in pairs]


def format_side(side: str, costs: dict[str, list[float]], results: list[Result]) -> list[str]:
    """The cells of one side."""
    own, others = costs[side], costs[SIDES[0]]
    ratios = [cost / other for cost, other in zip(own, others, strict=True)]
    stalls = [value for result in results for value in result["standstill"]]
    beside = [
        added - stall
        for result in results
        for added, stall in zip(result["added"], result["standstill"], strict=True)
    ]
    updates = [value for result in results for value in result["update"]]
    return [
        side,
        f"{min(own):.2f}",
        describe(own),
        describe(ratios),
        f"{statistics.median(stalls):.2f}",
        f"{statistics.median(beside):.2f}",
        f"{statistics.median(updates):.3f}",
        f"{max(result['peak_bytes'][0] for result in results) / 1e6:,.0f}",
    ]


def describe(values: list[float]) -> str:
    """The median, and from where to where all values lie."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    """The command line; with JSON in its place, one run."""
    if len(sys.argv) == 2 and sys.argv[1].startswith("{"):
        run_side(json.loads(sys.argv[1]))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="fresh processes per side")
    parser.add_argument("--quick", action="store_true", help="a smoke run: its figures mean nothing")
    measure_save_cost(parser.parse_args())


if __name__ == "__main__":
    main()
