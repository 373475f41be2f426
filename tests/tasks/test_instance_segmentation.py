"""Masks of objects: files in the form of COCO, maps, what is learned, what is wrong with masks."""

import json

import numpy as np
import pytest
from PIL import Image
from transformers import Mask2FormerConfig, SwinConfig

from footplate.tasks import TaskError
from footplate.tasks.common.coco import draw_mask
from footplate.tasks.common.instances import read_map
from tasks import small
from tasks.test_object_detection import SIZE, read, write, write_coco


def mask2former(folder):
    """The configuration of a random model that learns in seconds."""
    stages = [f"stage{number}" for number in range(1, 5)]
    sizes = {"embed_dim": 8, "depths": [1] * 4, "num_heads": [1, 1, 2, 2], "window_size": 4}
    backbone = SwinConfig(
        image_size=SIZE, patch_size=2, out_features=stages, drop_path_rate=0.0, initializer_range=0.1, **sizes
    )
    sizes = {"feature_size": 32, "mask_feature_size": 32, "hidden_dim": 32, "dim_feedforward": 32}
    layers = {
        "encoder_feedforward_dim": 32,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "num_attention_heads": 2,
    }
    more = {"num_queries": 4, "train_num_points": 128, "init_std": 0.1, "dropout": 0.0}
    Mask2FormerConfig(backbone_config=backbone, **sizes, **layers, **more).save_pretrained(folder)
    return folder


def train(tmp_path, *words):
    for name, count, seed in (("train", 64, 0), ("validation", 16, 1)):
        if not (tmp_path / name).exists():
            write_coco(tmp_path / name, count, seed)
    return small.run(
        *("instance_segmentation", "--train_dir", tmp_path / "train"),
        *("--validation_dir", tmp_path / "validation", "--config_name", mask2former(tmp_path / "model")),
        *("--image_height", SIZE, "--image_width", SIZE, "--report_to", "none"),
        *("--output_dir", tmp_path / "out", "--do_train", "--do_eval", "--learning_rate", "3e-3"),
        *("--per_device_train_batch_size", 8, "--num_train_epochs", 12, *words),
    )


@pytest.mark.slow
def test_masks_are_found_and_written(tmp_path):
    test_dir = write_coco(tmp_path / "test", 4, 2)
    (test_dir / "annotations.json").unlink()
    untrained = train(tmp_path, "--max_steps", 1, "--learning_rate", 0, "--output_dir", tmp_path / "before")
    results = train(tmp_path, "--do_predict", "--test_dir", test_dir)
    assert results["eval_map"] > 0.7
    assert untrained["eval_map"] < 0.1
    figures = {"map_50", "map_75", "map_small", "mar_1", "mar_10", "mar_100", "map_circle", "mar_100_square"}
    assert figures <= {name.removeprefix("eval_") for name in results}
    answers = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]
    for number, answer in enumerate(answers):
        pixels = np.asarray(Image.open(test_dir / f"{number}.png"))
        is_object = pixels.max(axis=2) > 100
        numbers = np.asarray(Image.open(answer["mask"]))
        assert answer["objects"][0]["label"] == ("square", "circle")[number % 2]
        assert (numbers == 1)[is_object].mean() > 0.9


def test_masks_are_drawn_of_polygons_run_lengths_and_boxes():
    polygon = draw_mask("[[1, 1, 3, 1, 3, 2, 1, 2]]", None, (6, 4))
    assert polygon.sum() == 6
    assert polygon[1:3, 1:4].all()
    runs = draw_mask({"size": [2, 3], "counts": [1, 2, 3]}, None, (3, 2))
    assert runs.astype(int).tolist() == [[0, 1, 0], [1, 0, 0]]  # column by column
    assert draw_mask(None, [1, 0, 2, 2], (4, 3)).astype(int).tolist() == [[0, 1, 1, 0], [0, 1, 1, 0], [0] * 4]


def test_a_map_holds_class_and_object_in_its_channels():
    pixels = np.zeros((2, 3, 3), dtype=np.uint8)
    pixels[0, :, :2] = (2, 1)
    pixels[1, 2, :2] = (1, 7)
    classes, masks = read_map(Image.fromarray(pixels), reduces_labels=True)
    assert classes == [1, 0]
    assert masks.sum(axis=(1, 2)).tolist() == [3, 1]
    assert read_map(Image.fromarray(pixels), reduces_labels=False)[0] == [0, 2, 1]


def test_masks_that_cannot_be_used_are_named_and_may_be_skipped(tmp_path):
    folder = write_coco(tmp_path / "train", 8, 0)
    content = read(folder)
    content["annotations"][1]["segmentation"] = {"size": [SIZE, SIZE], "counts": "packed"}
    content["annotations"][2]["segmentation"] = [[100, 100, 110, 100, 110, 110]]
    content["annotations"][3]["segmentation"] = [[1, 2, 3]]
    write(folder, content)
    with pytest.raises(TaskError) as caught:
        train(tmp_path)
    text = str(caught.value)
    assert "3 of 8 rows" in text
    assert "row 2: the mask of an object cannot be read (run lengths must be a list" in text
    assert "row 3: the mask of an object is empty" in text
    assert train(tmp_path, "--skip_bad_rows", "--max_steps", 1)["train_samples"] == 5
