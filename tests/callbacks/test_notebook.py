"""Tests of the notebook table: a real kernel runs a notebook, and what it displayed is looked at."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from types import SimpleNamespace

import nbclient
import nbformat
import pytest

from footplate.callbacks.notebook import (
    Bar,
    LiveOutput,
    NotebookProgressCallback,
    Table,
    format_seconds,
    name_metrics,
)
from footplate.state import TrainerControl, TrainerState

SETUP = """
from types import SimpleNamespace
from footplate.callbacks import CallbackHandler, DefaultFlowCallback, default_progress_callback
from footplate.state import TrainerControl, TrainerState

handler = CallbackHandler([DefaultFlowCallback, default_progress_callback(False)], None, None, None, None)
handler.eval_dataloader = range(3)
print(handler.callback_list)

def run(strategy, max_steps=4, start=0, metrics=None):
    args = SimpleNamespace(logging_first_step=False, logging_strategy="steps", eval_strategy=strategy,
                           save_strategy="no", eval_delay=0)
    state = TrainerState(0, start, max_steps, num_train_epochs=2, logging_steps=1, eval_steps=2)
    control = handler.on_train_begin(args, state, TrainerControl())
    while not control.should_training_stop:
        control = handler.on_step_begin(args, state, control)
        state.global_step += 1
        state.epoch = 2 * state.global_step / max_steps
        control = handler.on_step_end(args, state, control)
        if state.epoch == int(state.epoch):
            control = handler.on_epoch_end(args, state, control)
        if control.should_log:
            logs = {"loss": 1 / state.global_step}
            state.log_history.append(logs)
            control = handler.on_log(args, state, control, logs)
        if control.should_evaluate:
            for part in metrics(state):
                for _ in range(3):
                    control = handler.on_prediction_step(args, state, control)
                before = dict(part)
                control = handler.on_evaluate(args, state, control, part)
                assert part == before
    handler.on_train_end(args, state, control)
"""

CELLS = {
    "steps": """
run("steps", metrics=lambda state: [{"eval_loss": 0.5 / state.global_step, "eval_exact_match": 0.25,
    "eval_note": "<script>alert('x')</script>", "eval_runtime": 1, "eval_steps_per_second": 2, "epoch": 1}])
""",
    "epochs": """run("epoch", metrics=lambda state: [{"eval_loss": 0.125, "eval_<b>f1</b>": 3}])""",
    "no evaluation": """run("no", max_steps=3, start=1)""",
    "two sets": """
a, b = {"eval_a_loss": 0.1}, {"eval_b_loss": 0.2}
run("steps", metrics=lambda state: [a, b, a | b])
""",
    "evaluation alone": """
args, state = SimpleNamespace(eval_strategy="no"), TrainerState()
for loss in (0.75, 0.5):
    for _ in range(3):
        handler.on_prediction_step(args, state, TrainerControl())
    handler.on_evaluate(args, state, TrainerControl(), {"eval_loss": loss})
for _ in range(3):
    handler.on_prediction_step(args, state, TrainerControl())
handler.on_predict(args, state, TrainerControl(), {"test_loss": 1.0})
None
""",
    "another process": """
state = TrainerState(is_world_process_zero=False, max_steps=2)
for event in ("on_train_begin", "on_step_end", "on_prediction_step", "on_train_end"):
    getattr(handler, event)(SimpleNamespace(**vars(args), logging_first_step=False, logging_strategy="no",
                            save_strategy="no"), state, TrainerControl())
