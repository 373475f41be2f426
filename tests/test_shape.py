"""Four tests guard the shape: import direction, joints, signatures, resume. A fifth weighs the import."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file

import footplate
import tiny
from footplate import Trainer, set_seed

SOURCE = Path(footplate.__file__).parent
FILES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))

# ---- imports point down only ----

GROUND = {
    "state",
    "outputs",
    "comm",
    "wrappers",
    "rng",
    "batch",
    "words",
    "directions",
    "resumed",
    "voice",
    "disk",
    "meeting",
    "no_graph",
    "homes",
}
LEAVES = {
    "arguments",
    "callbacks",
    "samples",
    "qa",
    "data",
    "optim",
    "training",
    "evaluation",
    "checkpoint",
    "distributed",
    "instruments",
    "planning",
    "integrations",
    "rates",
    "report",
    "hub",
}
BESIDE = {  # what a leaf, or one file of it, may import besides the ground and its own folder
    "distributed": {"checkpoint"},
    "integrations": {"callbacks.base"},
    "samples": {"callbacks.base"},
    "callbacks/__init__.py": {"samples.callback"},  # `from footplate.callbacks import SampleCallback`
    "report": {"integrations.journal", "callbacks.base"},
    "planning": {"checkpoint.planned"},
    "hub": {"integrations.guard", "integrations.isolation"},
    "search": {"report"},
    "instruments/summary.py": {"optim.names", "planning.optimizer"},
    "rates": {"report"},
}
TRAINER = {"trainer", "seq2seq", "question_answering"}
ABOVE = {"tasks", "cli", "replaying", "demo", "testing", "takeover", "__main__"}
CORE = {"torch", "numpy", "tqdm", "safetensors", *sys.stdlib_module_names}


class Import(NamedTuple):
    module: str  # dotted, as written
    at_module_level: bool
    for_types_only: bool


def imports_of(file: str) -> list[Import]:
    """Every import of a file, wherever it stands."""
    return list(walk_imports(ast.parse((SOURCE / file).read_text(encoding="utf-8")), True, False))


def walk_imports(node: ast.AST, at_module_level: bool, for_types_only: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        inside = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        is_types_block = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, at_module_level, for_types_only)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are written in full"
            for name in names_of(child):
                yield Import(name, at_module_level, for_types_only)
        else:
            yield from walk_imports(child, at_module_level and not inside, for_types_only or is_types_block)


def names_of(statement: ast.ImportFrom) -> list[str]:
    """`from footplate.data import build` names the module footplate.data.build, if there is one."""
    module = str(statement.module)
    names = []
    for alias in statement.names:
        path = SOURCE.parent / f"{module}.{alias.name}".replace(".", "/")
        is_module = path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()
        names.append(f"{module}.{alias.name}" if is_module else module)
    return names


def home_of(dotted: str) -> str:
    """The top-level file or folder that a dotted path belongs to; empty for the package itself."""
    return dotted.split(".")[1] if "." in dotted else ""


def own_imports(file: str) -> list[Import]:
    return [entry for entry in imports_of(file) if entry.module.split(".")[0] == "footplate"]


@pytest.mark.parametrize("file", FILES)
def test_every_file_has_its_place_in_the_layout(file):
    place = Path(file).parts[0].removesuffix(".py")
    assert place in GROUND | LEAVES | TRAINER | ABOVE | {"search", "__init__", "public"}


@pytest.mark.parametrize("file", [file for file in FILES if file.removesuffix(".py") in GROUND])
def test_the_ground_imports_only_the_ground(file):
    own = [entry for entry in own_imports(file) if not entry.for_types_only]
    assert {home_of(entry.module) for entry in own} <= GROUND


@pytest.mark.parametrize("file", [file for file in FILES if file.split("/")[0] in LEAVES | {"search"}])
def test_a_leaf_imports_the_ground_and_its_own_folder(file):
    folder = file.split("/")[0]
    allowed = GROUND | {folder}
    beside = BESIDE.get(folder, set()) | BESIDE.get(file, set())
    wrong = [
        entry.module
        for entry in own_imports(file)
        if home_of(entry.module) not in allowed
        and not any(entry.module.startswith(f"footplate.{other}") for other in beside)
        and not (entry.for_types_only and home_of(entry.module) == "arguments")
    ]
    assert not wrong


@pytest.mark.parametrize("file", FILES)
def test_only_what_is_above_sees_the_trainer(file):
    place = Path(file).parts[0].removesuffix(".py")
    if place in TRAINER | ABOVE | {"search", "__init__", "public"}:
        return
    assert not [entry for entry in own_imports(file) if home_of(entry.module) in {"", *TRAINER, *ABOVE}]


def uses_of_the_trainer(source: str) -> list[str]:
    """The lines that name a Trainer: as a parameter, a variable, an attribute, or a key to look up."""
    named = {ast.arg: "arg", ast.keyword: "arg", ast.Name: "id", ast.Attribute: "attr", ast.Constant: "value"}
    return [
        source.splitlines()[node.lineno - 1]
        for node in ast.walk(ast.parse(source))
        if type(node) in named and getattr(node, named[type(node)]) == "trainer"
    ]


@pytest.mark.parametrize("file", [file for file in FILES if file.split("/")[0] in LEAVES])
def test_a_leaf_uses_no_trainer(file):
    assert not uses_of_the_trainer((SOURCE / file).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "line",
    [
        'owner = kwargs["trainer"]',
        'owner = shared.get("trainer")',
        'owner = getattr(handler, "trainer")',
        'owner = self.weak_extras.pop("trainer")()',
        "owner = self.trainer",
        "model = trainer.model",
        "def on_log(self, args, state, control, trainer=None, **kwargs): ...",
        "def on_log(*, trainer): ...",
        "def on_log(trainer, /): ...",
        "build(trainer=owner)",
    ],
)
def test_a_use_of_the_trainer_is_found_under_any_name(line):
    """The test above would hold of anything if this did not."""
    assert uses_of_the_trainer(line) == [line]


@pytest.mark.parametrize("file", FILES)
def test_at_module_level_only_the_core_is_imported(file):
    packages = {
        entry.module.split(".")[0]
        for entry in imports_of(file)
        if entry.at_module_level and not entry.for_types_only
    }
    assert packages <= CORE | {"footplate"}


def test_the_walk_sees_imports_wherever_they_stand():
    """The tests above would hold of anything if this did not."""
    source = (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from footplate.arguments import TrainingArguments\n"
        "try:\n    import transformers\nexcept ImportError:\n    pass\n"
        "def late():\n    from footplate import trainer\n"
    )
    found = {entry.module: entry for entry in walk_imports(ast.parse(source), True, False)}
    assert found["footplate.arguments"].for_types_only
    assert found["transformers"].at_module_level
    assert not found["footplate.trainer"].at_module_level


# ---- what importing costs ----

HEAVY = [
    "transformers",
    "datasets",
    "peft",
    "wandb",
    "mlflow",
    "tensorboard",
    "IPython",
    "psutil",
    "pandas",
    "accelerate",
    "tokenizers",
]

MEASURE = """
import json, sys, time
import torch
before, start = set(sys.modules), time.process_time()
import footplate.public
seconds = time.process_time() - start
new = sorted({name.split(".")[0] for name in set(sys.modules) - before})
print(json.dumps({"seconds": seconds, "new": new}))
"""


def measure_import() -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def test_importing_footplate_is_quick_and_imports_nothing_heavy():
    measured = [measure_import()]
    while measured[-1]["seconds"] >= 1.0 and len(measured) < 3:  # another process may have had the machine
        measured.append(measure_import())
    assert not set(HEAVY) & set(measured[0]["new"])
    assert min(entry["seconds"] for entry in measured) < 1.0


PLAIN_RUN = """
import sys
sys.path.insert(0, {tests!r})
import tiny, footplate
often = dict(eval_strategy="steps", eval_steps=1, save_strategy="steps", save_steps=1)
arguments = tiny.arguments({folder!r}, max_steps=2, **often)
data = tiny.regression_data(16)
trainer = footplate.Trainer(tiny.Regression(), arguments, train_dataset=data, eval_dataset=data)
trainer.train()
trainer.predict(data)
print(",".join(name for name in {heavy!r} if name in sys.modules))
"""


IMPORT_EACH = """
import os, sys
import torch
for name in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        __import__(name)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(name)
"""


@pytest.mark.slow
def test_every_module_can_be_the_first_to_be_imported():
    modules = ["footplate." + file.removesuffix(".py").removesuffix("/__init__") for file in FILES]
    names = [name.replace("/", ".") for name in modules if not name.endswith(("__init__", "__main__"))]
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EACH, *names], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [], done.stderr


def test_the_package_knows_its_names_before_it_loads_them():
    program = "import sys, footplate; print('torch' in sys.modules, dir(footplate).count('Trainer'))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "1"]
    from footplate import public

    assert footplate.__all__ == public.__all__
    assert all(getattr(footplate, name) is getattr(public, name) for name in public.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Trainr'"):
        _ = footplate.Trainr


def test_a_plain_run_imports_nothing_heavy_either(tmp_path):
    program = PLAIN_RUN.format(tests=str(Path(__file__).parent), folder=str(tmp_path), heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""


# ---- every joint is reached when overridden ----

JOINTS = [
    "train",
    "_inner_training_loop",
    "training_step",
    "compute_loss",
    "get_batch_samples",
    "_prepare_inputs",
    "prediction_step",
    "evaluation_loop",
    "evaluate",
    "predict",
    "get_train_dataloader",
    "get_eval_dataloader",
    "get_test_dataloader",
    "_get_train_sampler",
    "_get_eval_sampler",
    "_set_signature_columns_if_needed",
    "create_optimizer",
    "create_scheduler",
    "log",
    "save_model",
    "_save",
    "_save_checkpoint",
    "_maybe_log_save_evaluate",
]

REACHED_TOO = [
    "create_accelerator_and_postprocess",
    "call_model_init",
    "_move_model_to_device",
    "_wrap_model",
    "_get_collator_with_removed_columns",
    "num_examples",
    "_prepare_input",
    "create_optimizer_and_scheduler",
    "get_optimizer_cls_and_kwargs",
    "get_decay_parameter_names",
    "_get_learning_rate",
    "compute_loss_context_manager",
    "autocast_smart_context_manager",
    "store_flos",
    "floating_point_ops",
    "_rotate_checkpoints",
    "_load_from_checkpoint",
    "_load_best_model",
    "_load_optimizer_and_scheduler",
    "_load_rng_state",
    "_issue_warnings_after_load",
    "_get_output_dir",
    "is_local_process_zero",
    "is_world_process_zero",
]


class Spied(Trainer):
    """A Trainer one of whose methods records each call, then does what it always did."""

    calls: list[tuple[tuple[Any, ...], dict[str, Any]]]


def spy_on(method: str) -> type[Spied]:
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    is_static = isinstance(inspect.getattr_static(Trainer, method), staticmethod)
    original = getattr(Trainer, method)

    def record(*args: Any, **kwargs: Any) -> Any:
        calls.append((args, kwargs))
        return original(*args, **kwargs)

    replacement: Any = staticmethod(record) if is_static else record
    return type("Spied", (Spied,), {method: replacement, "calls": calls})


def tiny_run(trainer_class: type[Trainer], folder: Path) -> Trainer:
    """Two updates that evaluate and save, a third resumed; then an evaluation, a prediction, a save."""
    data = tiny.regression_data(16)
    settings = {"save_strategy": "steps", "save_steps": 1, "eval_strategy": "steps", "eval_steps": 1}
    for max_steps in (2, 3):
        arguments = tiny.arguments(
            folder,
            max_steps=max_steps,
            logging_steps=1,
            load_best_model_at_end=True,
            save_total_limit=2,
            **settings,
        )
        trainer = trainer_class(
            model_init=tiny.Regression, args=arguments, train_dataset=data, eval_dataset=data
        )
        trainer.train(resume_from_checkpoint=True if max_steps == 3 else None)
    trainer.evaluate()
    trainer.predict(data)
    trainer.save_model(str(folder / "final"))
    return trainer


@pytest.mark.parametrize("joint", JOINTS + REACHED_TOO)
def test_override_is_reached(joint, tmp_path):
    spied = spy_on(joint)
    tiny_run(spied, tmp_path)
    assert spied.calls


@pytest.mark.parametrize("joint", JOINTS)
def test_an_override_that_passes_everything_on_changes_nothing(joint, tmp_path):
    histories = []
    for kind in (Trainer, spy_on(joint)):
        trainer = tiny_run(kind, tmp_path / kind.__name__)
        histories.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    assert histories[0] == histories[1]
    assert len(histories[0]) == 3


@pytest.mark.parametrize("joint", ["training_step", "compute_loss", "_prepare_inputs", "prediction_step"])
def test_a_joint_assigned_to_the_object_is_reached(joint, tmp_path):
    data = tiny.regression_data(16)
    trainer = Trainer(
        tiny.Regression(), tiny.arguments(tmp_path, max_steps=2), train_dataset=data, eval_dataset=data
    )
    calls = []
    original = getattr(trainer, joint)

    def record(*args: Any, **kwargs: Any) -> Any:
        calls.append(joint)
        return original(*args, **kwargs)

    setattr(trainer, joint, record)
    trainer.train()
    trainer.evaluate()
    assert calls


# ---- signatures are those of the API ----


def methods_of_the_api() -> list[str]:
    import transformers

    own = vars(transformers.Trainer)
    public = [
        name for name in own if callable(getattr(transformers.Trainer, name)) and not name.startswith("_")
    ]
    known = ["__init__", *(name for name in JOINTS + REACHED_TOO if name.startswith("_") and name in own)]
    return sorted({name for name in [*public, *known] if hasattr(Trainer, name)})


def parameters_of(function: Any) -> list[inspect.Parameter]:
    return [p for p in inspect.signature(function).parameters.values() if p.name != "self"]


@pytest.mark.parametrize("method", methods_of_the_api())
def test_a_method_takes_what_the_api_says_in_the_same_order(method):
    import transformers

    theirs = parameters_of(getattr(transformers.Trainer, method))
    ours = parameters_of(getattr(Trainer, method))
    if [p.kind for p in ours] == [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]:
        return  # takes anything, to say that it is not in this version
    named = [p for p in theirs if p.kind is not inspect.Parameter.VAR_KEYWORD]
    assert [p.name for p in ours[: len(named)]] == [p.name for p in named]
    for our, their in zip(ours, named, strict=False):
        assert our.kind == their.kind
        if their.default is not inspect.Parameter.empty:  # what may be left out there may be left out here
            assert our.default is not inspect.Parameter.empty
    for extra in ours[len(named) :]:
        has_default = extra.default is not inspect.Parameter.empty
        assert has_default or extra.kind in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def test_many_methods_are_compared():
    """A list that shrinks in silence would compare nothing."""
    assert len(methods_of_the_api()) >= 50


def test_static_methods_of_the_api_are_static_here():
    import transformers

    for method in methods_of_the_api():
        theirs = inspect.getattr_static(transformers.Trainer, method)
        ours = inspect.getattr_static(Trainer, method)
        assert isinstance(theirs, staticmethod) == isinstance(ours, staticmethod), method


# ---- resume is equal to the last bit ----


def resumable(folder: Path, max_steps: int, resume: str | None = None) -> Path:
    """A run with dropout, accumulation, a ragged last window, warm-up, evaluations and sparse logs."""
    arguments = tiny.arguments(
        folder,
        max_steps=9,
        learning_rate=2e-3,
        warmup_steps=3,
        lr_scheduler_type="cosine",
        weight_decay=0.1,
        per_device_train_batch_size=3,
        gradient_accumulation_steps=4,
        logging_steps=2,
        eval_strategy="steps",
        eval_steps=4,
        save_strategy="steps",
        save_steps=1,
        include_num_input_tokens_seen=True,
    )
    data = tiny.causal_data(41)
    trainer = Trainer(
        tiny.gpt(), arguments, train_dataset=data, eval_dataset=data[:7], callbacks=[StopAt(max_steps)]
    )
    trainer.train(resume_from_checkpoint=resume)
    return folder / f"checkpoint-{max_steps}"


class StopAt(footplate.TrainerCallback):
    wants_step_data = False

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step >= self.step:
            control.should_training_stop = True


def assert_equal_to_the_last_bit(first: Any, second: Any, path: str = "") -> None:
    assert type(first) is type(second), path
    if isinstance(first, dict):
        assert first.keys() == second.keys(), path
        for key in first:
            assert_equal_to_the_last_bit(first[key], second[key], f"{path}/{key}")
    elif isinstance(first, (list, tuple)):
        assert len(first) == len(second), path
        for index, (one, other) in enumerate(zip(first, second, strict=True)):
            assert_equal_to_the_last_bit(one, other, f"{path}/{index}")
    elif isinstance(first, torch.Tensor):
        assert torch.equal(first, second), path
    else:
        assert first == second, path


def without_clocks(state: dict[str, Any]) -> dict[str, Any]:
    clocks = ("_runtime", "_per_second", "_preparation_time")
    history = [
        {key: value for key, value in entry.items() if not key.endswith(clocks)}
        for entry in state["log_history"]
    ]
    callbacks = {name: held for name, held in state["stateful_callbacks"].items() if name != "RunIdentity"}
    return {**state, "log_history": history, "stateful_callbacks": callbacks}


@pytest.mark.parametrize("stop", [1, 4, 7], ids=["at once", "at the end of an epoch", "in the second epoch"])
def test_resume_is_equal_to_the_last_bit(tmp_path, stop):
    straight = resumable(tmp_path / "straight", 9)
    stopped = resumable(tmp_path / "stopped", stop)
    set_seed(12345)  # what this process drew before must not matter
    resumed = resumable(tmp_path / "stopped", 9, resume=str(stopped))

    def plain(name: str, folder: Path) -> Any:
        return torch.load(folder / name, weights_only=True)

    weights = [load_file(folder / "model.safetensors") for folder in (straight, resumed)]
    assert_equal_to_the_last_bit(*weights)
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        assert_equal_to_the_last_bit(plain(name, straight), plain(name, resumed), name)
    states = [json.loads((folder / "trainer_state.json").read_text()) for folder in (straight, resumed)]
    assert_equal_to_the_last_bit(*map(without_clocks, states))
