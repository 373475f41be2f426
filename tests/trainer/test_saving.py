"""What subclasses, callbacks and people do with checkpoints, and what loads a run's folder afterwards."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import nn

import footplate
import tiny
from footplate import Trainer, TrainerCallback, get_last_checkpoint
from footplate.checkpoint import verify_checkpoint
from footplate.checkpoint.shards import save_shards


def build(folder: Path, cls: Any = Trainer, library: Any = footplate, **options: Any) -> Any:
    settings = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "learning_rate": 0.05}
    settings |= options.pop("settings", {})
    arguments = tiny.arguments(folder, library, **settings)
    model = options.pop("model", None) or tiny.Regression()
    return cls(model, arguments, train_dataset=tiny.regression_data(), **options)


def weights_of(trainer: Any) -> dict[str, float]:
    return {name: value.item() for name, value in trainer.model.state_dict().items()}


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# ---- overrides ----


@pytest.mark.parametrize(
    "joint",
    [
        *("_save_optimizer_and_scheduler", "_save_scaler", "_save_rng_state", "_rotate_checkpoints"),
        *("_load_optimizer_and_scheduler", "_load_scaler", "_load_rng_state", "_load_from_checkpoint"),
        *("_load_best_model", "_load_callback_state"),
    ],
)
def test_an_override_of_what_saves_or_loads_is_reached(tmp_path, joint):
    calls = []

    def spy(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return getattr(Trainer, joint)(self, *args, **kwargs)

    spied = type("Spied", (Trainer,), {joint: spy})
    settings = {"eval_strategy": "steps", "eval_steps": 2, "load_best_model_at_end": True}
    options = {"eval_dataset": tiny.regression_data(4), "settings": settings}
    straight = build(tmp_path / "straight", **options)
    straight.train()
    build(tmp_path / "run", spied, **options).train()
    resumed = build(tmp_path / "run", spied, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    assert calls
    assert weights_of(resumed) == weights_of(straight)
    assert verify_checkpoint(tmp_path / "run" / "checkpoint-4").is_intact


@pytest.mark.parametrize("joint", ["_save_optimizer_and_scheduler", "_save_rng_state", "_save", "save_model"])
def test_a_method_that_was_replaced_on_the_instance_is_reached(tmp_path, joint):
    trainer, calls = build(tmp_path), []
    original = getattr(trainer, joint)

    def replaced(output_dir: str, *args: Any, **kwargs: Any) -> None:
        calls.append(os.path.basename(output_dir))
        original(output_dir, *args, **kwargs)

    setattr(trainer, joint, replaced)
    trainer.train()
    assert calls == ["checkpoint-2", "checkpoint-4"]


def test_what_an_override_saves_is_in_the_checkpoint_and_what_it_loads_comes_from_there(tmp_path):
    class Own(Trainer):
        loaded: Any = None

        def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
            super()._save_optimizer_and_scheduler(output_dir)
            Path(output_dir, "mine.txt").write_text(str(self.state.global_step))

        def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
            super()._load_optimizer_and_scheduler(checkpoint)
            self.loaded = Path(str(checkpoint), "mine.txt").read_text()

    build(tmp_path, Own).train()
    manifest = json.loads((tmp_path / "checkpoint-2" / "manifest.json").read_text())
    assert "mine.txt" in manifest["files"]
    resumed = build(tmp_path, Own)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert resumed.loaded == "2"


@pytest.mark.parametrize("joint", ["save_model", "_save"])
@pytest.mark.parametrize("library", [footplate, transformers], ids=["ours", "theirs"])
def test_what_saves_the_model_gets_a_folder_that_is_named_as_the_checkpoint(tmp_path, joint, library):
    names = []

    def spy(self: Any, output_dir: str | None = None, *args: Any, **kwargs: Any) -> Any:
        names.append(os.path.basename(output_dir or ""))
        return getattr(library.Trainer, joint)(self, output_dir, *args, **kwargs)

    build(tmp_path, type("Spied", (library.Trainer,), {joint: spy}), library).train()
    assert names == ["checkpoint-2", "checkpoint-4"]
    assert sorted(path.name for path in tmp_path.iterdir() if "checkpoint" in path.name) == names


@pytest.mark.parametrize("library", [footplate, transformers], ids=["ours", "theirs"])
@pytest.mark.parametrize("before", [None, footplate, transformers], ids=["new", "after ours", "after theirs"])
def test_files_that_an_override_writes_first_stay(tmp_path, library, before):
    class Early(library.Trainer):  # type: ignore[name-defined, misc]
        def _save_checkpoint(self, model: Any, trial: Any) -> None:
            folder = Path(self._get_output_dir(trial=trial), f"checkpoint-{self.state.global_step}")
            (folder / "mine").mkdir(parents=True, exist_ok=True)
            (folder / "mine" / "notes.txt").write_text(str(self.state.global_step))
            super()._save_checkpoint(model, trial)

    if before is not None:  # an earlier run in the same folder has come to the same steps
        build(tmp_path, before.Trainer, before).train()
    build(tmp_path, Early, library, settings={"save_total_limit": 1}).train()
    assert (tmp_path / "checkpoint-4" / "mine" / "notes.txt").read_text() == "4"
    assert before is not None or [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-4"]
    assert library is not footplate or verify_checkpoint(tmp_path / "checkpoint-4").is_intact


class Stamp(TrainerCallback):
    """Adds a file to each checkpoint after it was sealed."""

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
        folder.joinpath("stamp.txt").write_text(str(os.urandom(4)))


def test_a_file_that_a_callback_writes_anew_does_not_make_a_checkpoint_look_damaged(tmp_path):
    build(tmp_path, callbacks=[Stamp()]).train()
    first = (tmp_path / "checkpoint-4" / "stamp.txt").read_text()
    build(tmp_path, callbacks=[Stamp()]).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert (tmp_path / "checkpoint-4" / "stamp.txt").read_text() != first
    assert verify_checkpoint(tmp_path / "checkpoint-4").is_intact


def test_a_new_run_does_not_take_over_what_was_added_to_those_of_an_earlier_one(tmp_path):
    build(tmp_path, callbacks=[Stamp()]).train()
    os.utime(tmp_path / "checkpoint-4" / "stamp.txt", (1000, 1000))
    build(tmp_path).train()
    assert not (tmp_path / "checkpoint-4" / "stamp.txt").exists()


def test_a_step_that_is_saved_again_keeps_what_was_put_beside_it(tmp_path):
    build(tmp_path).train()
    (tmp_path / "checkpoint-4" / "notes.txt").write_text("mine")
    build(tmp_path).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert (tmp_path / "checkpoint-4" / "notes.txt").read_text() == "mine"
    assert verify_checkpoint(tmp_path / "checkpoint-4").is_intact


def test_a_folder_of_the_user_that_was_there_before_is_still_set_aside(tmp_path):
    (tmp_path / "checkpoint-4").mkdir()
    (tmp_path / "checkpoint-4" / "notes.txt").write_text("mine")
    build(tmp_path).train()
    assert (tmp_path / "checkpoint-4.kept-1" / "notes.txt").read_text() == "mine"
    assert not (tmp_path / "checkpoint-4" / "notes.txt").exists()


# ---- checkpoints that people changed ----


def split_weights(checkpoint: Path) -> None:
    save_shards(load_file(checkpoint / "model.safetensors"), checkpoint / "model.safetensors", 4)


def forget_optimizer(checkpoint: Path) -> None:
    (checkpoint / "optimizer.pt").unlink()


def edit_state(checkpoint: Path) -> None:
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    (checkpoint / "trainer_state.json").write_text(json.dumps({**state, "best_metric": 0.25}))


@pytest.mark.parametrize("change", [split_weights, forget_optimizer, edit_state])
def test_a_checkpoint_changed_on_purpose_is_used_if_it_is_named(tmp_path, caplog, change):
    straight = build(tmp_path, settings={"max_steps": 6, "optim": "sgd"})
    straight.train()
    change(tmp_path / "checkpoint-4")
    resumed = build(tmp_path, settings={"max_steps": 6, "optim": "sgd"})
    caplog.clear()
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert resumed.state.global_step == 6
    assert weights_of(resumed) == weights_of(straight)
    assert len([text for text in warnings_of(caplog) if "is not as it was sealed" in text]) == 1


@pytest.mark.parametrize("wanted", [True, "auto"])
def test_without_a_name_the_newest_intact_one_is_meant(tmp_path, wanted, caplog):
    build(tmp_path).train()
    forget_optimizer(tmp_path / "checkpoint-4")
    assert Path(str(get_last_checkpoint(str(tmp_path)))).name == "checkpoint-2"
    resumed = build(tmp_path)
    resumed.train(resume_from_checkpoint=wanted)
    assert resumed._current_run.plan.first_step == 2


class Trim(TrainerCallback):
    """Keeps some files of each checkpoint, as people do to save room."""

    def __init__(self, *kept: str) -> None:
        self.kept = kept

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
        for path in folder.iterdir():
            if path.name not in self.kept:
                path.unlink()


@pytest.mark.parametrize(
    "kept",
    [
        ("model.safetensors",),
        ("model.safetensors", "manifest.json"),
        ("model.safetensors", "trainer_state.json"),
        ("model.safetensors", "trainer_state.json", "manifest.json"),
    ],
)
def test_trimmed_checkpoints_count_for_the_limit_and_serve_as_the_best(tmp_path, kept, caplog):
    settings = {"max_steps": 8, "save_steps": 1, "save_total_limit": 2, "eval_strategy": "steps"}
    settings |= {"eval_steps": 1, "load_best_model_at_end": True, "greater_is_better": False}
    trainer = build(
        tmp_path, eval_dataset=tiny.regression_data(4), callbacks=[Trim(*kept)], settings=settings
    )
    trainer.args.metric_for_best_model = "score"
    trainer.compute_metrics = lambda prediction: {"score": abs(trainer.state.global_step - 3)}
    trainer.train()
    assert {path.name for path in tmp_path.glob("checkpoint-*")} == {"checkpoint-3", "checkpoint-8"}
    stored = load_file(tmp_path / "checkpoint-3" / "model.safetensors")
    assert weights_of(trainer) == {name: value.item() for name, value in stored.items()}
    said = [text for text in warnings_of(caplog) if "is not as it was sealed" in text]
    assert len(said) == ("manifest.json" in kept)


def test_a_best_one_that_is_gone_is_said_loudly_and_the_last_model_stays(tmp_path, caplog):
    class Remove(TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 2:
                Path(args.output_dir, "checkpoint-2", "model.safetensors").unlink()

    settings = {"eval_strategy": "steps", "eval_steps": 2, "load_best_model_at_end": True}
    trainer = build(tmp_path, eval_dataset=tiny.regression_data(4), callbacks=[Remove()], settings=settings)
    trainer.args.metric_for_best_model, trainer.args.greater_is_better = "score", True
    trainer.compute_metrics = lambda prediction: {"score": -trainer.state.global_step}
    assert trainer.train().global_step == 4
    assert "THE BEST MODEL, OF UPDATE 2, IS NOT LOADED" in caplog.text
    stored = load_file(tmp_path / "checkpoint-4" / "model.safetensors")
    assert weights_of(trainer) == {name: value.item() for name, value in stored.items()}


# ---- the module's own way to load ----


class Growing(tiny.Regression):
    """Has a buffer that grows while it trains, and makes room for it when it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(0))

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        if self.training:
            self.seen = torch.cat([self.seen, x[:1].detach()])
        return super().forward(x, labels)

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        self.seen = torch.zeros_like(state_dict["seen"])
        return nn.Module.load_state_dict(self, state_dict, strict, assign)


