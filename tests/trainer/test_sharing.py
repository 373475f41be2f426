"""What the Trainer says of its model, beside what the original says of the same run."""

from __future__ import annotations

import re

import pytest
from huggingface_hub import ModelCard

import footplate
import tiny


def trained(folder, library=footplate, **settings):
    trainer = tiny.build_trainer(
        folder,
        tiny.bert_classifier(),
        tiny.classification_data(),
        tiny.classification_data(12),
        library=library,
        options={"compute_metrics": tiny.accuracy},
        **{"num_train_epochs": 2, "eval_strategy": "epoch", "logging_steps": 2, **settings},
    )
    trainer.train()
    return trainer


GIVEN = {
    "language": "en",
    "license": "mit",
    "tags": ["mine"],
    "model_name": "net",
    "finetuned_from": "someone/base",
    "tasks": "text-classification",
    "dataset_tags": "nyu-mll/glue",
    "dataset": "GLUE SST2",
    "dataset_args": "sst2",
}


def read_list(card, heading):
    """The bullets under a heading."""
    part = card.text.split(heading)[1].split("\n#")[0]
    return dict(re.findall(r"^- (\w+): (.*)$", part, flags=re.MULTILINE))


@pytest.mark.parametrize("given", [GIVEN, {}])
def test_the_card_has_what_that_of_the_original_has(tmp_path, given):
    import transformers

    cards = []
    settings = {
        "gradient_accumulation_steps": 2,
        "warmup_steps": 3,
        "max_steps": 6,
        "label_smoothing_factor": 0.1,
    }
    for library in (footplate, transformers):
        folder = tmp_path / library.__name__ / "net"
        trained(folder, library, **settings).create_model_card(**given)
        cards.append(ModelCard.load(folder / "README.md"))
    ours, theirs = cards
    front, other = ours.data.to_dict(), theirs.data.to_dict()
    for one, them in zip(front["model-index"][0]["results"], other["model-index"][0]["results"], strict=True):
        assert one["dataset"].pop("split") == "validation"
        assert one == them
    assert front == other
    headings = re.compile(r"^#+ .*$", flags=re.MULTILINE)
    assert [line for line in headings.findall(ours.text) if line != "## How to load it"] == headings.findall(
        theirs.text
    )
    mine, original = (read_list(card, "### Training hyperparameters") for card in cards)
    for settings_of in (mine, original):
        settings_of["optimizer"] = settings_of["optimizer"].lower().replace("optimizernames.", "")
    assert {name: mine.get(name) for name in original} == original
    tables = [re.findall(r"^\|.*\|$", card.text, flags=re.MULTILINE) for card in cards]
    assert tables[0] == tables[1]
    results = [card.text.split("evaluation set:\n")[1].split("\n\n")[0] for card in cards]
    assert results[0] == results[1]


def test_results_are_those_of_the_model_that_was_kept(tmp_path):
    settings = {"load_best_model_at_end": True, "metric_for_best_model": "accuracy", "save_strategy": "epoch"}
    trainer = trained(tmp_path, num_train_epochs=4, learning_rate=5e-3, **settings)
    trainer.create_model_card(dataset="rows")
    best = max(entry["eval_accuracy"] for entry in trainer.state.log_history if "eval_accuracy" in entry)
    (result,) = ModelCard.load(tmp_path / "README.md").data.eval_results
    assert result.metric_value == best == trainer.evaluate()["eval_accuracy"]


def test_a_dataset_of_the_library_datasets_names_itself(tmp_path):
    import datasets

    rows = datasets.Dataset.from_list(tiny.classification_data(8), split="validation")
    rows.info.builder_name, rows.info.config_name = "parquet", "sst2"
    rows.info.download_checksums = {"hf://datasets/nyu-mll/glue@abc/sst2/train.parquet": {}}
    trainer = tiny.build_trainer(tmp_path, tiny.bert_classifier(), rows, rows)
    trainer.evaluate()
    trainer.create_model_card()
    card = ModelCard.load(tmp_path / "README.md")
    assert card.data.datasets == ["nyu-mll/glue"]
    (result,) = card.data.eval_results
    assert (result.dataset_config, result.dataset_split, result.metric_type) == ("sst2", "validation", "loss")
    assert "Evaluation: 8 rows with the columns input_ids, labels" in card.text


def test_an_adapter_is_described_as_one(tmp_path):
    from peft import LoraConfig, get_peft_model

    base = tiny.bert_classifier()
    base.config._name_or_path = "someone/base"
    config = LoraConfig(task_type="SEQ_CLS", target_modules=["query"], r=2)
    trainer = tiny.build_trainer(
        tmp_path, get_peft_model(base, config), tiny.classification_data(), max_steps=1
    )
    trainer.train()
    trainer.save_model()  # PEFT writes a card of its own
    trainer.create_model_card(tags="mine")
    trainer.save_model()
    trainer.create_model_card(tags="mine")
    card = ModelCard.load(tmp_path / "README.md")
    assert (card.data.library_name, card.data.base_model) == ("peft", "someone/base")
    assert {"mine", "generated_from_trainer", "lora", "base_model:adapter:someone/base"} <= set(
        card.data.tags
    )
    assert "AutoPeftModelForSequenceClassification.from_pretrained" in card.text
    assert "- PEFT " in card.text
    assert not list(tmp_path.glob("README.old*"))


def test_any_module_gets_a_card_and_no_path_of_this_machine_is_in_it(tmp_path):
    trainer = tiny.build_trainer(
        tmp_path / "line",
        tiny.Regression(),
        tiny.regression_data(8),
        max_steps=1,
        optim="sgd",
        hub_token="hf_secret",
    )
    trainer.train()
    trainer.create_model_card()
    text = (tmp_path / "line" / "README.md").read_text()
    assert 'load_model(model, "line/model.safetensors")' in text
    assert str(tmp_path) not in text
    assert "hf_secret" not in text
    assert ModelCard(text).data.library_name == "footplate"


def test_only_the_first_process_writes_a_card(tmp_path, monkeypatch):
    trainer = tiny.build_trainer(tmp_path, tiny.Regression(), tiny.regression_data(8))
    monkeypatch.setattr(type(trainer), "is_world_process_zero", lambda self: False)
    trainer.create_model_card()
    assert not (tmp_path / "README.md").exists()
