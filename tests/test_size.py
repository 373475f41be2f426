"""The source stays within the limits that `make size` prints, and the figures count what they say."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import size
import trainer_parts

ROOT = Path(__file__).parents[1]
LIMITED = [figure for figure, (_, limit) in size.LIMITS.items() if limit is not None]


@pytest.fixture(scope="module")
def figures():
    package = size.read_package(ROOT)
    return size.measure(package, size.count_folders(package)["total"])


@pytest.mark.parametrize("figure", LIMITED)
def test_the_source_stays_within_its_limit(figure, figures):
    _, limit = size.LIMITS[figure]
    assert figures[figure] <= limit, "python3 tools/size.py --names lists what is counted"


def test_every_figure_is_listed_with_its_start(figures):
    assert figures.keys() == size.LIMITS.keys()


def test_the_table_is_printed_without_the_packages_of_the_project():
    done = subprocess.run(
        [sys.executable, "-E", "-S", str(ROOT / "tools/size.py")], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[0].split()[:4] == ["src/footplate", "code", "files", "docstrings"]
    assert any(line.startswith("total") for line in lines)
    assert [line for line in lines if line.startswith("Trainer: methods")]


# ---- lines ----


def test_code_lines_leave_out_docstrings_comments_and_blanks():
    text = (
        '"""One\n\ntwo."""\n\n# why\nx = 1  # why\n\n\ndef f():\n    """Say it."""\n    return """a\n\nb"""\n'
    )
    counts = size.count_lines(text)
    assert counts["code"] == 5  # x, def, and a string of three lines that is returned
    assert counts["docstrings"] == 4
    assert counts["comments"] == 2


@pytest.mark.parametrize(("num_lines", "num_long"), [(60, 0), (61, 1)])
def test_a_long_function_is_counted_without_its_docstring(num_lines, num_long):
    body = "    x = 1\n" * (num_lines - 1)
    text = f'def f():\n    """One.\n\n    Args: x.\n    """\n{body}'
    assert size.count_lines(text)["functions > 60"] == num_long


@pytest.mark.parametrize(("num_lines", "num_long"), [(600, 0), (601, 1)])
def test_a_long_file_is_counted_with_all_its_lines(num_lines, num_long):
    assert size.count_lines("# why\n" * num_lines)["files > 600"] == num_long


def test_folders_add_up_to_the_total():
    package = {
        "footplate/a.py": "x = 1\n",
        "footplate/data/b.py": "y = 2\nz = 3\n",
        "footplate/data/c/d.py": "q = 1\n",
    }
    folders = size.count_folders(package)
    assert {name: (counts["files"], counts["code"]) for name, counts in folders.items()} == {
        "(top)": (1, 1),
        "data/": (2, 3),
        "total": (3, 4),
    }


# ---- the Trainer ----


def package_of(**files):
    """A package whose Trainer is a folder; names stand for the files in it."""
    return {f"footplate/trainer/{name}.py": dedent(text) for name, text in files.items()}


REEXPORT = "from footplate.trainer.training import Trainer\n"


def test_the_trainer_is_found_in_one_file_and_in_a_package():
    one_file = {"footplate/trainer.py": "class Trainer(dict):\n    pass\n"}
    several = package_of(
        __init__=REEXPORT,
        training="""
            from footplate import state
            from footplate.trainer.base import Base
            from footplate.trainer import saving
            class Local(Base, Generic[T]): ...
            class Trainer(Local, saving.Saving): ...
        """,
        saving="from footplate.trainer.base import Base\nclass Saving(Base): ...\n",
        base="from torch import nn\nclass Base(nn.Module): ...\n",
    )
    assert [part.name for part in trainer_parts.find_parts(one_file)] == ["Trainer"]
    found = trainer_parts.find_parts(several)
    assert [part.name for part in found] == ["Trainer", "Local", "Saving", "Base"]  # as Python looks them up
    assert found[-1].file == "footplate/trainer/base.py"


def test_a_base_that_cannot_be_followed_is_not_left_out_in_silence():
    package = package_of(
        __init__="from .base import Base\nclass Trainer(Base): ...\n", base="class Base: ...\n"
    )
    with pytest.raises(ValueError, match="full path"):
        trainer_parts.find_parts(package)


def test_every_way_to_write_an_attribute_is_seen():
    package = package_of(
        __init__="""
            class Trainer:
                def __init__(self):
                    self.plain = self.chained = 1
                    self.typed: int = 2
                    self.one, (self.two, *self.rest) = 1, (2, 3)
                def run(self):
                    self.added += 1
                    with open(self.path) as self.file:
                        for self.item in self.items:
                            del self.plain
                    def inner():
                        self.chained = 2
                    self.owner.field = self.table["key"] = other.value = 3
        """
    )
    writers = trainer_parts.find_writers(trainer_parts.find_parts(package))
    assert {name for name, methods in writers.items() if len(methods) > 1} == {"plain", "chained"}
    assert writers.keys() == {*("plain", "chained", "typed", "one", "two", "rest", "added", "file", "item")}


def test_two_parts_with_a_method_of_one_name_are_two_writers():
    package = package_of(
        __init__="""
            class Base:
                def __init__(self):
                    self.x = 1
            class Trainer(Base):
                def __init__(self):
                    self.x = 2
        """
    )
    assert len(trainer_parts.find_writers(trainer_parts.find_parts(package))["x"]) == 2


BASE = """
    class Base:
        args: dict
        optimizer: Any
        is_ready: bool = False
        def log(self, logs: dict) -> None:
            \"\"\"Log it.\"\"\"
            raise NotImplementedError
        def close(self) -> None:
            \"\"\"Does nothing unless overridden.\"\"\"
