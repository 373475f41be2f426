"""The subjects by which the site sorts public names and messages, one per part of the source."""

from __future__ import annotations

from typing import NamedTuple


class Subject(NamedTuple):
    """One page of the reference, and one heading of the messages.

    Args:
        slug: The page's name in docs/reference/ of the site.
        title: Its heading.
    """

    slug: str
    title: str


TRAINERS = Subject("trainers", "Trainers")
TRAINING = Subject("training", "Training")
PROCESSES = Subject("processes", "Several processes")
CHECKPOINTS = Subject("checkpoints", "Checkpoints")
COMMANDS = Subject("commands", "The command line")
OTHERS = Subject("others", "Others")

SUBJECTS = {
    "trainer": TRAINERS,
    "seq2seq": TRAINERS,
    "question_answering": TRAINERS,
    "takeover": TRAINERS,
    "testing": TRAINERS,
    "arguments": Subject("arguments", "Arguments"),
    "callbacks": Subject("callbacks", "Callbacks"),
    "public": Subject("callbacks", "Callbacks"),
    "samples": Subject("samples", "Samples"),
    "data": Subject("data", "Data"),
    "batch": Subject("data", "Data"),
    "optim": Subject("optimizers", "Optimizers and schedules"),
    "training": TRAINING,
    "state": TRAINING,
    "outputs": TRAINING,
    "wrappers": TRAINING,
    "rng": TRAINING,
    "evaluation": Subject("evaluation", "Evaluation"),
    "qa": Subject("answers", "Answers to questions"),
    "checkpoint": CHECKPOINTS,
    "disk": CHECKPOINTS,
    "resumed": CHECKPOINTS,
    "integrations": Subject("trackers", "Trackers"),
    "report": Subject("report", "The report"),
    "distributed": PROCESSES,
    "comm": PROCESSES,
    "meeting": PROCESSES,
    "search": Subject("search", "Search"),
    "rates": Subject("optimizers", "Optimizers and schedules"),
    "planning": Subject("planning", "Planning"),
    "instruments": Subject("instruments", "Models and profiles"),
    "hub": Subject("hub", "Model cards and the Hub"),
    "tasks": Subject("tasks", "Tasks"),
    "cli": COMMANDS,
    "__main__": COMMANDS,
    "__init__": OTHERS,
    "homes": OTHERS,
    "voice": OTHERS,
    "words": OTHERS,
    "demo": OTHERS,
}


def find_subject(module: str) -> Subject:
    """Where a module of footplate belongs; a part without an entry is a subject of its own."""
    part = module.split(".")[1] if "." in module else module
    return SUBJECTS.get(part, Subject(part, part.replace("_", " ").capitalize()))
