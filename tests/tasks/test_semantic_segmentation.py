"""Classes of pixels: folders of masks, what is measured, what is wrong with masks."""

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from transformers import SegformerConfig

from footplate.tasks import TaskError
from footplate.tasks.common.answering import load_answerer
from footplate.tasks.common.masks import measure_masks, random_part
from footplate.training.seed import set_seed
from tasks import pictures, pretrained, small

PETS = pretrained.DATA / "semantic_segmentation" / "oxford_pets"


def segformer(folder):
    """The configuration of a random model that learns in seconds."""
    sizes = {"hidden_sizes": [8, 16, 24, 32], "depths": [1] * 4, "num_attention_heads": [1, 1, 2, 2]}
    config = SegformerConfig(**sizes, sr_ratios=[1] * 4, decoder_hidden_size=32, drop_path_rate=0.0)
    config.save_pretrained(folder)
    return folder


def write_masks(folder, count, seed, size=32):
    """Pictures of a red square or a blue circle, and masks: 0 ground, 1 square, 2 circle."""
    chance = random.Random(seed)
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True)
    for number in range(count):
        kind = number % 2
        box, shape = pictures.random_box(chance, size, (14, 22)), ("square", "circle")[kind]
        pictures.draw(shape, ("red", "blue")[kind], size, box).save(folder / "images" / f"{number:03}.jpg")
        mask = Image.new("L", (size, size), 0)
        pictures.draw_on(mask, shape, kind + 1, box)
        mask.save(folder / "masks" / f"{number:03}.png")
    return folder


@pytest.fixture
def folders(tmp_path):
    write_masks(tmp_path / "data" / "train", 32, 0)
    write_masks(tmp_path / "data" / "validation", 8, 1)
    return ["--train_dir", tmp_path / "data" / "train", "--validation_dir", tmp_path / "data" / "validation"]


def train(tmp_path, *words):
    return small.run(
        "semantic_segmentation",
        *("--config_name", segformer(tmp_path / "model"), "--image_size", 32),
        *("--output_dir", tmp_path / "out", "--do_train", "--do_eval", "--learning_rate", "1e-2"),
        *("--per_device_train_batch_size", 8, "--num_train_epochs", 12, "--report_to", "none", *words),
    )


