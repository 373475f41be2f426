"""Speech letter by letter: tones that stand for letters are learned, and bad sounds are named."""

import json
import logging

import datasets
import numpy as np
import pytest
import soundfile
import torch

from footplate.tasks import TaskError
from footplate.tasks.common.answering import answer_lines, load_answerer
from tasks import original, small, tones


def flags(tmp_path, *words):
    """Flags of a small model with random weights, for the files train.csv and dev.csv."""
    config = tones.small_wav2vec2(tmp_path / "config")
    return [
        *("--config_name", config, "--feature_extractor_name", config, "--freeze_feature_encoder", "False"),
        *("--train_file", tmp_path / "train.csv", "--validation_file", tmp_path / "dev.csv"),
        *("--output_dir", tmp_path / "out", "--do_train", "--do_eval", "--report_to", "none"),
        *("--learning_rate", "3e-3", "--warmup_steps", 20, "--mask_time_prob", 0, *words),
    ]


def write(tmp_path, num_train, num_dev):
    """Rows to learn from and to evaluate on, and their files."""
    rows, more = (
        tones.write_words(tmp_path / "a", num_train, 0),
        tones.write_words(tmp_path / "b", num_dev, 1),
    )
    small.write_csv(tmp_path / "train.csv", rows)
    small.write_csv(tmp_path / "dev.csv", more)
    return rows, more


def test_letters_are_learned_and_a_finished_run_writes_down_new_sounds(tmp_path):
    _, more = write(tmp_path, 150, 30)
    words = ["--num_train_epochs", 9, "--eval_metrics", "wer", "cer"]
    results = small.run("speech_recognition_ctc", *flags(tmp_path, *words))
    assert results["eval_wer"] < 0.1  # seen: 0.0; 1.0 without training
    assert results["eval_cer"] < 0.05
    assert small.results_of(tmp_path / "out")["train_samples"] == 150
    letters = json.loads((tmp_path / "out" / "vocab.json").read_text())
    assert sorted(letters) == ["[PAD]", "[UNK]", "a", "b", "c", "d", "e", "|"]
    assert letters["|"] == 0  # where the space stands in the alphabet

    rows = small.write_csv(tmp_path / "new.csv", [{"audio": row["audio"]} for row in more])
    again = ["--model_name_or_path", tmp_path / "out", "--output_dir", tmp_path / "answers"]
    small.run("speech_recognition_ctc", *again, "--test_file", rows, "--do_predict", "--report_to", "none")
    lines = (tmp_path / "answers" / "predictions.jsonl").read_text().splitlines()
    right = [json.loads(line)["text"] == row["text"] for line, row in zip(lines, more, strict=True)]
    assert np.mean(right) > 0.8
    answers = answer_lines(
        load_answerer(str(tmp_path / "out")), [str(tmp_path / more[0]["audio"]), "none.wav"]
    )
    assert next(answers) == json.loads(lines[0])
    assert "there is no file" in next(answers)["error"]


