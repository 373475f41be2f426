"""Boxes of objects: files in the form of COCO, what is learned, what is wrong with boxes."""

import json
import random

import datasets
import numpy as np
import pytest
from datasets import Dataset
from PIL import Image
from transformers import YolosConfig, YolosImageProcessorPil

from footplate import PredictionOutput
from footplate.tasks import TaskError
from footplate.tasks.common.coco import change_boxes, clip_boxes
from footplate.tasks.common.parsing import parse_flags
from footplate.tasks.object_detection import ObjectDetection
from footplate.training.seed import set_seed
from tasks import pictures, small

SIZE = 32


def write_coco(folder, count, seed):
    """Pictures with a red square or a blue circle in one of four corners, and their annotations."""
    chance = random.Random(seed)
    folder.mkdir()
    images, annotations = [], []
    for number in range(count):
        kind = number % 2
        left, top = (chance.choice([1, 15]) + chance.randint(0, 1) for _ in range(2))
        image = pictures.draw(
            ("square", "circle")[kind], ("red", "blue")[kind], SIZE, (left, top, left + 14, top + 14)
        )
        image.save(folder / f"{number}.png")
        images.append({"id": number, "file_name": f"{number}.png", "width": SIZE, "height": SIZE})
        corners = [left, top, left + 14, top, left + 14, top + 14, left, top + 14]
        shape = {"bbox": [left, top, 15, 15], "area": 225, "iscrowd": 0, "segmentation": [corners]}
        annotations.append({"id": number, "image_id": number, "category_id": 10 + kind, **shape})
    categories = [{"id": 10, "name": "square"}, {"id": 11, "name": "circle"}]
    write(folder, {"images": images, "annotations": annotations, "categories": categories})
    return folder


def write(folder, content):
    (folder / "annotations.json").write_text(json.dumps(content))


def read(folder):
    return json.loads((folder / "annotations.json").read_text())


def yolos(folder):
    """The configuration of a random model that learns in seconds."""
    sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    more = {"num_detection_tokens": 4, "use_mid_position_embeddings": False, "initializer_range": 0.15}
    YolosConfig(image_size=[SIZE, SIZE], patch_size=8, **sizes, **more).save_pretrained(folder)
    return folder


def train(tmp_path, *words):
    for name, count, seed in (("train", 128, 0), ("validation", 24, 1)):
        if not (tmp_path / name).exists():
            write_coco(tmp_path / name, count, seed)
    return small.run(
        *("object_detection", "--train_dir", tmp_path / "train", "--validation_dir", tmp_path / "validation"),
        *("--config_name", yolos(tmp_path / "model"), "--image_square_size", SIZE, "--report_to", "none"),
        *("--output_dir", tmp_path / "out", "--do_train", "--do_eval", "--learning_rate", "2e-3"),
        *("--per_device_train_batch_size", 16, "--num_train_epochs", 20, *words),
    )


def test_boxes_are_found_and_answers_are_in_pixels(tmp_path):
    for number, (left, top) in enumerate([(2, 2), (30, 2)]):  # twice as large as those of training
        (tmp_path / "test").mkdir(exist_ok=True)
        image = pictures.draw("square", "red", 2 * SIZE, (left, top, left + 29, top + 29))
        image.save(tmp_path / "test" / f"{number}.png")
    words = ["--do_predict", "--test_dir", tmp_path / "test", "--score_threshold", 0.1]
    results = train(tmp_path, *words)
    assert results["eval_map"] > 0.35  # untrained: below 0.02
    assert results["eval_mar_100"] > 0.6
    figures = {"map_50", "map_75", "map_small", "mar_1", "mar_10", "map_circle", "mar_100_square"}
    assert figures <= {name.removeprefix("eval_") for name in results}
    answers = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]
    for answer, left in zip(answers, (2, 30), strict=True):
        found = [entry for entry in answer["objects"] if entry["label"] == "square"]
        expected = pytest.approx([left, 2, left + 30, 32], abs=8)
        assert any(entry["box"] == expected for entry in found)
        assert all(0.1 <= entry["score"] <= 1 for entry in answer["objects"])


def test_boxes_follow_their_pictures_when_these_are_changed():
    set_seed(0)
    seen = set()
    for _ in range(40):
        image = pictures.draw("square", "red", 40, (8, 12, 19, 27))
        changed, boxes = change_boxes(image, np.array([[8.0, 12, 12, 16]]))
        left, top, width, height = boxes[0].astype(int)
        is_red = np.asarray(changed)[..., 0].astype(int) - np.asarray(changed)[..., 2] > 60
        rows, columns = np.flatnonzero(is_red.any(axis=1)), np.flatnonzero(is_red.any(axis=0))
        assert (rows[0], rows[-1] + 1) == (top, top + height)
        assert (columns[0], columns[-1] + 1) == (left, left + width)
        seen.add((changed.size, left))
    assert len(seen) > 4


