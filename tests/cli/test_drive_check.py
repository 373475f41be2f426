"""`footplate drive --check`: what a script uses of the Trainer, without running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from footplate.cli.main import main


@pytest.fixture
def check(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Writes a script, checks it, and returns the exit code and the lines."""

    def run(text: str, **beside: str) -> tuple[int, list[str]]:
        for name, other in beside.items():
            (tmp_path / f"{name}.py").write_text(other, encoding="utf-8")
        path = tmp_path / "train.py"
        path.write_text("raise SystemExit('it was run')\n" + text, encoding="utf-8")
        code = main(["drive", "--check", str(path), "--lr", "1"])
        return code, capsys.readouterr().out.splitlines()

    return run


def test_names_are_found_by_whatever_path(check):
    code, lines = check(
        "import transformers as tf\n"
        "import transformers.trainer_utils\n"
        "from transformers import Trainer as T, AutoModel\n"
        "from transformers.training_args import TrainingArguments\n"
        "tf.TrainerCallback, transformers.trainer_utils.set_seed, tf.BertModel\n"
    )
    assert code == 0
    assert lines[1] == "  footplate's: Trainer, TrainingArguments, TrainerCallback, set_seed"
    assert len(lines) == 2


def test_names_that_stay_the_originals_are_named(check):
    code, lines = check(
        "from transformers import set_seed\n"
        "from transformers.trainer_utils import validate_quantization_for_training\n"
    )
    assert code == 1
    assert "  the original's, as footplate has none: validate_quantization_for_training" in lines


def test_overrides_that_are_reached_are_told_from_those_that_are_not(check):
    code, lines = check(
        "from transformers import Trainer\n"
        "class Base(Trainer):\n"
        "    def compute_loss(self, model, inputs): return self.helper(self.args)\n"
        "    def helper(self, args): return self._push_from_checkpoint\n"
        "class Mine(Base):\n"
        "    def ipex_optimize_model(self): ...\n"
        "    def _load_from_checkpoint(self, path): ...\n"
    )
    assert code == 0
    reached = "Base.compute_loss, Mine._load_from_checkpoint, Mine.ipex_optimize_model"
    assert lines[2].endswith(reached)


def test_what_footplate_does_not_have_is_found_by_reading_the_original(check, monkeypatch):
    from footplate.cli import drive_check

    monkeypatch.setattr(drive_check, "members", lambda kind: {"train"})
    code, lines = check(
        "from transformers import Trainer\n"
        "trainer = Trainer(model=None)\n"
        "trainer.train()\n"
        "trainer.is_in_train, trainer.my_own\n"
    )
    assert code == 1
    assert "  not in footplate: Trainer.is_in_train" in lines


def test_keywords_that_nobody_takes_are_named_and_old_names_are_known(check):
    code, lines = check(
        "from transformers import Trainer, TrainingArguments\n"
        "args = TrainingArguments('out', evaluation_strategy='no', no_cuda=True, learning_rte=1)\n"
        "Trainer(model=None, args=args, tokenizer=None, trainset=[])\n"
    )
    assert code == 1
    assert "  not in footplate: TrainingArguments(learning_rte=...), Trainer(trainset=...)" in lines


def test_modules_beside_the_script_are_read_too(check):
    code, lines = check(
        "import mine\n", mine="from other import x\n", other="from transformers import Trainer\n"
    )
    assert code == 0
    assert lines[1] == "  footplate's: Trainer"


def test_a_script_that_uses_none_of_it_is_told_so(check):
    code, lines = check("from trl import SFTTrainer\n")
    assert code == 0
    assert "imports nothing of the Trainer of transformers itself; libraries that it imports may" in lines[0]


def test_a_module_is_found_by_its_name(capsys):
    assert main(["drive", "--check", "-m", "json.tool"]) == 0
    assert "tool.py imports nothing" in capsys.readouterr().out
    assert main(["drive", "--check", "-m", "no_such_module"]) == 2
