"""Tones made on the spot: one for each class or letter; and small random models that hear them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import soundfile

RATE = 8000  # of files; models here take 4000 samples a second
PITCHES = {"a": 150, "b": 300, "c": 550, "d": 950, "e": 1600}  # hertz
NAMES = {"a": "deep", "b": "low", "c": "plain", "d": "high", "e": "shrill"}


def tone(pitch: float, seconds: float, chance: np.random.Generator) -> Any:
    """A tone with a little noise."""
    moments = np.arange(int(RATE * seconds)) / RATE
    clean = 0.4 * np.sin(2 * np.pi * (pitch * moments + chance.random()))
    return (clean + 0.01 * chance.standard_normal(len(moments))).astype(np.float32)


def spell(text: str, chance: np.random.Generator, seconds: float = 0.06) -> Any:
    """A tone for each letter, with a pause after it; a longer one for a space."""
    parts = []
    for letter in text:
        pause = 0.01 * chance.standard_normal(int(RATE * seconds / 3)).astype(np.float32)
        parts += [pause if letter == " " else tone(PITCHES[letter], seconds, chance), pause]
    return np.concatenate(parts)


def write_words(folder: Path, count: int, seed: int) -> list[dict[str, str]]:
    """Sounds of random words in a folder, and rows that name them."""
    chance = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(count):
        words = ["".join(chance.choice(list(PITCHES), chance.integers(2, 4))) for _ in range(2)]
        file = folder / f"{number}.flac"
        soundfile.write(file, spell(" ".join(words), chance), RATE)
        rows.append({"audio": f"{folder.name}/{file.name}", "text": " ".join(words)})
    return rows


def write_names(folder: Path, count: int, seed: int, length: int = 2) -> list[dict[str, str]]:
    """Sounds of so many tones in a folder, and rows with their names."""
    chance = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(count):
        letters = chance.choice(list(PITCHES), length)
        sound = np.concatenate([tone(PITCHES[letter], 0.4, chance) for letter in letters])
        soundfile.write(folder / f"{number}.wav", sound, RATE)
        text = " ".join(NAMES[letter] for letter in letters)
        rows.append({"audio": f"{folder.name}/{number}.wav", "text": text})
    return rows


def write_classes(folder: Path, count: int, seed: int, seconds: float = 0.3) -> Path:
    """Tones in one folder for each pitch."""
    chance = np.random.default_rng(seed)
    for number in range(count):
        name = list(PITCHES)[number % len(PITCHES)]
        (folder / name).mkdir(parents=True, exist_ok=True)
        sound = tone(PITCHES[name], seconds * (1 + chance.random()), chance)
        soundfile.write(folder / name / f"{number}.wav", sound, RATE)
    return folder


def small_wav2vec2(folder: Path, **more: Any) -> Path:
    """A folder for `--config_name` and `--feature_extractor_name`: a small wav2vec2."""
    from transformers import Wav2Vec2Config, Wav2Vec2FeatureExtractor

    settings = {
        "hidden_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 96,
        "conv_dim": (32, 32, 48),
        "conv_kernel": (16, 8, 4),
        "conv_stride": (4, 5, 4),
        "num_feat_extract_layers": 3,
        "num_conv_pos_embeddings": 8,
        "num_conv_pos_embedding_groups": 4,
        "feat_extract_norm": "layer",
        "do_stable_layer_norm": True,
        "conv_bias": True,
        "attn_implementation": "eager",
    }
    Wav2Vec2Config(**{**settings, **more}).save_pretrained(folder)
    extractor = Wav2Vec2FeatureExtractor(sampling_rate=4000, return_attention_mask=True)
    extractor.save_pretrained(folder)
    return folder
