"""The folders of runs below a folder, and the room that they take."""

from __future__ import annotations

import os

from footplate.report.folders import find_run_folders, measure_folder


def make_run(folder, name="events.jsonl", content="{}\n"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(content)


def found_in(root, **options):
    found = find_run_folders(root, **options)
    return [path.relative_to(root).as_posix() for path in found.folders], found.is_whole


def test_runs_are_found_at_any_depth(tmp_path):
    for name in ("a", "group/b", "group/deep/er/c"):
        make_run(tmp_path / name)
    make_run(tmp_path / "state", "trainer_state.json")
    make_run(tmp_path / "only_checkpoints" / "checkpoint-7", "trainer_state.json")
    (tmp_path / "no run").mkdir()
    names = ["a", "only_checkpoints", "state", "group/b", "group/deep/er/c"]
    assert found_in(tmp_path) == (names, True)


def test_the_folder_itself_may_be_a_run_with_others_inside(tmp_path):
    make_run(tmp_path)
    make_run(tmp_path / "run-0")
    assert found_in(tmp_path) == ([".", "run-0"], True)


def test_checkpoints_hidden_folders_and_links_are_not_entered(tmp_path):
    make_run(tmp_path / "run")
    make_run(tmp_path / "run" / "checkpoint-3" / "inner")
    make_run(tmp_path / ".trash" / "old")
    (tmp_path / "again").symlink_to(tmp_path / "run")
    (tmp_path / "run" / "up").symlink_to(tmp_path)  # a circle
    assert found_in(tmp_path) == (["run"], True)


def test_looking_ends_after_so_many_entries(tmp_path):
    for number in range(50):
        (tmp_path / "data" / f"{number}").mkdir(parents=True)
    make_run(tmp_path / "run")
    make_run(tmp_path / "very" / "deep" / "run")
    assert found_in(tmp_path, max_entries=20) == ([], False)
    assert found_in(tmp_path, max_entries=1000) == (["run", "very/deep/run"], True)


def test_the_size_counts_checkpoints_too_and_each_file_once(tmp_path):
    make_run(tmp_path / "run" / "checkpoint-1", "weights", "x" * 1000)
    (tmp_path / "run" / "checkpoint-2").mkdir()
    os.link(tmp_path / "run" / "checkpoint-1" / "weights", tmp_path / "run" / "checkpoint-2" / "weights")
    make_run(tmp_path / "run" / "inner", content="y" * 500)
    assert measure_folder(tmp_path / "run") == (1500, True)
    assert measure_folder(tmp_path / "run", [tmp_path / "run" / "inner"]) == (1000, True)
    assert measure_folder(tmp_path / "gone") == (0, True)


def test_counting_ends_after_so_many_files(tmp_path):
    for number in range(30):
        (tmp_path / f"{number}").write_text("123")
    size = measure_folder(tmp_path, max_files=10)
    assert size == (30, False)
