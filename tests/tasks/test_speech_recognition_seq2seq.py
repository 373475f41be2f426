"""Speech with a model that listens, then writes: it learns the names of tones."""

import json

import pytest
import soundfile
import torch

from footplate.tasks import TaskError
from footplate.tasks.common.answering import answer_lines, load_answerer
from tasks import original, small, tones

SIZES = {
    "d_model": 48,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "max_source_positions": 50,
    "max_target_positions": 32,
    "num_mel_bins": 16,
}


def write(tmp_path, num_train, num_dev, length=2):
    """Rows to learn from and to evaluate on, and their files."""
    rows = tones.write_names(tmp_path / "a", num_train, 0, length)
    more = tones.write_names(tmp_path / "b", num_dev, 1, length)
    small.write_csv(tmp_path / "train.csv", rows)
    small.write_csv(tmp_path / "dev.csv", more)
    return rows, more


def flags(tmp_path, *words):
    """Flags for the files train.csv and dev.csv."""
    return [
        *("--train_file", tmp_path / "train.csv", "--validation_file", tmp_path / "dev.csv"),
        *("--output_dir", tmp_path / "out", "--do_train", "--do_eval", "--report_to", "none"),
        *("--learning_rate", "3e-3", "--warmup_steps", 20, "--per_device_train_batch_size", 16),
        *("--predict_with_generate", "--generation_max_length", 12, *words),
    ]


def whisper_from_scratch():
    """Flags for a small Whisper with random weights, and a tokenizer trained on the spot."""
    sizes = ",".join(f"{name}={value}" for name, value in SIZES.items())
    model = ["--model_type", "whisper", "--config_overrides", sizes]
    return [*model, "--train_tokenizer", "--vocab_size", 300]


def test_whisper_learns_names_of_tones_and_a_finished_run_writes_down_new_ones(tmp_path):
    _, more = write(tmp_path, 200, 30)
    words = [*whisper_from_scratch(), *flags(tmp_path, "--num_train_epochs", 10)]
    results = small.run("speech_recognition_seq2seq", *words)
    assert results["eval_wer"] < 0.1  # seen: 0.0; chance: 0.8
    assert small.results_of(tmp_path / "out")["eval_samples"] == 30

    rows = small.write_csv(tmp_path / "new.csv", [{"audio": row["audio"]} for row in more])
    again = ["--model_name_or_path", tmp_path / "out", "--output_dir", tmp_path / "answers", "--do_predict"]
    small.run("speech_recognition_seq2seq", *again, "--test_file", rows, "--report_to", "none")
    lines = (tmp_path / "answers" / "predictions.jsonl").read_text().splitlines()
    right = [json.loads(line)["text"] == row["text"] for line, row in zip(lines, more, strict=True)]
    assert sum(right) > 25
    answers = answer_lines(load_answerer(str(tmp_path / "out")), [str(tmp_path / more[0]["audio"])])
    assert next(answers) == json.loads(lines[0])


def test_an_encoder_of_sound_and_a_decoder_of_text_learn_together(tmp_path):
    from transformers import AutoConfig, GPT2Config, SpeechEncoderDecoderConfig

    write(tmp_path, 100, 30, length=1)
    encoder = AutoConfig.from_pretrained(tones.small_wav2vec2(tmp_path / "encoder", mask_time_prob=0.0))
    decoder = GPT2Config(
        n_embd=48, n_layer=1, n_head=4, n_positions=32, add_cross_attention=True, is_decoder=True
    )
    config = SpeechEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.save_pretrained(tmp_path / "config")
    words = ["--config_name", tmp_path / "config", "--feature_extractor_name", tmp_path / "encoder"]
    words += ["--train_tokenizer", "--vocab_size", 300, "--freeze_feature_encoder", "False"]
    words += flags(tmp_path, "--num_train_epochs", 15)
    results = small.run("speech_recognition_seq2seq", *words)
    assert results["eval_wer"] < 0.2  # seen: 0.0; chance: 0.8


