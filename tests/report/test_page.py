"""The page as a file: self-contained, safe, and in its place whole or not at all."""

from __future__ import annotations

import html
import json
import re
from importlib import resources

import pytest

import footplate
from footplate.integrations.run import find_defaults
from footplate.report.files import save_text
from footplate.report.page import Plot, build_page, describe_runs, to_script_json
from footplate.report.source import RunSource


def page_of(run, **options):
    source = RunSource(run.folder)
    source.update()
    return build_page(describe_runs([source.data], **options))


def data_in(text):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, flags=re.DOTALL)
    return json.loads(found.group(1))


def test_text_of_the_data_can_neither_end_a_tag_nor_begin_one(finished):
    text = page_of(finished)
    assert "onerror" in text  # the hostile sample is in it
    assert text.count("<script") == text.count("</script>") == 2
    between = text.split('id="data">')[1].split("</script>")[0]
    assert not set("<>&\u2028\u2029") & set(between)
    assert between.isascii()
    assert data_in(text)["runs"][0]["samples"][0]["rows"][1]["input"].startswith("<script>")


@pytest.mark.parametrize(
    "value", ["</script>", "<!--", "]]>", "&lt;", "\u2028", "\ud800", "\x00", "@@DATA@@"]
)
def test_any_text_comes_back_from_the_script_tag(value):
    text = to_script_json({"text": value})
    assert json.loads(text) == {"text": value}
    assert not set("<>&") & set(text)


def test_a_name_that_is_markup_or_looks_like_a_placeholder_stays_text(written):
    written.begin(name="</title><script>1</script>@@SCRIPT@@\ud800")
    text = page_of(written)
    assert "</title><script>" not in text
    assert text.count("<script") == 2
    assert data_in(text)["runs"][0]["name"].endswith("@@SCRIPT@@\ud800")
    text.encode("utf-8")


def test_nothing_in_the_page_names_a_place_on_the_network(finished):
    text = page_of(finished)
    assert "default-src 'none'" in text
    assert "connect-src 'none'" in text
    assert not re.findall(r"""(?:src|href)\s*=\s*["']?https?:""", text)
    assert "@import" not in text
    assert "unsafe" not in text.split("<title>")[0]  # of the policy


def test_a_served_page_may_ask_where_it_came_from_and_nowhere_else(finished):
    assert "connect-src 'self';" in page_of(finished, live=True)


def test_the_licence_of_the_plotting_library_is_kept(finished):
    assert "https://github.com/leeoniya/uPlot (v1.6.32)" in page_of(finished)
    assets = resources.files(footplate) / "report" / "assets"
    assert "MIT License" in (assets / "uPlot.LICENSE.txt").read_text(encoding="utf-8")


def test_a_page_is_small_however_many_curves_and_points_there_are(written):
    written.begin()
    for step in range(1, 1001):
        written.log(step, **{f"metric_{number}": step / (number + 1) for number in range(150)})
    text = page_of(written)
    assert len(text) < 10_000_000
    assert len(data_in(text)["runs"][0]["curves"]) == 150


def test_a_failed_write_leaves_the_old_page_and_no_draft(tmp_path):
    path = tmp_path / "report.html"
    save_text("old", path)
    with pytest.raises(UnicodeEncodeError):
        save_text("new \ud800", path)
    assert path.read_text() == "old"
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        save_text("new", tmp_path / "folder")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["folder", "report.html"]


def test_defaults_are_those_of_the_arguments():
    defaults = find_defaults(footplate.TrainingArguments)
    assert defaults["learning_rate"] == 5e-5
    assert defaults["lr_scheduler_type"] == "linear"
    assert defaults["output_dir"] is None
    json.dumps(defaults)


def test_a_plot_shows_itself_in_a_frame_and_can_be_saved(tmp_path):
    logs = [{"loss": 1 / step, "epoch": step / 10, "step": step} for step in range(1, 20)]
    plot = Plot([*logs, {"eval_loss": 0.5, "step": 19}], name='my "run"', max_steps=19)
    assert repr(plot) == "Plot(train/loss, eval/loss)"
    frame = plot._repr_html_()
    inside = html.unescape(re.search(r'srcdoc="([^"]*)"', frame).group(1))
    described = data_in(inside)
    assert described["scope"] == "charts"
    assert described["runs"][0]["name"] == 'my "run"'
    plot.save(tmp_path / "plot.html")
    saved = data_in((tmp_path / "plot.html").read_text(encoding="utf-8"))
    assert saved["runs"] == described["runs"]