def test_a_module_that_resizes_its_buffers_when_it_loads_is_resumed(tmp_path):
    straight = build(tmp_path / "straight", model=Growing())
    straight.train()
    build(tmp_path / "run", model=Growing(), settings={"max_steps": 2}).train()
    resumed = build(tmp_path / "run", model=Growing())
    resumed.train(resume_from_checkpoint=True)
    assert torch.equal(resumed.model.seen, straight.model.seen)
    assert len(resumed.model.seen) == 4


def test_sizes_that_do_not_fit_are_still_explained(tmp_path):
    class Fixed(tiny.Regression):
        def __init__(self, size: int) -> None:
            super().__init__()
            self.register_buffer("table", torch.zeros(size))

    build(tmp_path, model=Fixed(3)).train()
    with pytest.raises(ValueError, match=r"table is \(3,\) in the file and \(5,\) in the model"):
        build(tmp_path, model=Fixed(5)).train(resume_from_checkpoint=True)


# ---- a state that could not be read again ----


def test_a_state_that_no_resume_could_read_is_loud_at_once_and_at_the_end(tmp_path, caplog):
    class Stranger:
        pass

    class Odd(torch.optim.lr_scheduler.LambdaLR):
        def state_dict(self) -> dict[str, Any]:
            return {**super().state_dict(), "odd": Stranger()}

    Stranger.__module__, Stranger.__qualname__ = __name__, "Stranger"
    globals()["Stranger"] = Stranger
    model = tiny.Regression()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    trainer = build(tmp_path, model=model, optimizers=(optimizer, Odd(optimizer, lambda step: 1.0)))
    assert trainer.train().global_step == 4
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "checkpoint-2 failed: scheduler.pt was written and cannot be read again" in errors[0]
    assert "Stranger" in errors[0]
    assert "Return tensors, arrays of numbers" in errors[0]  # what to change
    assert "THE LAST CHECKPOINT, OF UPDATE 4, WAS NOT SAVED: scheduler.pt was written" in errors[-1]
    assert "This run has written no checkpoint at all" in errors[-1]
    assert not any("tried again" in text for text in warnings_of(caplog))  # time does not mend this
    assert not list(tmp_path.glob("checkpoint-*"))


