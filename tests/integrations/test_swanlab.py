from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from footplate.integrations.guard import SetupError
from footplate.integrations.run import Run
from footplate.integrations.swanlab import SwanLabCallback
from integrations import tracked


def offline(folder: Path) -> dict[str, str]:
    """Variables that keep SwanLab on this disk and below this folder."""
    return {"SWANLAB_MODE": "offline", "SWANLAB_LOG_DIR": str(folder / "swanlog"), "HOME": str(folder)}


def read_legs(folder: Path) -> list[list[Any]]:
    """The records of each leg, by SwanLab's own reader, the oldest leg first."""
    from swanlab.proto.swanlab.record.v1.record_pb2 import Record
    from swanlab.sdk.internal.core_python.store import DataStoreReader

    legs = []
    for path in sorted(folder.rglob("run-*.swanlab"), key=lambda path: path.stat().st_mtime):
        reader = DataStoreReader()
        if not path.stat().st_size:  # the client keeps 8 KiB in memory: a process killed early leaves nothing
            legs.append([])
            continue
        reader.open(path)
        legs.append([Record.FromString(data) for data in reader])
    return legs


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run that was killed and resumed, and the records of both legs."""
    folder = tmp_path_factory.mktemp("swanlab")
    environment = {**offline(folder), "SWANLAB_PROJECT": "my-project", "SWANLAB_LOG_MODEL": "true"}
    module = "footplate.integrations.swanlab"
    outcome = tracked.kill_and_resume(module, "SwanLabCallback", folder / "run", environment)
    return outcome, read_legs(folder), folder


@pytest.mark.slow
def test_killed_and_resumed_it_is_one_run_without_gaps_or_doubles(resumed: Any) -> None:
    outcome, legs, _ = resumed
    assert len(legs) == 2
    curves: dict[str, list[tuple[int, float]]] = {}
    for record in [record for leg in legs for record in leg]:
        if record.WhichOneof("record_type") == "scalar":
            point = (record.scalar.step, record.scalar.value.number)
            curves.setdefault(record.scalar.key, []).append(point)
    tracked.assert_no_gap_and_no_double(curves, outcome)
    starts = [r.start for leg in legs for r in leg if r.WhichOneof("record_type") == "start"]
    assert {(start.id, start.project, start.name) for start in starts} == {
        (outcome.run_id, "my-project", "a-line")
    }


def test_settings_and_model_are_the_config(resumed: Any) -> None:
    _, _, folder = resumed
    for path in folder.rglob("config.yaml"):
        config = yaml.safe_load(path.read_text())
    assert config["learning_rate"]["value"] == 0.05
    assert config["hidden_size"]["value"] == 2
    assert config["model_num_parameters"]["value"] == 2


def test_samples_are_text(resumed: Any) -> None:
    _, legs, folder = resumed
    (media,) = [r.media for leg in legs for r in leg if r.WhichOneof("record_type") == "media"]
    assert (media.key, media.step) == ("eval/samples", tracked.NUM_STEPS)
    texts = [path.read_text() for path in folder.rglob("media/text/*.txt")]
    assert "input: x = 2\ntarget: 7\nprediction: <b>6.9</b>" in texts


def test_without_a_key_it_says_so_and_never_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**offline(tmp_path), "SWANLAB_MODE": "cloud"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SWANLAB_API_KEY", raising=False)
    with pytest.raises(SetupError, match=r"swanlab login.*SWANLAB_MODE=offline"):
        SwanLabCallback().open(Run(run_id="r1", name="n", output_dir=str(tmp_path)))


@pytest.mark.slow
def test_a_run_of_the_users_own_is_used_and_left_open(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
import swanlab
from integrations import tracked
from footplate.integrations.swanlab import SwanLabCallback

class Mine(SwanLabCallback):
    def on_evaluate(self, args, state, control, **kwargs):
        self._swanlab.log({{"mine": state.global_step}}, step=state.global_step)

swanlab.init(project="theirs", id="theirs1")
tracker = Mine()
tracked.run_all(Path({str(tmp_path / "run")!r}), [tracker], save_strategy="no")
assert tracker.finish(30)
swanlab.log({{"after": 1}}, step=99)
swanlab.finish()
"""
    tracked.run_code(code, offline(tmp_path))
    (leg,) = read_legs(tmp_path)
    points = [(r.scalar.key, r.scalar.step) for r in leg if r.WhichOneof("record_type") == "scalar"]
    assert [step for key, step in points if key == "train/loss"] == list(range(1, tracked.NUM_STEPS + 1))
    assert [step for key, step in points if key == "mine"] == [2, 4, 6, 8]
    assert ("after", 99) in points
