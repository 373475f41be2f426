"""The tasks by name, those of other packages, and those in a file of the user's own."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from footplate.arguments.suggest import did_you_mean
from footplate.tasks.common.problems import TaskError

# The class of each task, and what it does in a line. Only the module that is needed is imported.
TASKS = {
    "qa": ("footplate.tasks.qa:QuestionAnswering", "Answer questions with a span of a text (SQuAD)."),
    "qa_beam_search": (
        "footplate.tasks.qa_beam_search:BeamSearchAnswering",
        "Answer questions with a span of a text, by beam search (XLNet).",
    ),
    "glue": ("footplate.tasks.glue:Glue", "The nine tasks of GLUE, or one or two texts and a label."),
    "xnli": ("footplate.tasks.xnli:Xnli", "Natural language inference in fifteen languages."),
    "classification": (
        "footplate.tasks.classification:Classification",
        "Classify texts: class, classes or value.",
    ),
    "clm": ("footplate.tasks.clm:CausalLanguageModeling", "Learn to predict the next token of a text."),
    "chat": ("footplate.tasks.chat:Chat", "Teach a chat model by conversations; LoRA and packing."),
    "mlm": ("footplate.tasks.mlm:MaskedLanguageModeling", "Learn to fill in words that are hidden."),
    "image_classification": (
        "footplate.tasks.image_classification:ImageClassification",
        "Classify pictures.",
    ),
    "semantic_segmentation": (
        "footplate.tasks.semantic_segmentation:SemanticSegmentation",
        "Find the class of each pixel of pictures.",
    ),
    "clip": ("footplate.tasks.clip:Clip", "Bring pictures and their captions close to each other."),
    "image_pretraining_mae": (
        "footplate.tasks.image_pretraining_mae:ImagePretrainingMae",
        "Pretrain a vision transformer: find hidden patches (MAE).",
    ),
    "image_pretraining_mim": (
        "footplate.tasks.image_pretraining_mim:ImagePretrainingMim",
        "Pretrain a vision model: find hidden blocks (SimMIM).",
    ),
    "object_detection": (
        "footplate.tasks.object_detection:ObjectDetection",
        "Find objects in pictures: boxes and classes.",
    ),
    "instance_segmentation": (
        "footplate.tasks.instance_segmentation:InstanceSegmentation",
        "Find objects in pictures: masks and classes.",
    ),
    "plm": (
        "footplate.tasks.plm:PermutationLanguageModeling",
        "Learn to predict the tokens of a text in any order (XLNet).",
    ),
    "fim": ("footplate.tasks.fim:FillInTheMiddle", "Learn to write what is missing in the middle of a text."),
    "ner": ("footplate.tasks.ner:Ner", "Tag the words of texts: entities, parts of speech, chunks."),
    "audio_classification": (
        "footplate.tasks.audio_classification:AudioClassification",
        "Classify sounds by a table or by folders.",
    ),
    "speech_recognition_ctc": (
        "footplate.tasks.speech_recognition_ctc:SpeechRecognitionCtc",
        "Write down speech letter by letter (wav2vec2, HuBERT, WavLM).",
    ),
    "speech_recognition_ctc_adapter": (
        "footplate.tasks.speech_recognition_ctc_adapter:SpeechRecognitionCtcAdapter",
        "Teach a speech model of many languages (MMS) a further one.",
    ),
    "speech_recognition_seq2seq": (
        "footplate.tasks.speech_recognition_seq2seq:SpeechRecognitionSeq2Seq",
        "Write down or translate speech word by word (Whisper).",
    ),
    "speech_pretraining": (
        "footplate.tasks.speech_pretraining:SpeechPretraining",
        "Pretrain wav2vec2 on sounds without transcripts.",
    ),
    "summarization": ("footplate.tasks.summarization:Summarization", "Write summaries of texts."),
    "translation": ("footplate.tasks.translation:Translation", "Translate from one language to another."),
    "swag": ("footplate.tasks.swag:Swag", "Choose the ending that fits a beginning."),
    "seq2seq_qa": ("footplate.tasks.seq2seq_qa:Seq2SeqAnswering", "Write answers to questions about a text."),
    "generation": ("footplate.tasks.generation:Generation", "Continue a text; nothing is trained."),
}
GROUP = "footplate.tasks"  # entry points of other packages


def find_recipe(name: str) -> Any:
    """The class of a task.

    Args:
        name: A task, an entry point of another package, a file `recipe.py`, or `recipe.py:Class`.
    """
    if name in TASKS:
        return load_class(TASKS[name][0])
    file, _, wanted = name.partition(":")
    if file.endswith(".py"):
        return load_from_file(Path(file), wanted)
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name in found:
        return found[name].load()
    raise TaskError(
        f"There is no task {name!r}.{did_you_mean(name, TASKS)} `footplate tasks` lists them; a recipe of "
        "your own is given as a file, my_recipe.py."
    )


def list_tasks() -> Iterator[tuple[str, str, str]]:
    """Every task: its name, what it does, and flags to copy."""
    for name, (place, text) in TASKS.items():
        yield name, text, load_class(place).example
    for entry in entry_points(group=GROUP):
        kind = entry.load()
        yield entry.name, kind.summary, kind.example


def load_class(place: str) -> Any:
    """The class at `module:Class`."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def load_from_file(path: Path, wanted: str) -> Any:
    """The recipe in a file: the one that is named, or the only one that is written there."""
    from footplate.tasks.common.recipe import Recipe

    if not path.is_file():
        raise TaskError(f"There is no file {path}.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # processes that prepare rows look it up by name
    spec.loader.exec_module(module)
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Recipe) and value.__module__ == path.stem
    ]
    named = [kind for kind in own if kind.__name__ == wanted] if wanted else own
    if len(named) != 1:
        listed = ", ".join(kind.__name__ for kind in own) or "none"
        raise TaskError(
            f"{path} must define one recipe, a subclass of Recipe. Found: {listed}. Write {path}:Name."
        )
    return named[0]