# ---- what loads the folder afterwards ----


def make_tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(45))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


def test_what_is_ours_in_the_folder_does_not_disturb_what_loads_it(tmp_path):
    arguments = tiny.arguments(
        tmp_path,
        max_steps=4,
        save_strategy="steps",
        save_steps=2,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=2,
        show_samples=2,
        report_to="tensorboard",
        report=True,
    )
    tokenizer = make_tokenizer()
    data = tiny.classification_data(16)
    trainer = Trainer(
        tiny.bert_classifier(),
        arguments,
        train_dataset=data,
        eval_dataset=data[:8],
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()
    trainer.save_state()
    ours = {"events.jsonl", "report.html", "samples.jsonl"}
    assert ours <= set(os.listdir(tmp_path))
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    assert config.model_type == "bert"
    loaded = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name]), name
    assert transformers.AutoModel.from_pretrained(tmp_path).config.hidden_size == 16
    again = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert again("w1 w2")["input_ids"] == tokenizer("w1 w2")["input_ids"]
    assert transformers.trainer_utils.get_last_checkpoint(str(tmp_path)).endswith("checkpoint-4")


@pytest.mark.parametrize(("umask", "rights"), [(0o022, 0o644), (0o077, 0o600)])
@pytest.mark.parametrize("make", [tiny.Regression, tiny.bert_classifier])
def test_a_saved_model_has_the_rights_that_the_umask_leaves(tmp_path, make, umask, rights):
    trainer = build(tmp_path, model=make())
    before = os.umask(umask)
    try:
        trainer.save_model(str(tmp_path / "model"))
    finally:
        os.umask(before)
    assert os.stat(tmp_path / "model" / "model.safetensors").st_mode & 0o777 == rights
