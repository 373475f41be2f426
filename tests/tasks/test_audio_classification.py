"""Sounds and their classes: pitches are learned from folders and tables; bad sounds are named."""

import csv
import json
import random

import numpy as np
import pytest
import soundfile

from footplate.tasks import TaskError
from footplate.tasks.common.answering import answer_lines, load_answerer
from tasks import original, small, tones
from tasks.pretrained import DATA


def flags(tmp_path, *words):
    """Flags of a small model with random weights, for the folders train and dev."""
    config = tones.small_wav2vec2(tmp_path / "config", classifier_proj_size=32)
    return [
        *("--config_name", config, "--feature_extractor_name", config, "--freeze_feature_encoder", "False"),
        *("--train_file", tmp_path / "train", "--validation_file", tmp_path / "dev"),
        *("--output_dir", tmp_path / "out", "--do_train", "--do_eval", "--report_to", "none"),
        *("--learning_rate", "2e-3", *words),
    ]


def write(tmp_path, num_train, num_dev):
    tones.write_classes(tmp_path / "train", num_train, 0)
    tones.write_classes(tmp_path / "dev", num_dev, 1)


def table_of(folder):
    """The sounds of a folder as rows of a table beside it."""
    files = sorted(folder.rglob("*.wav"))
    return [{"file": str(file.relative_to(folder.parent)), "kind": file.parent.name} for file in files]


def test_pitches_are_learned_from_folders_and_a_finished_run_names_new_ones(tmp_path):
    write(tmp_path, 100, 30)
    results = small.run("audio_classification", *flags(tmp_path, "--num_train_epochs", 6))
    assert results["eval_accuracy"] > 0.9  # chance: 0.2; seen: 1.0
    assert json.loads((tmp_path / "out" / "config.json").read_text())["id2label"]["4"] == "e"

    rows = table_of(tmp_path / "dev")
    small.write_csv(tmp_path / "new.csv", [{"audio": row["file"]} for row in rows])
    words = ["--model_name_or_path", tmp_path / "out", "--output_dir", tmp_path / "answers", "--do_predict"]
    small.run("audio_classification", *words, "--test_file", tmp_path / "new.csv", "--report_to", "none")
    lines = (tmp_path / "answers" / "predictions.jsonl").read_text().splitlines()
    answers = [json.loads(line) for line in lines]
    right = [answer["label"] == row["kind"] for answer, row in zip(answers, rows, strict=True)]
    assert np.mean(right) > 0.9
    assert all(0.2 <= answer["score"] <= 1 for answer in answers)
    typed = answer_lines(load_answerer(str(tmp_path / "out")), [str(tmp_path / rows[0]["file"])])
    assert next(typed)["label"] == rows[0]["kind"]


def test_losses_are_those_of_the_original_trainer_with_the_same_random_parts(tmp_path):
    """The same preprocessing, written out, with the Trainer of transformers."""
    import datasets
    import soxr
    from transformers import (
        Trainer,
        TrainingArguments,
        Wav2Vec2Config,
        Wav2Vec2FeatureExtractor,
        Wav2Vec2ForSequenceClassification,
        set_seed,
    )

    write(tmp_path, 20, 5)
    words = ["--num_train_epochs", 2, "--logging_steps", 1, "--max_length_seconds", 0.35]
    small.run("audio_classification", *flags(tmp_path, *words))

    set_seed(42)
    rows = table_of(tmp_path / "train")
    table = datasets.Dataset.from_dict(
        {"file": [row["file"] for row in rows], "kind": ["abcde".index(row["kind"]) for row in rows]}
    )
    extractor = Wav2Vec2FeatureExtractor.from_pretrained(tmp_path / "config", return_attention_mask=True)
    config = Wav2Vec2Config.from_pretrained(tmp_path / "config", num_labels=5)
    model = Wav2Vec2ForSequenceClassification(config)

    def cut(batch):
        parts = []
        for file in batch["file"]:
            sound = soxr.resample(soundfile.read(tmp_path / file, dtype="float32")[0], tones.RATE, 4000)
            if len(sound) > 1400:
                start = random.randint(0, len(sound) - 1400 - 1)
                sound = sound[start : start + 1400]
            parts.append(sound)
        values = extractor(parts, sampling_rate=4000)["input_values"]
        return {"input_values": values, "labels": list(batch["kind"])}

    args = TrainingArguments(
        str(tmp_path / "other"),
        learning_rate=2e-3,
        num_train_epochs=2,
        logging_steps=1,
        remove_unused_columns=False,
        report_to="none",
    )
    table.set_transform(cut)
    trainer = Trainer(model, args, train_dataset=table, processing_class=extractor)
    trainer.train()
    original.check_same_losses(trainer, tmp_path / "out", 6)


