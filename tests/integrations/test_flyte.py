from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from footplate.integrations.flyte import FlyteCallback
from integrations import tracked

JOB = """
import json
from pathlib import Path
from flytekit import current_context, task
from footplate.integrations.flyte import FlyteCallback
from footplate.integrations.guard import SetupError
from footplate.integrations.run import Run
from integrations import tracked

@task(enable_deck=True)
def train(folder: str) -> str:
    callback = FlyteCallback()
    trainer = tracked.run_all(Path(folder), [callback])
    assert callback.finish(60), callback.guard.error
    current = current_context()
    saved = Path(current.checkpoint._checkpoint_dest)
    decks = {deck.name: deck.html for deck in current.decks if deck.name == "Log History"}
    files = sorted(str(path.relative_to(saved)) for path in saved.rglob("*") if path.is_file())
    step = json.loads((saved / "trainer_state.json").read_text())["global_step"]
    history = trainer.state.log_history
    return json.dumps({"decks": decks, "files": files, "step": step, "history": history})

try:
    FlyteCallback().open(Run("abc", "a-name", "out"))
except SetupError as error:
    refusal = str(error)
print("RESULT", json.dumps({**json.loads(train(folder="out")), "refusal": refusal}))
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a real task has left: its decks, its checkpoint, and the history of the run inside it."""
    folder = tmp_path_factory.mktemp("flyte")
    (folder / "tmp").mkdir()
    (folder / "job.py").write_text(JOB)  # Flyte reads the source of its tasks
    variables = {"TMPDIR": str(folder / "tmp"), "HOME": str(folder), "FLYTE_SDK_LOGGING_LEVEL": "40"}
    program = f"import os, sys; os.chdir({str(folder)!r}); sys.path.insert(0, '.'); import job"
    line = next(line for line in tracked.run_code(program, variables).splitlines() if "RESULT" in line)
    return json.loads(line.removeprefix("RESULT "))


@pytest.mark.slow
def test_the_log_history_is_a_deck_of_the_task(done: Any) -> None:
    history, html = done["history"], done["decks"]["Log History"]
    assert html.count("<tr>") == 1 + len(history)
    for entry in history:
        assert all(f"<td>{value}</td>" in html for value in entry.values())
    assert {f"<th>{key}</th>" in html for entry in history for key in entry} == {True}


@pytest.mark.slow
def test_the_last_sealed_checkpoint_is_what_a_retry_restores(done: Any) -> None:
    assert done["step"] == tracked.NUM_STEPS
    assert {"model.safetensors", "optimizer.pt", "trainer_state.json"} <= set(done["files"])


@pytest.mark.slow
def test_outside_a_task_it_says_so(done: Any) -> None:
    assert "works only inside a Flyte task" in done["refusal"]


def test_what_is_not_wanted_is_not_done(tmp_path: Path) -> None:
    callback = FlyteCallback(save_log_history=False, sync_checkpoints=False)
    callback.write_checkpoint(str(tmp_path), 2)
    callback.end({}, 2)
    assert callback.cp is None