def test_shapes_are_found_and_masks_are_written(tmp_path, folders):
    names = {"0": "ground", "1": "square", "2": "circle"}
    (tmp_path / "data" / "id2label.json").write_text(json.dumps(names))
    test_dir = write_masks(tmp_path / "test", 4, 2, size=40)
    results = train(tmp_path, *folders, "--do_predict", "--test_dir", test_dir)
    assert results["eval_mean_iou"] > 0.7  # chance, all ground: below 0.25
    for name in ("mean_accuracy", "overall_accuracy", "accuracy_square", "iou_circle", "iou_ground"):
        assert 0.5 < results[f"eval_{name}"] <= 1
    assert json.loads((tmp_path / "out" / "config.json").read_text())["id2label"] == names
    lines = (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()
    answers = [json.loads(line) for line in lines]
    right = np.asarray(Image.open(test_dir / "masks" / "000.png"))
    found = np.asarray(Image.open(answers[0]["mask"]))
    assert found.shape == right.shape == (40, 40)
    assert (found == right).mean() > 0.8
    assert sum(answers[0]["shares"].values()) == pytest.approx(1, abs=1e-3)


def test_overlap_and_accuracy_are_those_counted_by_hand():
    right = np.array([[[0, 0, 1], [1, 1, 255]]])
    found = np.array([[[0, 1, 1], [1, 0, 0]]])
    scores = measure_masks(found, right, ["a", "b", "c"], None)
    assert scores["iou_a"] == pytest.approx(1 / 3)  # one pixel of both, three of either
    assert scores["iou_b"] == pytest.approx(2 / 4)
    assert scores["accuracy_a"] == pytest.approx(1 / 2)
    assert scores["accuracy_b"] == pytest.approx(2 / 3)
    assert math.isnan(scores["iou_c"])
    assert scores["mean_iou"] == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert scores["overall_accuracy"] == pytest.approx(3 / 5)
    ignoring = measure_masks(found, right, ["a", "b", "c"], 0)
    assert ignoring["accuracy_b"] == pytest.approx(2 / 3)
    assert math.isnan(ignoring["accuracy_a"])


def test_a_picture_and_its_mask_are_cut_and_mirrored_together():
    set_seed(0)
    values = np.arange(48, dtype=np.uint8).reshape(6, 8)
    image, mask = Image.fromarray(np.stack([values] * 3, axis=2)), Image.fromarray(values.astype(np.int32))
    seen = set()
    for _ in range(20):
        part, part_mask = random_part(image, mask, (4, 4))
        assert (np.asarray(part)[..., 0] == np.asarray(part_mask)).all()
        seen.add(np.asarray(part_mask).tobytes())
    assert len(seen) > 8
    part, part_mask = random_part(image, mask, (10, 10))
    assert (np.asarray(part_mask) == 255).sum() == 100 - 48  # what is added has no class


def test_class_zero_may_mean_none(tmp_path, folders):
    results = train(tmp_path, *folders, "--reduce_labels", "--num_train_epochs", 1)
    assert {name for name in results if name.startswith("eval_iou")} == {"eval_iou_1", "eval_iou_2"}


def test_masks_that_do_not_fit_are_named_and_may_be_skipped(tmp_path, folders):
    masks = tmp_path / "data" / "train" / "masks"
    (masks / "001.png").unlink()
    (masks / "002.png").write_bytes(b"no picture")
    Image.new("L", (9, 9)).save(masks / "003.png")
    Image.new("RGB", (32, 32)).save(masks / "004.png")
    Image.new("L", (32, 32), 9).save(tmp_path / "data" / "validation" / "masks" / "000.png")
    with pytest.raises(TaskError) as caught:
        train(tmp_path, *folders)
    text = str(caught.value)
    assert "train: 4 of 32 rows" in text
    assert "row 2: the mask is missing" in text
    assert "002.png cannot be read as a mask" in text
    assert "003.jpg has 32 x 32 pixels, but its mask 9 x 9" in text
    assert "a mask has one channel" in text
    results = train(tmp_path, *folders, "--skip_bad_rows", "--num_train_epochs", 1)
    assert (results["train_samples"], results["eval_samples"]) == (28, 7)


def test_a_table_names_pictures_and_masks(tmp_path, folders):
    rows = [
        {"image": f"data/train/images/{number:03}.jpg", "mask": f"data/train/masks/{number:03}.png"}
        for number in range(16)
    ]
    table = small.write_csv(tmp_path / "train.csv", rows)
    results = train(tmp_path, "--train_file", table, "--train_val_split", 0.25, "--num_train_epochs", 1)
    assert (results["train_samples"], results["eval_samples"]) == (12, 4)


def test_a_folder_without_masks_is_refused(tmp_path):
    pictures.write_folders(tmp_path / "train", 2, seed=0)
    with pytest.raises(TaskError, match="there must be a folder images and a folder masks in it"):
        train(tmp_path, "--train_dir", tmp_path / "train")


def test_a_finished_run_paints_the_mask_of_a_new_picture(tmp_path, folders):
    train(tmp_path, *folders)
    answerer = load_answerer(str(tmp_path / "out"), str(tmp_path / "answers"))
    pictures.draw("square", "red", 48, (6, 6, 40, 40)).save(tmp_path / "new.png")
    answer = answerer.answer(answerer.read_line(str(tmp_path / "new.png")))[0]
    classes = np.asarray(Image.open(answer["mask"]))
    assert classes.shape == (48, 48)
    assert classes[23, 23] == 1
    assert (tmp_path / "answers") in Path(answer["mask"]).parents


@pytest.mark.slow
@pytest.mark.skipif(not PETS.is_dir(), reason="the photographs are not here")
def test_pets_are_found_in_photographs(tmp_path):
    words = ["--train_dir", PETS / "train", "--validation_dir", PETS / "validation", "--image_size", 96]
    results = train(tmp_path, *words, "--num_train_epochs", 4, "--learning_rate", "3e-3")
    assert results["train_samples"] == 259
    assert results["eval_mean_iou"] > 0.33  # all background: 0.19; seen: 0.37