def test_losses_are_those_of_the_original_trainer(tmp_path):
    """The same preprocessing, written out, with the Trainer of transformers."""
    from transformers import (
        Trainer,
        TrainingArguments,
        Wav2Vec2Config,
        Wav2Vec2CTCTokenizer,
        Wav2Vec2FeatureExtractor,
        Wav2Vec2ForCTC,
        set_seed,
    )

    rows, _ = write(tmp_path, 24, 8)
    words = [
        "--num_train_epochs",
        2,
        "--logging_steps",
        1,
        "--warmup_steps",
        0,
        "--lr_scheduler_type",
        "linear",
    ]
    small.run("speech_recognition_ctc", *flags(tmp_path, *words), "--mask_time_prob", 0.3)

    set_seed(42)
    tokenizer = Wav2Vec2CTCTokenizer(
        tmp_path / "out" / "vocab.json", unk_token="[UNK]", pad_token="[PAD]", word_delimiter_token="|"
    )
    extractor = Wav2Vec2FeatureExtractor.from_pretrained(tmp_path / "config")
    config = Wav2Vec2Config.from_pretrained(tmp_path / "config")
    for name in ("attention", "activation", "feat_proj", "hidden", "final"):
        setattr(config, f"{name}_dropout", 0.0)
    config.mask_time_prob, config.layerdrop, config.ctc_loss_reduction = 0.3, 0.0, "mean"
    config.vocab_size, config.pad_token_id = len(tokenizer), tokenizer.pad_token_id
    model = Wav2Vec2ForCTC(config)

    import soxr

    features = []
    for row in rows:
        sound = soxr.resample(soundfile.read(tmp_path / row["audio"], dtype="float32")[0], tones.RATE, 4000)
        values = extractor(sound, sampling_rate=4000).input_values[0]
        features.append({"input_values": values, "labels": tokenizer(row["text"] + " ").input_ids})

    def collate(part):
        batch = extractor.pad([{"input_values": row["input_values"]} for row in part], return_tensors="pt")
        labels = tokenizer.pad([{"input_ids": row["labels"]} for row in part], return_tensors="pt")
        batch["labels"] = labels["input_ids"].masked_fill(labels["attention_mask"] != 1, -100)
        batch["attention_mask"] = batch["attention_mask"].to(torch.long)
        return batch

    args = TrainingArguments(
        str(tmp_path / "other"), learning_rate=3e-3, num_train_epochs=2, logging_steps=1, report_to="none"
    )
    trainer = Trainer(model, args, data_collator=collate, train_dataset=features)
    trainer.train()
    original.check_same_losses(trainer, tmp_path / "out", 6)


def test_a_broken_sound_is_named_before_training_and_may_be_skipped_or_mended(tmp_path):
    rows, _ = write(tmp_path, 12, 4)
    bad, short = tmp_path / rows[2]["audio"], tmp_path / rows[5]["audio"]
    whole = bad.read_bytes()
    bad.write_bytes(b"no sound at all")
    short.write_bytes(short.read_bytes()[:-200])
    (tmp_path / rows[7]["audio"]).write_bytes(b"")
    soundfile.write(tmp_path / rows[8]["audio"], np.zeros(0), tones.RATE)
    (tmp_path / rows[9]["audio"]).unlink()
    with pytest.raises(
        TaskError, match=r"train\.csv: 5 of 12 rows .* row 3: .*2\.flac is no sound.* row 6: "
    ):
        small.run("speech_recognition_ctc", *flags(tmp_path))
    one = flags(tmp_path, "--max_steps", 1)
    results = small.run("speech_recognition_ctc", *one, "--skip_bad_rows")
    assert results["train_samples"] == 7
    bad.write_bytes(whole)  # what was found out about the file is not kept
    assert small.run("speech_recognition_ctc", *one, "--skip_bad_rows")["train_samples"] == 8


def test_a_missing_column_and_a_missing_transcript_are_named(tmp_path):
    rows, _ = write(tmp_path, 6, 4)
    with pytest.raises(TaskError, match=r"train\.csv has no column 'path'.*--audio_column_name"):
        small.run("speech_recognition_ctc", *flags(tmp_path, "--audio_column_name", "path"))
    with pytest.raises(TaskError, match=r"train\.csv has no column 'sentence'.*--text_column_name"):
        small.run("speech_recognition_ctc", *flags(tmp_path, "--text_column_name", "sentence"))
    with pytest.raises(TaskError, match="--eval_metrics bleu"):
        small.run("speech_recognition_ctc", *flags(tmp_path, "--eval_metrics", "bleu"))
    small.write_csv(tmp_path / "train.csv", [*rows[:3], {**rows[3], "text": ""}])
    with pytest.raises(TaskError, match=r"row 4: the transcript in 'text' is missing"):
        small.run("speech_recognition_ctc", *flags(tmp_path))


def test_rows_that_are_too_long_are_counted(tmp_path, caplog):
    rows, _ = write(tmp_path, 12, 4)
    for row in rows[:3]:
        soundfile.write(tmp_path / row["audio"], np.ones(2 * tones.RATE), tones.RATE)
    limit = ["--max_duration_in_seconds", 1.5, "--max_steps", 1]
    with caplog.at_level(logging.WARNING, "footplate"):
        results = small.run("speech_recognition_ctc", *flags(tmp_path, *limit))
    assert results["train_samples"] == 9
    assert "3 of 12 train rows are left out: their sound is too short or too long" in caplog.text
    with pytest.raises(TaskError, match="12 of 12 train rows are left out"):
        small.run("speech_recognition_ctc", *flags(tmp_path, "--max_duration_in_seconds", 0.01))