"""
TRAINING = """
    from footplate.trainer.base import Base
    class Trainer(Base):
        def log(self, logs: dict) -> None:
            print(logs)
"""


def test_one_file_that_declares_everything_makes_no_forward_declaration():
    package = package_of(__init__=REEXPORT, training=TRAINING, base=BASE)
    assert not trainer_parts.find_declarations(trainer_parts.find_parts(package))


@pytest.mark.parametrize(
    "promise", ["log: Any", "def log(self, logs): ...", "if TYPE_CHECKING:\n    log: Any"]
)
def test_a_second_file_that_declares_makes_forward_declarations(promise):
    saving = "from footplate.trainer.base import Base\nclass Saving(Base):\n    " + promise.replace(
        "\n", "\n    "
    )
    training = TRAINING.replace("(Base)", "(Saving)").replace(
        "trainer.base import Base", "trainer.saving import Saving"
    )
    package = package_of(__init__=REEXPORT, training=training, saving=saving, base=BASE)
    found = trainer_parts.find_declarations(trainer_parts.find_parts(package))
    kind = "stub" if "def" in promise else "Any"
    assert found == {
        "footplate/trainer/saving.py: log": kind,
        "footplate/trainer/base.py: log": "stub",
        "footplate/trainer/base.py: args": "dict",
        "footplate/trainer/base.py: optimizer": "Any",
    }


@pytest.mark.parametrize(
    ("declared", "num_unseen"),
    [("log: Any", 2), ("log: Callable[..., None]", 2), ("def log(self, logs): ...", 0)],
)
def test_a_call_is_unseen_where_its_method_has_a_type_that_says_nothing(declared, num_unseen):
    saving = f"""
        class Saving:
            optimizer: Any
            {declared}
            def save(self):
                self.log(dict())
                call(self.log)
                self.optimizer.step()
    """
    training = """
        from footplate.trainer.saving import Saving
        class Trainer(Saving):
            def log(self, logs):
                self.save()
            def train(self):
                self.log(dict())
    """
    package = package_of(__init__=REEXPORT, training=training, saving=saving)
    parts = trainer_parts.find_parts(package)
    assert trainer_parts.find_unseen_calls(package, parts) == ["Saving.save uses log"] * num_unseen


def test_long_files_beside_the_parts_of_the_trainer_count_too():
    package = package_of(__init__="class Trainer: ...\n", run="x = 1\n" * 601)
    figures = size.measure(package, size.count_folders(package)["total"])
    assert figures["Trainer: files over 600 lines"] == 1