def multilingual_whisper(folder):
    """A small Whisper of many languages with random weights, with all that belongs to it."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import (
        GenerationConfig,
        WhisperConfig,
        WhisperFeatureExtractor,
        WhisperForConditionalGeneration,
        WhisperTokenizer,
    )
    from transformers.models.whisper.tokenization_whisper import LANGUAGES

    languages = [f"<|{code}|>" for code in LANGUAGES]
    marks = ["<|endoftext|>", "<|startoftranscript|>", *languages, "<|translate|>", "<|transcribe|>"]
    marks += ["<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]
    letters = {letter: number for number, letter in enumerate(sorted(ByteLevel.alphabet()))}
    vocabulary = {**letters, **{mark: len(letters) + place for place, mark in enumerate(marks)}}
    tokenizer = WhisperTokenizer(
        vocab=vocabulary, merges=[], pad_token=marks[0], additional_special_tokens=marks[1:]
    )
    number = tokenizer.convert_tokens_to_ids
    tokens = {
        "pad_token_id": number("<|endoftext|>"),
        "bos_token_id": number("<|endoftext|>"),
        "eos_token_id": number("<|endoftext|>"),
        "decoder_start_token_id": number("<|startoftranscript|>"),
        "begin_suppress_tokens": None,
    }
    torch.manual_seed(0)
    model = WhisperForConditionalGeneration(WhisperConfig(vocab_size=len(tokenizer), **tokens, **SIZES))
    model.generation_config = GenerationConfig(
        **tokens,
        is_multilingual=True,
        lang_to_id={language: number(language) for language in languages},
        task_to_id={"translate": number("<|translate|>"), "transcribe": number("<|transcribe|>")},
        no_timestamps_token_id=number("<|notimestamps|>"),
        max_length=32,
    )
    extractor = WhisperFeatureExtractor(feature_size=16, chunk_length=1)
    for part in (model, tokenizer, extractor):
        part.save_pretrained(folder)
    return folder


def test_losses_are_those_of_the_original_trainer_with_language_and_task(tmp_path):
    """The same preprocessing, written out, with the Seq2SeqTrainer of transformers."""
    import soxr
    from transformers import (
        Seq2SeqTrainer,
        Seq2SeqTrainingArguments,
        WhisperForConditionalGeneration,
        WhisperProcessor,
        set_seed,
    )

    rows, _ = write(tmp_path, 24, 8)
    start = multilingual_whisper(tmp_path / "start")
    words = ["--num_train_epochs", 2, "--logging_steps", 1, "--language", "hindi", "--task", "translate"]
    words += ["--model_name_or_path", start, "--warmup_steps", 0, "--per_device_train_batch_size", 8]
    small.run("speech_recognition_seq2seq", *flags(tmp_path, *words))

    set_seed(42)
    processor = WhisperProcessor.from_pretrained(start)
    model = WhisperForConditionalGeneration.from_pretrained(start)
    processor.tokenizer.set_prefix_tokens(language="hindi", task="translate")
    features = []
    for row in rows:
        sound = soxr.resample(soundfile.read(tmp_path / row["audio"], dtype="float32")[0], tones.RATE, 16000)
        values = processor.feature_extractor(sound, sampling_rate=16000).input_features[0]
        features.append({"input_features": values, "labels": processor.tokenizer(row["text"]).input_ids})
    assert processor.tokenizer.decode(features[0]["labels"][:4]) == (
        "<|startoftranscript|><|hi|><|translate|><|notimestamps|>"
    )

    def collate(part):
        sounds = [{"input_features": row["input_features"]} for row in part]
        batch = processor.feature_extractor.pad(sounds, return_tensors="pt")
        padded = processor.tokenizer.pad([{"input_ids": row["labels"]} for row in part], return_tensors="pt")
        labels = padded["input_ids"].masked_fill(padded["attention_mask"] != 1, -100)
        batch["labels"] = labels[:, 1:]  # the model puts <|startoftranscript|> before labels
        return batch

    args = Seq2SeqTrainingArguments(
        str(tmp_path / "other"), learning_rate=3e-3, num_train_epochs=2, logging_steps=1, report_to="none"
    )
    trainer = Seq2SeqTrainer(model, args, data_collator=collate, train_dataset=features)
    trainer.train()
    original.check_same_losses(trainer, tmp_path / "out", 6)
    saved = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert (saved["language"], saved["task"]) == ("hindi", "translate")
    assert "eval_wer" in small.results_of(tmp_path / "out")


def test_hidden_parts_of_a_sound_need_a_mask_and_an_encoder_may_stay_as_it_is(tmp_path):
    from safetensors.torch import load_file

    write(tmp_path, 8, 4)
    start = multilingual_whisper(tmp_path / "start")
    words = ["--model_name_or_path", start, "--max_steps", 1, "--apply_spec_augment", "--freeze_encoder"]
    hidden = ["--config_overrides", "mask_time_prob=0.5,mask_time_length=2"]
    small.run("speech_recognition_seq2seq", *flags(tmp_path, *words, *hidden, "--warmup_steps", 0))
    old, new = load_file(start / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
    changed = {name for name in old if not torch.equal(old[name], new[name])}
    assert any(name.startswith("model.decoder") for name in changed)
    assert not any(name.startswith("model.encoder") for name in changed)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["apply_spec_augment"]


def test_without_generation_only_the_loss_is_measured(tmp_path):
    write(tmp_path, 8, 4)
    words = [word for word in flags(tmp_path, "--max_steps", 1) if word != "--predict_with_generate"]
    results = small.run("speech_recognition_seq2seq", *whisper_from_scratch(), *words)
    assert "eval_loss" in results
    assert "eval_wer" not in results


def test_bad_input_is_named(tmp_path):
    rows, _ = write(tmp_path, 8, 4)
    scratch = whisper_from_scratch()
    with pytest.raises(TaskError, match="--language hindi: the model knows one language only"):
        small.run("speech_recognition_seq2seq", *scratch, *flags(tmp_path, "--language", "hindi"))
    with pytest.raises(TaskError, match="There is no tokenizer"):
        small.run("speech_recognition_seq2seq", *scratch[:4], *flags(tmp_path))
    start = multilingual_whisper(tmp_path / "start")
    words = flags(tmp_path, "--model_name_or_path", start, "--language", "martian")
    with pytest.raises(TaskError, match="--language martian --task transcribe: Unsupported language"):
        small.run("speech_recognition_seq2seq", *words)
    sizes = scratch[3].replace("max_source_positions=50", "max_source_positions=70")
    with pytest.raises(TaskError, match="max_source_positions=70: give a multiple of 50"):
        small.run("speech_recognition_seq2seq", *scratch[:3], sizes, *scratch[4:], *flags(tmp_path))
    with pytest.raises(TaskError, match=r"train\.csv has no column 'said'"):
        small.run("speech_recognition_seq2seq", *scratch, *flags(tmp_path, "--text_column_name", "said"))
    (tmp_path / rows[1]["audio"]).write_bytes(b"RIFF")
    with pytest.raises(
        TaskError, match=r"train\.csv: 1 of 8 rows cannot be used: row 2: .*1\.wav is no sound"
    ):
        small.run("speech_recognition_seq2seq", *scratch, *flags(tmp_path))
