"""Classification of pictures: folders, tables, broken pictures, repeated runs."""

import json

import pytest

from footplate.tasks import TaskError
from footplate.tasks.common.answering import load_answerer
from tasks import pictures, small


def train(tmp_path, *words, out="out"):
    return small.run(
        "image_classification",
        *("--model_type", "vit", "--config_overrides", pictures.VIT, "--output_dir", tmp_path / out),
        *("--do_train", "--do_eval", "--learning_rate", "3e-3", "--per_device_train_batch_size", 8),
        *("--num_train_epochs", 5, "--report_to", "none", *words),
    )


def folders(tmp_path):
    train_dir = pictures.write_folders(tmp_path / "train", 16, seed=0)
    validation_dir = pictures.write_folders(tmp_path / "validation", 8, seed=1)
    return ["--train_dir", train_dir, "--validation_dir", validation_dir]


def test_colours_are_learned_from_folders(tmp_path):
    test_dir = pictures.write_folders(tmp_path / "test", 4, seed=2)
    results = train(tmp_path, *folders(tmp_path), "--do_predict", "--test_dir", test_dir)
    assert results["eval_accuracy"] > 0.9  # chance: 0.33
    assert results["train_samples"] == 48
    assert results["eval_samples"] == 24
    saved = json.loads((tmp_path / "out" / "config.json").read_text())
    assert saved["id2label"] == {"0": "blue", "1": "green", "2": "red"}
    assert json.loads((tmp_path / "out" / "preprocessor_config.json").read_text())["size"]["height"] == 16
    lines = (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()
    answers = [json.loads(line) for line in lines]
    right = [answer["label"] in answer["image"] for answer in answers]
    assert len(answers) == 12
    assert sum(right) > 10
    assert all(0.3 < answer["score"] <= 1 for answer in answers)


def test_pictures_to_evaluate_on_are_split_off_even_if_nothing_is_evaluated(tmp_path):
    train_dir = pictures.write_folders(tmp_path / "train", 20, seed=0)
    results = train(tmp_path, "--train_dir", train_dir, "--num_train_epochs", 1, "--do_eval", "False")
    assert results["train_samples"] == 51  # 15 % of 60 are kept back
    words = ["--train_val_split", 0, "--do_eval", "False", "--overwrite_output_dir", "--max_steps", 1]
    assert train(tmp_path, "--train_dir", train_dir, *words)["train_samples"] == 60
    with pytest.raises(TaskError, match=r"train_val_split 1\.5"):
        train(tmp_path, "--train_dir", train_dir, "--train_val_split", 1.5)


def test_a_run_repeats_its_random_crops(tmp_path):
    words = [*folders(tmp_path), "--num_train_epochs", 1, "--logging_steps", 1]
    train(tmp_path, *words, out="first")
    train(tmp_path, *words, out="second")
    train(tmp_path, *words, "--seed", 7, out="third")
    first, second, third = (small.losses_in(tmp_path / name) for name in ("first", "second", "third"))
    assert first == second
    assert first != third


def test_a_resumed_run_continues_the_same_random_crops(tmp_path):
    words = [*folders(tmp_path), "--max_steps", 6, "--save_steps", 3, "--logging_steps", 1]
    train(tmp_path, *words, out="whole")
    (tmp_path / "resumed").mkdir()
    (tmp_path / "whole" / "checkpoint-3").rename(tmp_path / "resumed" / "checkpoint-3")
    train(tmp_path, *words, out="resumed")
    losses = [
        [entry["loss"] for entry in small.losses_in(tmp_path / name) if "loss" in entry]
        for name in ("whole", "resumed")
    ]
    assert len(losses[0]) == 6
    assert losses[0] == losses[1]


def test_tables_name_pictures_relative_to_themselves(tmp_path):
    pictures.write_folders(tmp_path / "pictures", 16, seed=0)
    rows = [
        {"image": f"pictures/{name}/{number:03}.png", "label": name}
        for number in range(16)
        for name in pictures.COLOURS
    ]
    train_file = small.write_csv(tmp_path / "train.csv", rows)
    validation_file = small.write_csv(tmp_path / "validation.csv", rows[:9])
    results = train(tmp_path, "--train_file", train_file, "--validation_file", validation_file)
    assert results["eval_accuracy"] > 0.8


def test_a_broken_picture_is_named_before_training_and_may_be_skipped(tmp_path):
    words = folders(tmp_path)
    (tmp_path / "train" / "red" / "003.png").write_bytes(b"\x89PNG but no more")
    with pytest.raises(TaskError, match=r"train: 1 of 48 rows .* row 36: .*red.003\.png cannot be opened"):
        train(tmp_path, *words)
    results = train(tmp_path, *words, "--skip_bad_rows", "--num_train_epochs", 1)
    assert results["train_samples"] == 47


def test_a_mended_picture_of_a_table_is_looked_at_again(tmp_path):
    pictures.write_folders(tmp_path / "pictures", 4, seed=0)
    rows = [{"image": f"pictures/{name}/000.png", "label": name} for name in pictures.COLOURS]
    table = small.write_csv(tmp_path / "train.csv", rows)
    words = ["--train_file", table, "--validation_file", table, "--num_train_epochs", 1]
    good = (tmp_path / "pictures" / "red" / "000.png").read_bytes()
    (tmp_path / "pictures" / "red" / "000.png").write_bytes(good[:40])
    with pytest.raises(TaskError, match=r"row 1: .*cannot be opened"):
        train(tmp_path, *words)
    (tmp_path / "pictures" / "red" / "000.png").write_bytes(good)
    assert train(tmp_path, *words)["train_samples"] == 3


def test_a_class_unseen_in_training_is_named(tmp_path):
    train_dir = pictures.write_folders(tmp_path / "train", 4, seed=0, names=("green", "red"))
    validation_dir = pictures.write_folders(tmp_path / "validation", 4, seed=0, names=("blue", "red"))
    with pytest.raises(TaskError, match=r"validation: 4 of 8 rows .* the label 'blue'.*green, red"):
        train(tmp_path, "--train_dir", train_dir, "--validation_dir", validation_dir)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--train_dir", "nowhere"], "train_dir nowhere: there is no such folder"),
        (["--train_dir", "empty"], "train_dir empty: there are no pictures"),
        (["--train_file", "train.csv"], r"train\.csv has no column of pictures. It has \['text'\]"),
        (["--train_dir", "flat"], "flat has no column 'label'"),
    ],
)
def test_data_that_is_missing_is_named(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "flat").mkdir()
    for number in range(8):
        pictures.draw("square", "red").save(tmp_path / "flat" / f"{number}.png")
    small.write_csv(tmp_path / "train.csv", [{"text": "a"}])
    with pytest.raises(TaskError, match=message):
        train(tmp_path, *words)


def test_a_finished_run_answers_for_a_folder_a_picture_and_a_typed_path(tmp_path):
    train(tmp_path, *folders(tmp_path))
    answerer = load_answerer(str(tmp_path / "out"), str(tmp_path / "answers"))
    (tmp_path / "new" / "unknown").mkdir(parents=True)
    path = tmp_path / "new" / "unknown" / "a.png"
    pictures.draw("circle", "green").save(path)
    for source in (tmp_path / "new", path):
        answers = answerer.answer(answerer.read(str(source)))
        assert [answer["label"] for answer in answers] == ["green"]
    assert answerer.answer(answerer.read_line(str(path)))[0]["label"] == "green"
    with pytest.raises(TaskError, match="there is no file nowhere"):
        answerer.read_line("nowhere.png")
