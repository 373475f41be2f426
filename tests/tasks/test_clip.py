"""Pictures and captions: CLIP, two models in one, frozen parts, what is wrong with rows."""

import json
import math
import random

import pytest
from safetensors.torch import load_file
from transformers import (
    BertConfig,
    CLIPConfig,
    CLIPModel,
    VisionTextDualEncoderConfig,
    VisionTextDualEncoderModel,
    ViTConfig,
)

from footplate.tasks import TaskError
from footplate.training.seed import set_seed
from tasks import pictures, small

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
VISION = {**SIZES, "image_size": 16, "patch_size": 4}
TEXT = {**SIZES, "vocab_size": 400, "max_position_embeddings": 16}


def write_captions(folder, count, seed):
    """Pictures of all shapes and colours in turn, and what they show."""
    chance, rows = random.Random(seed), []
    folder.mkdir(exist_ok=True)
    kinds = [(shape, colour) for shape in ("square", "circle") for colour in pictures.COLOURS]
    for number in range(count):
        shape, colour = kinds[number % len(kinds)]
        name = f"{seed}-{number}.png"
        pictures.draw(shape, colour, 16, pictures.random_box(chance, 16, (13, 15))).save(folder / name)
        rows.append({"image_path": name, "caption": f"{chance.choice(['a', 'one'])} {colour} {shape}"})
    return small.write_csv(folder / f"{seed}.csv", rows)


def clip_config(folder):
    """The configuration of a small CLIP."""
    CLIPConfig(text_config=TEXT, vision_config=VISION, projection_dim=32).save_pretrained(folder)
    return folder


def train(tmp_path, *words, rows=96):
    return small.run(
        "clip",
        *("--train_file", write_captions(tmp_path / "data", rows, 0), "--output_dir", tmp_path / "out"),
        *("--validation_file", write_captions(tmp_path / "data", 12, 1), "--max_seq_length", 8),
        *("--do_train", "--do_eval", "--learning_rate", "3e-3", "--per_device_train_batch_size", 12),
        *("--per_device_eval_batch_size", 6, "--num_train_epochs", 20, "--report_to", "none", *words),
    )


def scratch(tmp_path):
    return ["--config_name", clip_config(tmp_path / "model"), "--train_tokenizer", "--vocab_size", 300]


def test_captions_are_found_for_pictures(tmp_path):
    test_file = write_captions(tmp_path / "data", 6, 2)
    results = train(tmp_path, *scratch(tmp_path), "--do_predict", "--test_file", test_file)
    assert results["eval_loss"] < 0.5 * math.log(6)  # chance: ln 6 = 1.79 for six captions
    answers = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]
    wanted = [line.split(",")[1] for line in test_file.read_text().splitlines()[1:]]
    right = [a["caption"].split()[1:] == text.split()[1:] for a, text in zip(answers, wanted, strict=True)]
    assert sum(right) >= 5  # chance: 1 of 6


def test_two_models_in_one_are_trained_with_one_part_frozen(tmp_path):
    train(tmp_path, *scratch(tmp_path), "--num_train_epochs", 1)  # for its tokenizer
    set_seed(0)
    config = VisionTextDualEncoderConfig.from_vision_text_configs(
        ViTConfig(**VISION), BertConfig(**TEXT), projection_dim=32
    )
    VisionTextDualEncoderModel(config).save_pretrained(tmp_path / "pair")
    words = ["--model_name_or_path", tmp_path / "pair", "--tokenizer_name", tmp_path / "out"]
    words += ["--image_processor_name", tmp_path / "out", "--freeze_vision_model"]
    results = train(tmp_path, *words, "--num_train_epochs", 2, "--output_dir", tmp_path / "second")
    assert results["eval_loss"] < 2.5
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("pair", "second"))
    changed = {name.split(".")[0] for name in before if not before[name].equal(after[name])}
    assert "vision_model" not in changed
    assert {"text_model", "visual_projection"} <= changed


def test_a_trained_model_is_loaded_with_its_tokenizer_and_processor(tmp_path):
    train(tmp_path, *scratch(tmp_path), "--num_train_epochs", 1)
    first = CLIPModel.from_pretrained(tmp_path / "out")
    results = train(
        tmp_path,
        "--model_name_or_path",
        tmp_path / "out",
        "--output_dir",
        tmp_path / "more",
        "--max_steps",
        1,
    )
    assert first.config.text_config.eos_token_id == 3  # of the tokenizer that was trained
    assert results["train_samples"] == 96


def test_a_broken_picture_and_a_missing_caption_are_named_and_may_be_skipped(tmp_path):
    train_file = write_captions(tmp_path / "data", 12, 3)
    (tmp_path / "data" / "3-4.png").write_bytes(b"GIF89a")
    train_file.write_text(train_file.read_text() + "3-0.png,\nnowhere.png,a red square\n")
    words = [*scratch(tmp_path), "--train_file", train_file]
    with pytest.raises(TaskError) as caught:
        train(tmp_path, *words)
    assert "3.csv: 3 of 14 rows" in str(caught.value)
    assert "row 5: " in str(caught.value)
    assert "row 13: the caption is missing" in str(caught.value)
    assert "row 14: there is no file" in str(caught.value)
    assert train(tmp_path, *words, "--skip_bad_rows", "--max_steps", 1)["train_samples"] == 11


def test_columns_have_names_of_their_own(tmp_path):
    table = write_captions(tmp_path / "data", 12, 3)
    table.write_text(table.read_text().replace("image_path,caption", "photo,words"))
    words = [*scratch(tmp_path), "--train_file", table, "--validation_file", table, "--max_steps", 1]
    with pytest.raises(TaskError, match=r"no column of pictures. It has \['photo', 'words'\]"):
        train(tmp_path, *words)
    with pytest.raises(TaskError, match=r"3\.csv has no column 'caption'.*--caption_column"):
        train(tmp_path, *words, "--image_column", "photo")
    train(tmp_path, *words, "--image_column", "photo", "--caption_column", "words")
