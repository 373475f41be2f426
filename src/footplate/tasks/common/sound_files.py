"""Sounds: files and bytes, read with soundfile and soxr."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from footplate.tasks.common.problems import TaskError
from footplate.tasks.common.reading import first_line


def load_sound(value: Any, rate: int) -> np.ndarray:
    """A sound in one channel, at a rate of samples per second.

    Args:
        value: A path, or a dict with `bytes` or `path`, or with `array` and `sampling_rate`.
        rate: Samples per second.
    """
    if isinstance(value, dict) and value.get("array") is not None:
        sound, own_rate = np.asarray(value["array"], np.float32), int(value["sampling_rate"])
    else:
        soundfile = import_soundfile()
        try:
            sound, own_rate = soundfile.read(source_of(value), dtype="float32")
        except (soundfile.SoundFileError, OSError) as error:
            raise TaskError(f"{name_of(value)} cannot be read: {first_line(error)}.") from None
    if sound.ndim > 1:
        sound = sound.mean(axis=1)
    if own_rate != rate:
        import soxr

        sound = soxr.resample(sound, own_rate, rate)
    return sound


def seconds_of(value: Any) -> float:
    """The length of a sound, from the head of its file."""
    if isinstance(value, dict) and value.get("array") is not None:
        return len(value["array"]) / float(value["sampling_rate"])
    return float(import_soundfile().info(source_of(value)).duration)


def find_bad_sound(value: Any) -> str | None:
    """Why a sound cannot be used; its head and its last sample are read, not all of it."""
    if value is None:
        return "there is no sound"
    if isinstance(value, dict) and value.get("array") is not None:
        return None if len(value["array"]) else "the sound is empty"
    soundfile, source = import_soundfile(), source_of(value)
    if isinstance(source, str) and not Path(source).is_file():
        return f"there is no file {source}"
    try:
        with soundfile.SoundFile(source) as file:
            if not file.frames:
                return f"{name_of(value)} is empty"
            file.seek(file.frames - 1)
            is_whole = len(file.read(1)) == 1
    except (soundfile.SoundFileError, OSError) as error:
        return f"{name_of(value)} is no sound that can be read ({first_line(error)})"
    return None if is_whole else f"{name_of(value)} ends too early"


def source_of(value: Any) -> Any:
    """What soundfile opens."""
    if isinstance(value, dict):
        content = value.get("bytes")
        return str(value.get("path")) if content is None else io.BytesIO(content)
    return str(value)


def name_of(value: Any) -> str:
    """The name of a sound, for people."""
    return str(value.get("path") or "the sound") if isinstance(value, dict) else str(value)


def import_soundfile() -> Any:
    """The package `soundfile`."""
    try:
        import soundfile
    except ImportError:
        raise TaskError("Tasks on sound need the package soundfile: pip install footplate[tasks]") from None
    return soundfile