def test_a_dataset_with_sounds_inside_is_read_without_torchcodec(tmp_path):
    _, more = write(tmp_path, 12, 4)
    folder = tmp_path / "dataset"
    folder.mkdir()
    for split, part in (("train", more[:2]), ("validation", more[2:3]), ("test", more)):
        sounds = [{"bytes": (tmp_path / row["audio"]).read_bytes(), "path": None} for row in part]
        table = datasets.Dataset.from_dict({"audio": sounds, "text": [row["text"] for row in part]})
        table = table.cast_column("audio", datasets.Audio(decode=False))
        table.cast_column("audio", datasets.Audio()).to_parquet(folder / f"{split}.parquet")
    words = flags(tmp_path, "--max_steps", 1, "--dataset_name", folder)
    results = small.run("speech_recognition_ctc", *words)
    assert results["train_samples"] == 3  # train+validation, as in the original
    assert results["eval_samples"] == 4
    with pytest.raises(TaskError, match=r"--eval_split_name dev: there is no split 'dev'.*'test', 'train'"):
        small.run("speech_recognition_ctc", *words, "--eval_split_name", "dev")


def test_characters_are_ignored_and_a_feature_extractor_is_made_of_the_configuration(tmp_path):
    rows, _ = write(tmp_path, 8, 4)
    small.write_csv(tmp_path / "train.csv", [{**row, "text": row["text"].upper() + "?!"} for row in rows])
    words = [*flags(tmp_path, "--max_steps", 1, "--chars_to_ignore", "?", "!")]
    place = words.index("--feature_extractor_name")
    small.run("speech_recognition_ctc", *words[:place], *words[place + 2 :])
    assert "?" not in json.loads((tmp_path / "out" / "vocab.json").read_text())
    saved = json.loads((tmp_path / "out" / "processor_config.json").read_text())["feature_extractor"]
    assert saved["sampling_rate"] == 16000
    assert saved["return_attention_mask"]


def test_only_adapter_layers_of_a_language_learn(tmp_path):
    from safetensors.torch import load_file
    from transformers import AutoTokenizer, Wav2Vec2Config, Wav2Vec2ForCTC

    write(tmp_path, 100, 20)
    words = ["--num_train_epochs", 6, "--learning_rate", "3e-3"]
    small.run("speech_recognition_ctc", *flags(tmp_path, *words), "--output_dir", tmp_path / "base")
    base = Wav2Vec2ForCTC.from_pretrained(tmp_path / "base")

    swapped = str.maketrans("abcde", "vwxyz")  # the same sounds are written with other letters
    for name in ("train", "dev"):
        table = (tmp_path / f"{name}.csv").read_text().splitlines()
        lines = [f"{line.split(',')[0]},{line.split(',')[1].translate(swapped)}" for line in table[1:]]
        (tmp_path / f"{name}.csv").write_text("\n".join(["audio,text", *lines]) + "\n")
    start = ["--model_name_or_path", tmp_path / "base", "--target_language", "tur"]
    command = [
        word for word in flags(tmp_path, *words)[4:] if word not in ("--freeze_feature_encoder", "False")
    ]
    results = small.run("speech_recognition_ctc_adapter", *start, *command, "--learning_rate", "1e-2")
    assert results["eval_wer"] < 0.3  # seen: 0.05; 0.78 for the base model, which learned for as long
    weights = load_file(tmp_path / "out" / "adapter.tur.safetensors")
    assert any("adapter_layer" in name for name in weights)
    tuned = Wav2Vec2ForCTC.from_pretrained(
        tmp_path / "out", config=Wav2Vec2Config.from_pretrained(tmp_path / "out")
    )
    old, new = base.state_dict(), tuned.state_dict()
    kept = [name for name in old if name in new and "lm_head" not in name]
    assert all(torch.equal(old[name], new[name]) for name in kept if "masked_spec" not in name)
    assert AutoTokenizer.from_pretrained(tmp_path / "out").target_lang == "tur"
    with pytest.raises(TaskError, match="--target_language is missing"):
        small.run("speech_recognition_ctc_adapter", *start[:2], *command)
