"""Pictures with hidden parts: patches (MAE) and blocks (SimMIM)."""

import json
import math
import random

import numpy as np
import pytest
import torch
from PIL import Image

from footplate.tasks import TaskError
from footplate.tasks.image_pretraining_mae import cut_patches, join_patches
from footplate.tasks.image_pretraining_mim import pick_blocks
from footplate.training.seed import set_seed
from tasks import small

SIZES = (
    "hidden_size=32,num_hidden_layers=2,num_attention_heads=2,intermediate_size=64,image_size=16,patch_size=4"
)
DECODER = (
    "decoder_hidden_size=32,decoder_num_hidden_layers=1,decoder_num_attention_heads=2,"
    "decoder_intermediate_size=64"
)


def write_slopes(folder, count, seed):
    """Pictures that become brighter from one side to the other, each in its own direction and colour."""
    chance = random.Random(seed)
    folder.mkdir()
    rows, columns = np.mgrid[0:20, 0:20] / 19 - 0.5
    for number in range(count):
        angle, colour = chance.uniform(0, 2 * math.pi), np.array([chance.random() for _ in range(3)])
        slope = rows * math.sin(angle) + columns * math.cos(angle)
        pixels = (slope[..., None] * 0.7 + 0.5) * (0.3 + 0.7 * colour) * 255
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{number:03}.png")
    return folder


def pretrain(tmp_path, task, *words):
    for name, count in (("train", 64), ("validation", 16)):
        if not (tmp_path / name).exists():
            write_slopes(tmp_path / name, count, count)
    return small.run(
        *(task, "--train_dir", tmp_path / "train", "--validation_dir", tmp_path / "validation"),
        *("--output_dir", tmp_path / "out", "--overwrite_output_dir", "--do_train", "--do_eval"),
        *("--per_device_train_batch_size", 16, "--num_train_epochs", 25, "--report_to", "none", *words),
    )


def mae(tmp_path, *words):
    return pretrain(
        tmp_path,
        "image_pretraining_mae",
        "--config_overrides",
        f"{SIZES},{DECODER}",
        "--mask_ratio",
        0.5,
        *words,
    )


def mim(tmp_path, *words):
    return pretrain(
        *(tmp_path, "image_pretraining_mim", "--model_type", "vit", "--config_overrides", SIZES),
        *("--encoder_stride", 4, "--image_size", 16, "--patch_size", 4, "--mask_patch_size", 4, *words),
    )


def test_hidden_patches_are_filled_in(tmp_path):
    untrained = mae(tmp_path, "--max_steps", 1, "--base_learning_rate", 0)["eval_loss"]
    trained = mae(
        tmp_path, "--base_learning_rate", 0.08, "--do_predict", "--test_dir", tmp_path / "validation"
    )
    assert trained["eval_loss"] < 0.5 * untrained  # an untrained model: about 1, the variance of patches
    answers = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]
    distances = []
    for answer in answers:
        image = Image.open(answer["image"]).resize((16, 16))
        distances.append(np.abs(np.asarray(image, float) - np.asarray(Image.open(answer["filled"]), float)))
    assert np.mean(distances) < 20


def test_hidden_blocks_are_filled_in(tmp_path):
    untrained = mim(tmp_path, "--max_steps", 1, "--learning_rate", 0)["eval_loss"]
    trained = mim(tmp_path, "--learning_rate", 5e-3, "--do_predict", "--test_dir", tmp_path / "validation")
    assert trained["eval_loss"] < 0.6 * untrained  # grey everywhere: 0.42
    assert len(list((tmp_path / "out" / "predictions").glob("*.png"))) == 16


def test_patches_are_joined_as_they_were_cut():
    pixels = torch.arange(3 * 8 * 12).reshape(3, 8, 12)
    patches = cut_patches(pixels, 4)
    assert patches.shape == (6, 48)
    assert (
        patches[1].reshape(4, 4, 3)[0, 0].tolist() == pixels[:, 0, 4].tolist()
    )  # the second of the first line
    assert join_patches(patches, 4, pixels.shape).equal(pixels)


def test_blocks_are_hidden_as_a_whole():
    set_seed(0)
    mask = pick_blocks(4, 2, 0.6).reshape(8, 8)
    assert mask.sum() == 4 * math.ceil(16 * 0.6)
    blocks = mask.reshape(4, 2, 4, 2).permute(0, 2, 1, 3).reshape(16, 4)
    assert set(blocks.sum(dim=1).tolist()) == {0, 4}
    assert not mask.equal(pick_blocks(4, 2, 0.6).reshape(8, 8))


def test_the_learning_rate_of_mae_grows_with_the_batch(tmp_path):
    words = ["--base_learning_rate", 1e-2, "--gradient_accumulation_steps", 2, "--logging_steps", 1]
    mae(tmp_path, *words, "--max_steps", 1, "--lr_scheduler_type", "constant")
    assert small.losses_in(tmp_path / "out")[0]["learning_rate"] == pytest.approx(1e-2 * 32 / 256)


def test_blocks_that_do_not_divide_a_picture_are_refused(tmp_path):
    with pytest.raises(
        TaskError, match=r"mask_patch_size 6: pictures of 16 pixels must divide.*patches of 4"
    ):
        mim(tmp_path, "--mask_patch_size", 6)


def test_a_broken_picture_is_named_before_pretraining(tmp_path):
    write_slopes(tmp_path / "train", 4, 0)
    (tmp_path / "train" / "002.png").write_bytes(b"")
    with pytest.raises(TaskError, match=r"row 3: .*002\.png cannot be opened"):
        mae(tmp_path)
