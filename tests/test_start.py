"""What a process loads before its first update: nothing that the run does not use."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

# parts of ours that a plain run has no use for, as folders or files
UNUSED = (
    "arguments.parser",
    "arguments.seq2seq",
    "callbacks.early_stopping",
    "callbacks.notebook",
    "checkpoint.by_hand",
    "checkpoint.consolidate",
    "checkpoint.shard_saves",
    "checkpoint.sharded",
    "cli",
    "data.collators.language_modeling",
    "data.collators.padding",
    "data.numbered_rows",
    "demo",
    "distributed.accelerated",
    "distributed.fsdp",
    "evaluation.buffers",
    "evaluation.choices",
    "evaluation.class_names",
    "evaluation.classes",
    "evaluation.collector",
    "evaluation.container",
    "evaluation.generation",
    "evaluation.rescue",
    "hub",
    "instruments.module_times",
    "instruments.operator_times",
    "instruments.profile",
    "instruments.summary",
    "integrations.base",
    "integrations.guard",
    "optim.adafactor",
    "planning",
    "public",
    "qa",
    "question_answering",
    "rates",
    "report.serve",
    "samples.callback",
    "samples.formatters",
    "samples.hardest",
    "samples.shown",
    "samples.sieve",
    "search",
    "seq2seq",
    "takeover",
    "tasks",
    "testing",
    "trainer.check_saving",
    "trainer.check_update",
    "trainer.checking",
    "trainer.describing",
    "trainer.hardest",
    "trainer.hardest_at_end",
    "trainer.noting",
    "trainer.planned",
    "trainer.profiling",
    "trainer.rate_finding",
    "trainer.search",
    "trainer.side_by_side",
    "trainer.single_rows",
    "trainer.staging",
    "trainer.trial_runs",
    "training.findings",
    "training.keeping",
    "training.timeline",
    "training.row_losses",
)
TRACKERS = ("wandb", "mlflow", "tensorboard", "comet", "swanlab", "trackio", "clearml", "dvclive")

# of Python and of other packages, beyond what a loop written by hand loads
LOADED_BESIDES = {"faulthandler", "html", "safetensors"}

ROWS = "[{'features': torch.ones(2), 'labels': torch.tensor(1.0)} for _ in range(16)]"
MODEL = """
import torch

class Regression(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, features, labels):
        return {"loss": (self.layer(features).squeeze(-1) - labels).square().mean()}
"""
IMPORT = "from footplate import Trainer, TrainingArguments"
RUN = f"""
{MODEL}
from footplate import Trainer, TrainingArguments
args = TrainingArguments(output_dir=sys.argv[1], max_steps=2, report_to="none")
trainer = Trainer(Regression(), args, train_dataset={ROWS})
trainer.train()
assert trainer.state.global_step == 2
"""
LOOP = f"""
{MODEL}
from torch.utils.data import DataLoader
torch.manual_seed(42)
model = Regression()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 2)
for batch in DataLoader({ROWS}, batch_size=8, shuffle=True):
    model(**batch)["loss"].backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
torch.save(model.state_dict(), sys.argv[1] + ".pt")
"""
TOLD = """
import json, sys
started = []
sys.addaudithook(lambda event, _: started.append(event) if event in {"subprocess.Popen", "os.fork"} else None)
"""
TELL = 'print(json.dumps({"modules": sorted(sys.modules), "started": started}))'


@cache  # a process with torch takes seconds
def run_fresh(program: str, folder: Path) -> dict[str, list[str]]:
    """What a program has loaded at its end, and the processes that it has started."""
    command = [sys.executable, "-c", f"{TOLD}\n{program}\n{TELL}", str(folder / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("start")


def loaded_of(modules: list[str], parts: tuple[str, ...]) -> list[str]:
    """Which of these parts of footplate were loaded."""
    return [part for part in parts if f"footplate.{part}" in modules]


def test_every_unused_part_exists():
    """A part that was renamed would never be found loaded."""
    source = Path(__file__).parents[1] / "src" / "footplate"
    homes = [*UNUSED, *(f"integrations.{name}" for name in TRACKERS)]
    for place in (source / home.replace(".", "/") for home in homes):
        assert place.is_dir() or place.with_suffix(".py").is_file(), place


@pytest.mark.parametrize("program", [IMPORT, RUN], ids=["import", "run"])
def test_a_part_without_use_is_not_loaded(program, folder):
    modules = run_fresh(program, folder)["modules"]
    trackers = tuple(f"integrations.{name}" for name in TRACKERS)
    assert loaded_of(modules, UNUSED + trackers) == []


def test_the_import_does_not_load_what_writes_the_report(folder):
    assert loaded_of(run_fresh(IMPORT, folder)["modules"], ("report", "samples.batch")) == []
    assert loaded_of(run_fresh(RUN, folder)["modules"], ("report.page",)) == ["report.page"]
    assert (folder / "out" / "report.html").is_file()


def test_a_run_loads_of_other_packages_what_a_loop_by_hand_loads(folder):
    by_hand = set(run_fresh(LOOP, folder)["modules"])
    more = {name for name in run_fresh(RUN, folder)["modules"] if name not in by_hand}
    assert {name.split(".")[0] for name in more} - {"footplate"} <= LOADED_BESIDES
    assert not [name for name in more if name.startswith("torch")]


def test_a_run_starts_no_process(folder):
    assert run_fresh(RUN, folder)["started"] == []


def test_the_import_leaves_the_compiler_of_torch_alone(folder):
    """It takes more than a second, and the first optimizer or seed loads it."""
    modules = run_fresh(IMPORT, folder)["modules"]
    assert "torch._dynamo" not in modules
    assert "torch.distributed.checkpoint" not in modules