handler.on_evaluate(args, state, TrainerControl(), {"eval_loss": 1.0})
None
""",
}


class TableReader(HTMLParser):
    """The cells of each row, the text outside, and every tag that came by."""

    def __init__(self, html):
        super().__init__()
        self.rows, self.tags, self.bars, self.text = [], set(), [], ""
        self.in_cell = False
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag == "progress":
            self.bars.append(dict(attrs))
        self.in_cell = tag in ("td", "th")
        if self.in_cell:
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        self.in_cell = False

    def handle_data(self, data):
        if self.in_cell:
            self.rows[-1][-1] += data
        else:
            self.text += data


class RecordingClient(nbclient.NotebookClient):
    """Keeps every display message, those that a later one replaces included."""

    def process_message(self, msg, cell, cell_index):
        if msg["msg_type"] in ("display_data", "update_display_data"):
            html = msg["content"]["data"]["text/html"]
            self.shown.setdefault(cell_index, []).append((msg["msg_type"], html))
        return super().process_message(msg, cell, cell_index)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """What each cell left in the notebook, and all that it displayed on the way."""
    folder = tmp_path_factory.mktemp("notebook")
    cells = [nbformat.v4.new_code_cell(source) for source in (SETUP, *CELLS.values())]
    document = nbformat.v4.new_notebook(cells=cells)
    client = RecordingClient(document, kernel_name="python3", timeout=120)
    client.shown = {}
    patch = pytest.MonkeyPatch()
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR"):
        patch.setenv(name, str(folder / name))
    try:
        client.execute()
    finally:
        patch.undo()
    left = {
        name: [output["data"]["text/html"] for output in cell["outputs"]]
        for name, cell in zip(CELLS, document.cells[1:], strict=True)
    }
    shown = {name: client.shown.get(index, []) for index, name in enumerate(CELLS, start=1)}
    return {"left": left, "shown": shown, "setup": document.cells[0]["outputs"][0]["text"]}


def only_table(notebook, name):
    (html,) = notebook["left"][name]
    return TableReader(html)


def test_the_kernel_gets_the_notebook_callback_by_default(notebook):
    assert notebook["setup"] == "DefaultFlowCallback\nNotebookProgressCallback\n"


def test_a_run_with_evaluations_leaves_its_table_and_a_full_bar(notebook):
    page = only_table(notebook, "steps")
    assert page.rows[0] == ["Step", "Training Loss", "Validation Loss", "Exact Match", "Note"]
    assert [row[:4] for row in page.rows[1:]] == [
        ["2", "0.500000", "0.250000", "0.250000"],
        ["4", "0.250000", "0.125000", "0.250000"],
    ]
    (bar,) = page.bars
    assert (bar["value"], bar["max"]) == ("4", "4")
    assert re.fullmatch(r"\s*\[4/4 \d\d:\d\d, Epoch 2/2\]\s*", page.text)


def test_text_from_data_is_shown_as_text(notebook):
    page = only_table(notebook, "steps")
    assert page.rows[1][4] == "<script>alert('x')</script>"
    assert page.tags == {"div", "progress", "table", "thead", "tbody", "tr", "th", "td"}
    assert only_table(notebook, "epochs").rows[0][-1] == "<b>f1</b>"


def test_the_table_grows_in_one_place_while_the_run_lasts(notebook):
    kinds, pages = zip(*notebook["shown"]["steps"], strict=True)
    assert kinds[0] == "display_data"
    assert set(kinds[1:]) == {"update_display_data"}
    counts = [len(TableReader(html).rows) for html in pages]
    assert counts == sorted(counts)
    assert {1, 2, 3} == set(counts)
    assert any(len(TableReader(html).bars) == 2 for html in pages)  # an evaluation under way
    assert TableReader(pages[0]).bars[0]["value"] == "0"


def test_evaluation_by_epoch_counts_epochs(notebook):
    page = only_table(notebook, "epochs")
    assert page.rows[0][:3] == ["Epoch", "Training Loss", "Validation Loss"]
    assert [row[0] for row in page.rows[1:]] == ["1", "2"]
    assert page.rows[1][3] == "3"


def test_without_evaluation_every_log_is_a_row(notebook):
    page = only_table(notebook, "no evaluation")
    assert page.rows == [["Step", "Training Loss"], ["2", "0.500000"], ["3", "0.333333"]]
    assert (
        TableReader(notebook["shown"]["no evaluation"][0][1]).bars[0]["value"] == "1"
    )  # it was resumed there


def test_several_eval_sets_share_a_row(notebook):
    page = only_table(notebook, "two sets")
    assert page.rows[0] == ["Step", "Training Loss", "Validation Loss", "A Loss", "B Loss"]
    assert page.rows[1:] == [
        ["2", "0.500000", "No log", "0.100000", "0.200000"],
        ["4", "0.250000", "No log", "0.100000", "0.200000"],
    ]


def test_evaluations_by_themselves_each_leave_a_table_and_a_prediction_leaves_none(notebook):
    first, second, third = map(TableReader, notebook["left"]["evaluation alone"])
    assert first.rows == [["Step", "Training Loss", "Validation Loss"], ["0", "No log", "0.750000"]]
    assert second.rows[1] == ["0", "No log", "0.500000"]
    assert (first.bars, third.bars, third.rows) == ([], [], [])


def test_a_process_that_does_not_lead_shows_nothing(notebook):
    assert notebook["left"]["another process"] == []


@pytest.mark.parametrize(("seconds", "num_drawings"), [(0.0, 13), (3600.0, 6)])
def test_bars_are_drawn_no_more_often_than_asked(monkeypatch, seconds, num_drawings):
    pages, args, control = [], SimpleNamespace(eval_strategy="steps"), TrainerControl()
    monkeypatch.setattr(LiveOutput, "show", lambda self, html: pages.append(TableReader(html)))
    monkeypatch.setattr(Bar, "seconds_between_drawings", seconds)
    callback = NotebookProgressCallback()
    callback.on_train_begin(args, TrainerState(max_steps=5), control)
    for step in range(1, 6):
        state = TrainerState(global_step=step, max_steps=5)
        callback.on_step_end(args, state, control)
    for event in ("on_evaluate", "on_predict"):
        for _ in range(2):
            callback.on_prediction_step(args, state, control, eval_dataloader=range(4))
        getattr(callback, event)(args, state, control, metrics={"eval_loss": 0.5})
    callback.on_train_end(args, state, control)
    # a start, a table, a bar gone and an end are shown at once, and so is the first batch of an evaluation
    assert len(pages) == num_drawings
    assert (pages[-1].bars[0]["value"], pages[-1].rows[1]) == ("5", ["5", "No log", "0.500000"])


def test_a_row_is_completed_until_its_first_cell_changes():
    table = Table(["Step"])
    table.write({"Step": 1, "A": 0.5})
    table.write({"Step": 1, "B": 2})
    table.write({"Step": 2, "A": float("nan")})
    assert TableReader(table.render()).rows == [
        ["Step", "A", "B"],
        ["1", "0.500000", "2"],
        ["2", "nan", "No log"],
    ]


def test_speed_and_bookkeeping_are_not_metrics():
    metrics = {"eval_loss": 1, "eval_steps_per_second": 2, "epoch": 3, "total_flos": 4, "f1": 5, "test_f1": 6}
    assert name_metrics(metrics) == {"Validation Loss": 1, "F1": 6}


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "00:00"), (61.9, "01:01"), (3600, "1:00:00"), (90061, "25:01:01")]
)
def test_seconds_are_written_as_on_a_clock(seconds, text):
    assert format_seconds(seconds) == text


def test_a_missing_ipython_names_the_extra():
    code = """
import sys
sys.modules["IPython"] = sys.modules["IPython.display"] = None
from footplate.callbacks.notebook import LiveOutput
try:
    LiveOutput().show("")
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert "pip install footplate[notebook]" in done.stdout