def test_boxes_of_a_picture_that_is_filled_up_to_a_square_come_back_in_its_pixels(tmp_path):
    recipe = parse_flags(ObjectDetection, ["--image_square_size", "32", "--output_dir", str(tmp_path)])
    recipe.names, recipe.image = ["square"], "image"
    recipe.processor = YolosImageProcessorPil(**recipe.processor_options())
    path = str(tmp_path / "wide.png")
    Image.new("RGB", (64, 32)).save(path)
    made = recipe.whole_pictures(
        {"image": [path], "objects": [{"bbox": [[0, 0, 32, 32]], "category": ["square"]}]}
    )
    boxes = made["labels"][0]["boxes"]
    assert made["pixel_values"][0].shape == (3, 32, 32)
    assert boxes.tolist() == [[0.25, 0.25, 0.5, 0.5]]  # of the square, not of the picture
    output = PredictionOutput([(np.array([[[9.0, 0.0]]]), boxes[None].numpy())], None, {})
    answers = recipe.answers(Dataset.from_dict({"image": [path]}), None, output)
    assert answers[0]["objects"][0]["box"] == [0, 0, 32, 32]


def test_boxes_end_where_the_picture_ends():
    assert clip_boxes([[-5, 30, 15, 20]], (40, 40)).tolist() == [[0, 30, 10, 10]]


def test_boxes_that_cannot_be_used_are_named_and_may_be_skipped(tmp_path):
    folder = write_coco(tmp_path / "train", 16, 0)
    content = read(folder)
    for place, box in enumerate([[1, 1, 0, 5], [50, 50, 9, 9], [1, 2]]):
        content["annotations"][place]["bbox"] = box
    content["annotations"][3]["category_id"] = 99
    write(folder, content)
    (folder / "4.png").write_bytes(b"")
    with pytest.raises(TaskError) as caught:
        train(tmp_path)
    text = str(caught.value)
    assert "5 of 16 rows cannot be used: row 1: the box [1.0, 1.0, 0.0, 5.0] of object 1 is not left" in text
    assert "row 2: the box [50.0, 50.0, 9.0, 9.0] of object 1 is outside the picture of 32 x 32" in text
    assert "row 4: the class None of object 1 is not one of circle, square" in text
    assert "4.png cannot be opened" in text
    assert train(tmp_path, "--skip_bad_rows", "--max_steps", 1)["train_samples"] == 11


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": []}, "annotation 1 is of image 0, which is not there"),
        ({"images": [{"id": 1}]}, "is not in the form of COCO: KeyError: 'file_name'"),
        (None, "train: there is no file of annotations in it"),
    ],
)
def test_files_that_are_not_in_the_form_of_coco_are_named(tmp_path, change, message):
    folder = write_coco(tmp_path / "train", 4, 0)
    if change is None:
        (folder / "annotations.json").unlink()
    else:
        write(folder, {**read(folder), **change})
    with pytest.raises(TaskError, match=message):
        train(tmp_path)


def test_a_dataset_of_the_hub_is_split_by_the_seed_and_measured_on_its_test_set(tmp_path, monkeypatch):
    folder = write_coco(tmp_path / "train", 24, 0)
    content = read(folder)
    entries = zip(content["images"], content["annotations"], strict=True)
    rows = [
        {
            "image_id": image["id"],
            "image": {"path": None, "bytes": (folder / image["file_name"]).read_bytes()},
            "objects": {"bbox": [box["bbox"]], "category": [box["category_id"] - 10]},
        }
        for image, box in entries
    ]
    number, label = datasets.Value("float32"), datasets.ClassLabel(names=["square", "circle"])
    objects = {"bbox": datasets.List(datasets.List(number)), "category": datasets.List(label)}
    features = {"image_id": datasets.Value("int64"), "image": datasets.Image(), "objects": objects}
    parts = {
        split: Dataset.from_list(part, features=datasets.Features(features))
        for split, part in (("train", rows[:20]), ("test", rows[20:]))
    }
    monkeypatch.setattr("footplate.tasks.common.recipe.read_hub", lambda data, start: dict(parts))
    results = small.run(
        *("object_detection", "--dataset_name", "somebody/boxes", "--config_name", yolos(tmp_path / "model")),
        *("--output_dir", tmp_path / "out", "--image_square_size", SIZE, "--report_to", "none"),
        *("--do_train", "--do_eval", "--max_steps", 2, "--eval_strategy", "epoch"),
    )
    assert results["train_samples"] == 17  # 15 % of 20 are kept back
    assert results["test_samples"] == 4
    assert {"test_map", "test_map_square", "test_mar_100_circle"} <= set(results)
    assert (tmp_path / "out" / "test_results.json").exists()
    assert "eval_map" in small.losses_in(tmp_path / "out")[-2]
