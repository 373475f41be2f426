"""The recipe of the tutorial works as a file of the user's own, and as an entry point."""

import json
import random
import re
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from footplate.cli.main import main
from footplate.tasks import TaskError
from footplate.tasks.common import catalog
from tasks import small

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
ENDS = ["ight", "own"]


@pytest.fixture
def recipe(tmp_path):
    """The file of the tutorial."""
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    path = tmp_path / "rhymes.py"
    path.write_text(code, encoding="utf-8")
    return path


def pairs(count, seed):
    chance = random.Random(seed)
    rows = []
    for index in range(count):
        first = chance.choice(ENDS)
        second = first if index % 2 else chance.choice([end for end in ENDS if end != first])
        letters = [chance.choice("bcdflmnprst") for _ in range(2)]
        rows.append({"first": letters[0] + first, "second": letters[1] + second, "rhymes": index % 2})
    return rows


def test_the_recipe_of_the_tutorial_is_run_and_answers(recipe, tmp_path, capsys):
    train_file = small.write_csv(tmp_path / "pairs.csv", pairs(200, 0))
    validation_file = small.write_csv(tmp_path / "more.csv", pairs(60, 1))
    words = [
        "--train_file",
        train_file,
        "--validation_file",
        validation_file,
        "--output_dir",
        tmp_path / "out",
    ]
    words += [
        "--do_train",
        "--do_eval",
        "--num_train_epochs",
        6,
        "--learning_rate",
        "3e-3",
        "--report_to",
        "none",
    ]
    assert main(["run", str(recipe), *map(str, words), *small.from_scratch("bert")]) == 0
    assert small.results_of(tmp_path / "out")["eval_accuracy"] > 0.9  # chance: 0.5
    capsys.readouterr()
    new = small.write_csv(tmp_path / "new.csv", pairs(10, 2))
    assert main(["predict", str(tmp_path / "out"), "--input", str(new)]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    right = sum(
        answer["rhymes"] == bool(row["rhymes"]) for answer, row in zip(answers, pairs(10, 2), strict=True)
    )
    assert right >= 9


def test_recipes_of_other_packages_are_found_by_their_entry_points(recipe, monkeypatch):
    kind = catalog.find_recipe(str(recipe))
    entry = EntryPoint("rhymes", "rhymes:Rhymes", catalog.GROUP)
    monkeypatch.setattr(catalog, "entry_points", lambda group: [entry])
    assert catalog.find_recipe("rhymes") is kind
    assert "rhymes" in [name for name, *_ in catalog.list_tasks()]


def test_a_file_without_a_recipe_is_refused(tmp_path):
    (tmp_path / "empty.py").write_text("x = 1\n")
    with pytest.raises(TaskError, match=r"must define one recipe.*Found: none"):
        catalog.find_recipe(str(tmp_path / "empty.py"))
    with pytest.raises(TaskError, match="There is no file"):
        catalog.find_recipe(str(tmp_path / "nowhere.py"))


def test_a_recipe_is_read_in_a_few_minutes():
    home = Path(catalog.__file__).parents[1]
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in home.glob("*.py")}
    assert {name: length for name, length in lengths.items() if length > 150} == {}
    assert len(lengths) > 25
