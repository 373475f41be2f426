"""Cards: parsed by the Hub's own library, kept where a person wrote, and written with nothing but Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from footplate.hub.card import CARD, CURVES, CardFacts, save_card
from footplate.hub.metadata import DatasetFacts

HISTORY = [
    {"loss": 2.0, "epoch": 0.5, "step": 10},
    {"eval_loss": 1.5, "eval_exact_match": 0.25, "eval_runtime": 1.0, "epoch": 1.0, "step": 20},
    {"loss": 1.0, "epoch": 1.5, "step": 30},
    {"eval_loss": 1.25, "eval_exact_match": 0.5, "eval_runtime": 1.0, "epoch": 2.0, "step": 40},
    {"train_runtime": 3.0, "train_loss": 1.5, "epoch": 2.0, "step": 40},
]
RESULTS = {"eval": {"loss": 1.25, "exact_match": 0.5}, "predict": {"rouge1": 30.5, "rougeL": 28.0}}


def facts(**changed: Any) -> CardFacts:
    values: dict[str, Any] = {
        "license": "mit",
        "language": ["de"],
        "tags": ["generated_from_trainer"],
        "base_model": "someone/base",
        "tasks": ["question-answering"],
        "datasets": [DatasetFacts("SQuAD", "rajpurkar/squad", "plain_text")],
        "results": RESULTS,
        "history": HISTORY,
        "settings": {"learning_rate": 1e-3},
        "versions": {"Pytorch": "2.0"},
        "loading": "model = load()",
    }
    return CardFacts("net", **{**values, **changed})


def test_the_hubs_own_library_reads_metadata_and_results_by_split(tmp_path):
    data = ModelCard.load(save_card(facts(), tmp_path)).data
    assert (data.license, data.language, data.base_model) == ("mit", ["de"], "someone/base")
    assert (data.library_name, data.datasets) == ("transformers", ["rajpurkar/squad"])
    assert data.metrics == ["exact_match", "rouge"]
    found = [
        (one.dataset_split, one.metric_type, one.metric_name, one.metric_value) for one in data.eval_results
    ]
    assert found == [
        ("validation", "exact_match", "Exact Match", 0.5),
        ("test", "rouge", "Rouge1", 30.5),
        ("test", "rouge", "Rougel", 28.0),
    ]
    first = data.eval_results[0]
    assert (first.task_type, first.dataset_type, first.dataset_name) == (
        *("question-answering", "rajpurkar/squad"),
        "SQuAD",
    )
    assert first.dataset_config == "plain_text"


def test_the_body_has_results_evaluations_curves_settings_and_versions(tmp_path):
    text = save_card(facts(), tmp_path).read_text()
    assert (
        "fine-tuned version of [someone/base](https://huggingface.co/someone/base) on the SQuAD dataset."
        in text
    )
    assert "results on the evaluation set:\n- Loss: 1.25\n- Exact Match: 0.5\n" in text
    assert "results on the test set:\n- Rouge1: 30.5\n" in text
    assert "| Training Loss | Epoch | Step | Validation Loss | Exact Match |" in text
    assert "| 1.0           | 2.0   | 40   | 1.25            | 0.5         |" in text
    assert "- learning_rate: 0.001\n" in text
    assert "- Pytorch 2.0\n" in text
    assert "```python\nmodel = load()\n```" in text
    assert f"]({CURVES})" in text
    picture = (tmp_path / CURVES).read_text()
    assert picture.count("<polyline") == 2
    assert "eval_loss" in picture


def test_what_a_person_wrote_between_marks_survives_a_second_run(tmp_path):
    path = save_card(facts(), tmp_path)
    text = path.read_text()
    first = text.index("More information needed")
    text = (
        text[:first]
        + "It answers questions.\n\n<b>Really.</b>"
        + text[first + len("More information needed") :]
    )
    path.write_text(
        text.replace("license: mit", "license: apache-2.0\nthumbnail: me.png").replace(
            "tags:\n", "tags:\n- mine\n"
        )
    )
    save_card(facts(results={"eval": {"exact_match": 0.75}}, license=None), tmp_path)
    again = path.read_text()
    assert "It answers questions.\n\n<b>Really.</b>\n<!-- end of yours: description -->" in again
    assert again.count("More information needed") == 2
    assert "- Exact Match: 0.75" in again
    assert "- Exact Match: 0.5\n" not in again.split("## Model description")[0]
    data = ModelCard.load(path).data
    assert (data.license, data.to_dict()["thumbnail"]) == ("apache-2.0", "me.png")
    assert data.tags == ["generated_from_trainer", "mine"]
    assert not list(tmp_path.glob("README.old*"))


def test_a_part_that_a_person_added_is_kept_at_the_end(tmp_path):
    path = save_card(facts(), tmp_path)
    added = "<!-- yours: thanks -->\nTo all of you.\n<!-- end of yours: thanks -->"
    path.write_text(path.read_text() + added)
    for _ in range(2):
        save_card(facts(), tmp_path)
    assert path.read_text().count("To all of you.") == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("- learning_rate", "- my own learning_rate"),
        lambda text: text.replace("<!-- end of yours: data -->", ""),
        lambda text: "# A card of my own\n",
        lambda text: "---\nlicense: [broken\n---\n# Mine\n",
    ],
)
def test_a_card_that_was_changed_elsewhere_is_kept_under_another_name(tmp_path, change, caplog):
    path = save_card(facts(), tmp_path)
    path.write_text(change(path.read_text()))
    kept = path.read_text()
    save_card(facts(), tmp_path)
    assert (tmp_path / "README.old.md").read_text() == kept
    assert "README.old.md" in caplog.text
    assert "- learning_rate: 0.001" in path.read_text()
    save_card(facts(), tmp_path)
    assert not (tmp_path / "README.old1.md").exists()


def test_the_same_card_is_written_again_byte_by_byte(tmp_path):
    path = save_card(facts(), tmp_path)
    before = path.read_bytes()
    save_card(facts(), tmp_path)
    assert path.read_bytes() == before


def test_a_card_without_results_or_data_is_one_that_the_hub_takes(tmp_path):
    card = ModelCard.load(save_card(CardFacts("net", "footplate"), tmp_path))
    assert card.data.eval_results == []
    assert card.data.model_name == "net"
    assert "trained from scratch on an unknown dataset." in card.text


def test_numbers_that_are_not_finite_and_names_of_any_kind_are_written(tmp_path):
    odd = {"eval": {"f1": float("nan"), "accuracy": 0.5}}
    name = "net: 'a' # <b>"
    data = ModelCard.load(
        save_card(facts(results=odd, base_model=None, datasets=[DatasetFacts(name)]), tmp_path)
    ).data
    assert [(one.metric_type, one.dataset_name) for one in data.eval_results] == [("accuracy", name)]


ALONE = """
import socket, sys
from pathlib import Path
sys.modules["huggingface_hub"] = None
def refuse(*args, **kwargs): raise OSError("no network")
socket.socket.connect = refuse
from footplate.hub.card import CardFacts, save_card
save_card(CardFacts("net", base_model="a/b"), Path(sys.argv[1]))
"""


def test_no_network_and_no_library_of_the_hub_is_needed(tmp_path):
    subprocess.run([sys.executable, "-c", ALONE, str(tmp_path)], check=True)
    assert "# net" in Path(tmp_path, CARD).read_text()