def test_a_table_names_files_beside_it_and_a_label_unseen_in_training_is_an_error(tmp_path):
    write(tmp_path, 20, 10)
    rows, more = table_of(tmp_path / "train"), table_of(tmp_path / "dev")
    train_file = small.write_csv(tmp_path / "train.csv", rows)
    dev_file = small.write_csv(tmp_path / "dev.csv", [*more[:4], {**more[4], "kind": "z"}])
    columns = ["--audio_column_name", "file", "--label_column_name", "kind", "--max_steps", 1]
    words = flags(tmp_path, *columns, "--train_file", train_file, "--eval_file", dev_file)
    with pytest.raises(TaskError, match=r"dev\.csv: 1 of 5 rows .* row 5: the label 'z'.*a, b, c, d, e"):
        small.run("audio_classification", *words)
    assert small.run("audio_classification", *words, "--skip_bad_rows")["eval_samples"] == 4
    with pytest.raises(TaskError, match=r"train\.csv has no column 'label'"):
        small.run("audio_classification", *words, "--label_column_name", "label")


def test_a_broken_sound_in_a_folder_is_named_before_training(tmp_path):
    write(tmp_path, 10, 5)
    file = sorted((tmp_path / "train" / "c").iterdir())[0]
    file.write_bytes(b"")
    with pytest.raises(TaskError, match=rf"train: 1 of 10 rows .* row 5: .*{file.name} is no sound"):
        small.run("audio_classification", *flags(tmp_path))
    results = small.run("audio_classification", *flags(tmp_path, "--max_steps", 1, "--skip_bad_rows"))
    assert results["train_samples"] == 9
    (tmp_path / "empty").mkdir()
    with pytest.raises(TaskError, match="there are no sounds in it"):
        small.run("audio_classification", *flags(tmp_path), "--train_file", tmp_path / "empty")


def test_a_folder_may_have_a_table_of_labels(tmp_path):
    write(tmp_path, 10, 5)
    lines = [
        "file_name,label",
        *(f"{row['file'][6:]},{row['kind']}" for row in table_of(tmp_path / "train")[:6]),
    ]
    (tmp_path / "train" / "metadata.csv").write_text("\n".join(lines) + "\n")
    results = small.run("audio_classification", *flags(tmp_path, "--max_steps", 1, "--skip_bad_rows"))
    assert results["train_samples"] == 6


def test_sounds_of_many_forms_become_one_channel_at_the_model_s_rate(tmp_path):
    from footplate.tasks.common.sound_files import load_sound, seconds_of

    sound = tones.tone(300, 0.5, np.random.default_rng(0))
    both = np.stack([sound, np.zeros_like(sound)], axis=1)
    for form in ("wav", "flac", "ogg", "mp3"):
        soundfile.write(tmp_path / f"sound.{form}", both, tones.RATE)
        heard = load_sound(str(tmp_path / f"sound.{form}"), 4000)
        assert heard.dtype == np.float32
        assert abs(len(heard) - 2000) <= 2
        assert seconds_of(str(tmp_path / f"sound.{form}")) == pytest.approx(0.5, abs=0.01)
        strongest = np.abs(np.fft.rfft(heard[:2000])).argmax() / 0.5
        assert strongest == 300
        assert 0.1 < heard.max() < 0.3  # the mean of both channels


def test_the_mask_of_padding_may_be_left_out(tmp_path):
    write(tmp_path, 10, 5)
    small.run("audio_classification", *flags(tmp_path, "--max_steps", 1, "--attention_mask", "False"))
    saved = json.loads((tmp_path / "out" / "preprocessor_config.json").read_text())
    assert not saved["return_attention_mask"]


@pytest.mark.slow
def test_spoken_digits_of_six_people_are_learned_from_random_weights(tmp_path):
    folder = DATA / "audio_classification" / "fsdd"
    if not folder.is_dir():
        pytest.skip("the recordings are not here")
    with (folder / "metadata.csv").open(encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    for split in ("train", "test"):
        rows = [row for row in table if row["split"] == split]
        rows = [{"audio": str(folder / row["file"]), "label": row["text"]} for row in rows]
        small.write_csv(tmp_path / f"{split}.csv", rows)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "conv_dim": (64, 64, 64), "classifier_proj_size": 64}
    config = tones.small_wav2vec2(tmp_path / "config", layerdrop=0.0, mask_time_prob=0.0, **sizes)
    words = ["--config_name", config, "--feature_extractor_name", config, "--freeze_feature_encoder", "False"]
    words += ["--train_file", tmp_path / "train.csv", "--validation_file", tmp_path / "test.csv"]
    words += ["--do_train", "--do_eval", "--report_to", "none", "--output_dir", tmp_path / "out"]
    words += ["--per_device_train_batch_size", 16, "--num_train_epochs", 12, "--learning_rate", "1e-3"]
    results = small.run("audio_classification", *words, "--warmup_steps", 40)
    assert results["eval_accuracy"] > 0.35  # chance: 0.1; seen: 0.54 in one run, two minutes on a busy core
