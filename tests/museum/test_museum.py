"""Scripts and subclasses of past years run with nothing changed but the import line."""

from __future__ import annotations

import csv
import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import footplate
import loopback

MUSEUM = Path(__file__).parent
VERSIONS = ("v4_05", "v4_11", "v4_31", "v4_46", "v5_00", "v5_15")
DIFFERENT = {  # on purpose
    "v5_00_resume": "train_loss",  # of the whole run, also after a resume
    "v5_15_decay_names": "eval_loss",  # of several evaluation sets together
}
Script = Callable[..., dict[str, Any]]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Runs an exhibit as `python <name>.py <arguments>` in an empty folder and returns its variables."""
    monkeypatch.chdir(tmp_path)

    def run(name: str, *arguments: str, library: str = "footplate") -> dict[str, Any]:
        path = MUSEUM / f"{name}.py"
        if library != "footplate":
            text = path.read_text(encoding="utf-8").replace("from footplate import", f"from {library} import")
            path = tmp_path / f"{name}_{library}.py"
            path.write_text(text, encoding="utf-8")
        monkeypatch.setattr(sys, "argv", [str(path), *arguments])
        return runpy.run_path(str(path), run_name="__main__")

    return run


def logged(trainer: Any, key: str) -> list[float]:
    """All logged values of a key, in order."""
    return [entry[key] for entry in trainer.state.log_history if key in entry]


def assert_learned(trainer: Any, share: float = 0.8) -> None:
    """The last logged loss is well below the first."""
    losses = logged(trainer, "loss")
    assert len(losses) > 1
    assert losses[-1] < share * losses[0]


def steps_of(folder: str) -> list[int]:
    """The steps of the checkpoints in a folder."""
    return sorted(int(path.name.split("-")[1]) for path in Path(folder).glob("checkpoint-*"))


def read_json(path: str) -> Any:
    return json.loads(Path(path).read_text(encoding="utf-8"))


def write_rows(path: Path, rows: list[tuple[str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("sentence", "label"), *rows])


# ---- the collection ----


def test_every_version_is_shown_and_every_exhibit_is_tested() -> None:
    names = sorted(path.stem for path in MUSEUM.glob("v*.py"))
    assert len(names) >= 12
    assert {name[:5] for name in names} == set(VERSIONS)
    tests = Path(__file__).read_text(encoding="utf-8")
    assert [name for name in names if f'"{name}"' not in tests] == []


def test_every_exhibit_takes_its_trainer_from_footplate() -> None:
    for path in MUSEUM.glob("v*.py"):
        text = path.read_text(encoding="utf-8")
        assert "from footplate import" in text, path.name
        assert "import footplate" not in text, path.name


# ---- 4.5 ----


def test_4_05_training_step_shows_samples_that_become_right(
    script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    found = script("v4_05_show_samples")
    trainer = found["trainer"]
    assert_learned(trainer, 0.5)
    assert [step for step, _, _ in trainer.samples[::4]] == [0, 20, 40]  # two of each of two micro-batches
    last = [prediction == answer for step, prediction, answer in trainer.samples if step == 40]
    assert all(last)
    assert all(answer in found["CITIES"] for _, _, answer in trainer.samples)
    assert "Question and context: where does" in capsys.readouterr().out
    assert trainer.tokenizer is trainer.processing_class is found["tokenizer"]


def test_4_05_own_train_loop_logs_evaluates_and_saves(script: Script) -> None:
    found = script("v4_05_own_train_loop")
    trainer, result = found["trainer"], found["result"]
    losses = logged(trainer, "loss")
    assert len(losses) == 5
    assert_learned(trainer)
    assert result.global_step == 40
    assert result.training_loss == pytest.approx(sum(losses) / 5, rel=1e-4)
    assert len(logged(trainer, "eval_loss")) == 5
    assert steps_of("loop") == [20, 40]
    assert trainer.shown[-1] < trainer.shown[0]


def test_4_05_own_loss_gives_the_same_update_however_the_batch_is_split(script: Script) -> None:
    found = script("v4_05_multilabel_loss")
    assert_learned(found["trainer"])
    assert found["metrics"]["eval_label_accuracy"] > 0.8
    # dropout draws differ once micro-batches differ in shape, so only the scale can be compared
    whole, split = (logged(found[name], "loss")[:5] for name in ("whole_batches", "trainer"))
    assert split == pytest.approx(whole, rel=0.1)
    whole, split = (logged(found[name], "grad_norm")[:5] for name in ("whole_batches", "trainer"))
    assert split == pytest.approx(whole, rel=0.5)


def test_4_05_argument_names_mean_what_they_meant(script: Script) -> None:
    found = script("v4_05_arguments")
    trainer, args = found["trainer"], found["args"]
    assert_learned(trainer, 0.95)
    assert (args.train_batch_size, args.eval_batch_size) == (8, 16)
    assert type(trainer.optimizer) is footplate.Adafactor
    assert args.device == torch.device("cpu")
    assert logged(trainer, "learning_rate")[:3] == pytest.approx([0.0, 0.01 * 4 / 6, 0.01 * 51 / 54])
    assert found["collator"].padding / found["collator"].total < 0.25  # 0.4 in random order
    assert (args.evaluation_strategy, args.adafactor, args.no_cuda) == ("steps", True, True)
    assert len(logged(trainer, "eval_loss")) == 6
    assert steps_of("old_names") == [50, 60]


def test_4_05_train_goes_on_from_model_path(script: Script) -> None:
    found = script("v4_05_arguments")
    assert found["resumed"].state.global_step == found["second_result"].global_step == 60
    assert found["same_weights"]


# ---- 4.11 ----


@pytest.fixture
def glue_arguments(tmp_path: Path) -> dict[str, Any]:
    """A tiny pretrained model with its tokenizer, three csv files, and the arguments that name them."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", "rain", "wind", "snow", "sun", "heat", "blue", "and", "again"]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=len(words), max_position_embeddings=16, **sizes)).save_pretrained(
        "tiny-bert"
    )
    PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained("tiny-bert")

    rows = [(f"{word} and {word} again", "0" if i < 3 else "1") for i, word in enumerate(words[2:8])]
    for name, copies in (("train", 20), ("validation", 3), ("test", 1)):
        write_rows(tmp_path / f"{name}.csv", rows * copies)
    return {
        "model_name_or_path": "tiny-bert",
        "cache_dir": "cache",
        "train_file": "train.csv",
        "validation_file": "validation.csv",
        "test_file": "test.csv",
        "max_seq_length": 8,
        "do_train": True,
        "do_eval": True,
        "do_predict": True,
        "evaluation_strategy": "epoch",
        "per_device_train_batch_size": 8,
        "learning_rate": 0.01,
        "num_train_epochs": 3,
        "save_steps": 20,
        "logging_steps": 5,
        "output_dir": "glue",
        "no_cuda": True,
    }


def test_4_11_run_glue_from_the_command_line_writes_all_its_files(
    script: Script, glue_arguments: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    line = [text for name, value in glue_arguments.items() for text in (f"--{name}", str(value))]
    script("v4_11_run_glue", *line, "--pad_to_max_length", "False", "--overwrite_output_dir")
    results = read_json("glue/all_results.json")
    assert results["eval_accuracy"] == 1.0
    assert results["train_samples"] == 120
    assert read_json("glue/eval_results.json")["eval_loss"] < 0.3
    assert Path("glue/predict_results.txt").read_text().splitlines()[1:] == [
        *(f"{i}\t0" for i in range(3)),
        *(f"{i}\t1" for i in range(3, 6)),
    ]
    assert read_json("glue/trainer_state.json")["global_step"] == 45
    assert steps_of("glue") == [20, 40, 45]
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= {
        path.name for path in Path("glue").iterdir()
    }
    assert "***** eval metrics *****" in capsys.readouterr().out


def test_4_11_run_glue_from_a_json_file_resumes_what_it_finds(
    script: Script, glue_arguments: dict[str, Any]
) -> None:
    Path("first.json").write_text(json.dumps({**glue_arguments, "max_steps": 20, "save_strategy": "steps"}))
    script("v4_11_run_glue", "first.json")
    assert steps_of("glue") == [20]
    Path("second.json").write_text(json.dumps(glue_arguments))
    script("v4_11_run_glue", "second.json")
    state = read_json("glue/trainer_state.json")
    assert state["global_step"] == 45
    losses = [entry["step"] for entry in state["log_history"] if "loss" in entry]
    assert losses == sorted(set(losses))
    assert read_json("glue/all_results.json")["eval_accuracy"] == 1.0


def test_4_11_question_answering_trainer_scores_whole_answers(script: Script) -> None:
    found = script("v4_11_question_answering")
    trainer = found["trainer"]
    assert_learned(trainer, 0.2)
    assert found["metrics"]["eval_exact_match"] > 90
    assert found["results"].metrics == {"test_exact_match": found["metrics"]["eval_exact_match"]}
    assert found["results"].predictions[0]["prediction_text"] in found["WHAT"]
    assert trainer.state.best_metric == max(logged(trainer, "eval_exact_match"))
    assert trainer.state.best_model_checkpoint.endswith(f"checkpoint-{trainer.state.best_global_step}")
    assert trainer.compute_metrics is found["compute_metrics"]


def test_4_11_own_log_save_evaluate_is_all_that_happens(script: Script) -> None:
    found = script("v4_11_log_save_evaluate")
    trainer, result = found["trainer"], found["result"]
    losses = logged(trainer, "loss")
    assert len(losses) == 8
    assert_learned(trainer, 0.5)
    assert result.training_loss == pytest.approx(sum(losses) / 8, abs=1e-4)
    assert "grad_norm" not in trainer.state.log_history[0]
    assert [step for step, _, _ in trainer.table] == [10, 20, 30, 40]
    assert trainer.table[-1][1] < trainer.table[0][1]
    assert steps_of("two_sets") == [30, 40]
    near = {step: loss for step, loss, _ in trainer.table}
    assert trainer.state.best_metric == min(near.values())  # the far set never counts


def test_4_11_optimizer_and_schedule_of_the_script_are_used(script: Script) -> None:
    trainer = script("v4_11_layerwise_rates")["trainer"]
    assert_learned(trainer)
    assert len(trainer.optimizer.param_groups) == 5
    initial = [group["initial_lr"] for group in trainer.optimizer.param_groups]
    assert initial == [2.5e-3, 2.5e-3, 5e-3, 5e-3, 5e-3]
    rates = logged(trainer, "learning_rate")
    assert rates.index(max(rates)) == 4  # after four updates of warm-up


def test_4_11_early_stopping_ends_the_run_with_the_best_model(script: Script) -> None:
    found = script("v4_11_early_stopping")
    trainer = found["trainer"]
    assert_learned(trainer)
    accuracies = logged(trainer, "eval_accuracy")[:-1]
    assert len(accuracies) < 30
    assert found["metrics"]["eval_accuracy"] == max(accuracies) > 0.9
    assert trainer.state.best_metric == max(accuracies)
    assert trainer.state.best_global_step in steps_of("best")
    assert len(steps_of("best")) <= 2  # the best and the latest


def test_4_11_prediction_step_decides_what_metrics_see(script: Script) -> None:
    found = script("v4_11_prediction_step")
    trainer = found["trainer"]
    assert_learned(trainer)
    assert trainer.num_steps_seen == found["expected_eval_steps"] * 9
    assert found["predictions"].shape == found["label_ids"].shape == (60, 8)
    assert found["metrics"]["test_accuracy"] > 0.7


# ---- 4.31 ----


def test_4_31_backward_of_the_accelerator_averages_over_the_update(script: Script) -> None:
    found = script("v4_31_training_step")
    whole, split = found["plain_whole"], found["plain_split"]
    assert logged(split, "loss") == pytest.approx(logged(whole, "loss"), rel=1e-3)
    assert logged(split, "grad_norm") == pytest.approx(logged(whole, "grad_norm"), rel=1e-2)
    assert found["trainer"].num_attacks == 160
    assert_learned(found["trainer"])


def test_4_31_sampler_and_loss_favour_the_rare_class(script: Script) -> None:
    found = script("v4_31_class_weights")
    trainer, rows = found["trainer"], found["rows"]
    share = sum(row["labels"] for row in rows) / len(rows)
    assert share < 0.2
    assert len(trainer.drawn) == 4 * len(rows)
    assert sum(trainer.drawn) / len(trainer.drawn) == pytest.approx(0.5, abs=0.06)
    assert_learned(trainer)
    assert found["metrics"]["eval_recall_of_rare"] > 0.8
    assert found["metrics"]["eval_input_width"] == 6
    assert steps_of("imbalanced") == [52]


def test_4_31_checkpoints_hold_adapters_and_metrics(script: Script) -> None:
    from peft import PeftModel

    found = script("v4_31_save_checkpoint")
    trainer = found["trainer"]
    assert steps_of("lora") == [10, 20, 30]
    for step, loss in zip((10, 20, 30), logged(trainer, "eval_loss"), strict=True):
        assert read_json(f"lora/checkpoint-{step}/metrics.json")["eval_loss"] == loss
        assert Path(f"lora/checkpoint-{step}/who.txt").is_file()
        assert Path(f"lora/checkpoint-{step}/adapter_model/adapter_model.safetensors").is_file()
    assert_learned(trainer, 0.99)
    saved = PeftModel.from_pretrained(found["base"], "lora/checkpoint-30/adapter_model").state_dict()
    assert all(torch.equal(saved[name], value) for name, value in trainer.model.state_dict().items())


def test_4_31_extra_losses_are_logged_beside_the_loss(script: Script) -> None:
    trainer = script("v4_31_extra_losses")["trainer"]
    assert_learned(trainer)
    losses = logged(trainer, "loss")
    parts = zip(logged(trainer, "reconstruction"), logged(trainer, "classification"), strict=True)
    assert [sum(pair) for pair in parts] == pytest.approx(losses, rel=1e-5)
    assert len(losses) == 8
    assert logged(trainer, "eval_perplexity") == [
        pytest.approx(2.718281828**x) for x in logged(trainer, "eval_loss")
    ]


def test_4_31_create_optimizer_gives_the_head_its_own_rate(script: Script) -> None:
    found = script("v4_31_create_optimizer")
    trainer = found["trainer"]
    assert_learned(trainer, 0.5)
    assert [group["initial_lr"] for group in trainer.optimizer.param_groups] == [2e-3, 2e-3, 2e-2, 2e-2]
    rates = logged(trainer, "learning_rate")
    assert rates.index(max(rates)) == 4  # a quarter of 16 updates warms up
    assert read_json("vit/eval_results.json")["eval_loss"] == found["metrics"]["eval_loss"]


def test_4_31_callback_that_evaluates_the_training_set_does_not_disturb_the_best(script: Script) -> None:
    trainer = script("v4_31_train_metrics_callback")["trainer"]
    assert len(logged(trainer, "train_accuracy")) == len(logged(trainer, "eval_accuracy")) == 5
    assert logged(trainer, "train_accuracy")[-1] > 0.8
    assert trainer.state.best_metric == max(logged(trainer, "eval_accuracy"))
    assert steps_of("moons") == [10, 20, 30, 40, 50]


def test_4_31_language_model_resumes_and_reports_perplexity(script: Script) -> None:
    found = script("v4_31_causal_lm")
    trainer = found["trainer"]
    assert found["last_checkpoint"].endswith("checkpoint-15")
    assert [entry["step"] for entry in trainer.state.log_history if "loss" in entry] == list(range(5, 50, 5))
    assert trainer.state.log_history[0] == found["first"].state.log_history[0]
    assert_learned(trainer, 0.3)
    assert found["metrics"]["perplexity"] < 2
    assert found["metrics"]["eval_accuracy"] > 0.8
    results = read_json("clm/all_results.json")
    assert results["perplexity"] == found["metrics"]["perplexity"]
    assert found["next_word"].words[-1] == "green"
    assert steps_of("clm") == [45]


# ---- 4.46 ----


def test_4_46_items_of_the_update_divide_the_loss(script: Script) -> None:
    found = script("v4_46_num_items")
    whole, split = found["whole"], found["trainer"]
    assert logged(split, "loss") == pytest.approx(logged(whole, "loss"), rel=1e-4)
    assert logged(split, "grad_norm") == pytest.approx(logged(whole, "grad_norm"), rel=1e-3)
    assert_learned(split)
    per_epoch = sum(sum(label != -100 for label in row["labels"][1:]) for row in found["make_rows"]())
    assert sum(whole.seen_counts) == 4 * per_epoch
    assert split.seen_counts[::4][:2] == whole.seen_counts[:2]
    assert found["metrics"]["eval_loss"] < logged(split, "loss")[0]


def test_4_46_own_log_save_evaluate_gets_norm_and_start_time(script: Script) -> None:
    found = script("v4_46_log_save_evaluate")
    trainer = found["trainer"]
    assert_learned(trainer, 0.5)
    assert len(logged(trainer, "grad_norm")) == 8
    assert 0 < trainer.seconds < 60
    assert len(logged(trainer, "eval_loss")) == 8 - trainer.num_skipped
    assert found["result"].training_loss == pytest.approx(sum(logged(trainer, "loss")) / 8, abs=1e-4)
    assert trainer.state.best_metric == min(logged(trainer, "eval_loss"))
    assert trainer.state.best_global_step in steps_of("thrifty")


def test_4_46_arguments_of_the_script_come_from_the_command_line(script: Script) -> None:
    line = (
        "--output_dir contrast --max_steps 60 --learning_rate 0.01 --per_device_train_batch_size 16 --use_cpu"
    )
    line += " --per_device_eval_batch_size 16 --include_for_metrics loss --report_to none --temperature 0.2"
    script(
        "v4_46_custom_arguments",
        *line.split(),
        "--distance=dot",
        "--freeze",
        "first",
        "--num_pairs",
        "48",
        "--hidden=32",
    )
    results = read_json("contrast/eval_results.json")
    assert results["eval_loss"] < 0.8 * results["eval_loss_before"]
    assert results["eval_mean_loss"] == pytest.approx(results["eval_loss"])
    assert results["eval_retrieval"] > 0.3
    assert Path("contrast/model.safetensors").is_file()
    with pytest.raises(ValueError, match="temperature must be positive"):
        script("v4_46_custom_arguments", "--output_dir", "contrast", "--temperature", "0")


# ---- 5.0 and 5.15 ----


def test_5_00_loss_function_and_processing_class_are_used(script: Script) -> None:
    found = script("v5_00_compute_loss_func")
    trainer = found["trainer"]
    assert_learned(trainer, 0.3)
    assert trainer.state.best_metric == 1.0
    assert Path("focal/final/tokenizer.json").is_file()
    assert trainer.data_collator.tokenizer is found["tokenizer"]


def test_5_00_columns_of_pairs_reach_the_collator(script: Script) -> None:
    found = script("v5_00_preference_pairs")
    assert found["metrics"]["eval_accuracy"] == 1.0
    assert_learned(found["trainer"], 0.3)
    assert found["trainer"]._signature_columns == ["chosen_ids", "rejected_ids", "margin"]


def test_5_00_a_resumed_run_ends_as_the_whole_one(script: Script) -> None:
    found = script("v5_00_resume")
    assert found["halted"].state.global_step == 27
    assert found["same_weights"]
    for key in ("loss", "grad_norm", "learning_rate", "train_loss"):
        assert logged(found["trainer"], key) == logged(found["whole"], key)


def test_5_15_push_to_hub_sends_what_the_original_sends(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import CommitInfo, ModelCard

    sent = {}
    for library in ("footplate", "transformers"):
        (tmp_path / library).mkdir()
        monkeypatch.chdir(tmp_path / library)
        hub = loopback.LoopbackHub()
        loopback.point_client_at(hub, monkeypatch)
        found = script("v5_15_push_to_hub", library=library)
        hub.close()
        repo = hub.repos["me/shared"]
        assert found["trainer"].hub_model_id == "me/shared"
        assert isinstance(found["commit"], CommitInfo)
        assert isinstance(found["later"], CommitInfo)
        assert found["pushes"].pushes == 3
        assert repo.is_private
        last = [message for _, message, _ in repo.commits[-2:]]
        assert last == ["End of training", "Bias of zero"]
        sent[library] = repo.branches["main"]
    ours, theirs = sent["footplate"], sent["transformers"]
    assert set(theirs) - set(ours) == set()
    more = {name for name in set(ours) - set(theirs) if "/" not in name}
    assert more <= {"training_curves.svg", "log_history.csv"}
    assert ours["model.safetensors"] == theirs["model.safetensors"]
    assert ours["last-checkpoint/model.safetensors"] == theirs["last-checkpoint/model.safetensors"]
    cards = [ModelCard(files["README.md"].decode()).data.to_dict() for files in (ours, theirs)]
    assert cards[0]["model-index"][0]["results"][0]["dataset"].pop("split") == "validation"
    assert cards[0] == cards[1]


def test_5_15_callbacks_are_called_with_what_they_name(script: Script) -> None:
    found = script("v5_15_callbacks")
    trainer, said = found["trainer"], found["generate"].said
    assert said[0].startswith("gently down")
    assert said[-1] == "gently down the stream merrily merrily"
    assert len(found["watch"].norms) == len(found["watch"].rates) == trainer.state.global_step
    last_of_epochs = found["watch"].norms[5::6]
    assert last_of_epochs == pytest.approx(logged(trainer, "grad_norm"), rel=1e-5)
    assert found["journal"].events[0] == ("train_begin", 6)
    assert found["journal"].events[-1] == ("train_end", trainer.state.global_step)
    assert trainer.state.global_step < 120
    assert ("save", 6) in found["journal"].events
    assert len(found["journal"].logs) == len(trainer.state.log_history)


def test_5_15_decay_names_and_optimizer_class_are_used(script: Script) -> None:
    found = script("v5_15_decay_names")
    trainer = found["trainer"]
    assert type(trainer.optimizer) is torch.optim.NAdam
    decaying = {id(parameter) for parameter in trainer.optimizer.param_groups[0]["params"]}
    embeddings = [value for name, value in trainer.model.named_parameters() if "embeddings" in name]
    assert not decaying & {id(parameter) for parameter in embeddings}
    assert sum(trainer.group_sizes) == len(list(trainer.model.parameters()))
    assert len(logged(trainer, "eval_low_loss")) == len(logged(trainer, "eval_high_loss")) == 4


def test_5_15_the_student_follows_the_teacher(script: Script) -> None:
    trainer = script("v5_15_distillation")["trainer"]
    assert (trainer.args.alpha, trainer.args.temperature) == (0.3, 2.0)
    assert_learned(trainer)
    assert logged(trainer, "eval_accuracy")[-1] > 0.9


@pytest.mark.parametrize(
    "name",
    [
        "v5_00_compute_loss_func",
        "v5_00_preference_pairs",
        "v5_00_resume",
        "v5_15_callbacks",
        "v5_15_decay_names",
        "v5_15_distillation",
    ],
)
def test_with_the_import_line_changed_back_the_log_is_the_same(
    script: Script, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def entries(library: str) -> list[dict[str, Any]]:
        folder = tmp_path / library
        folder.mkdir()
        monkeypatch.chdir(folder)
        history = script(name, library=library)["trainer"].state.log_history
        left_out = ("_runtime", "_per_second", DIFFERENT.get(name, "_runtime"))
        kept = [{key: entry[key] for key in entry if not key.endswith(left_out)} for entry in history]
        return [entry for entry in kept if entry.keys() != {"epoch", "step"}]

    assert entries("footplate") == entries("transformers")


def test_5_15_a_search_gives_what_the_original_gives(script: Script) -> None:
    ours, theirs = script("v5_15_search"), script("v5_15_search", library="transformers")
    for found in (ours, theirs):
        assert isinstance(found["best_trials"], list)
        assert all(len(run.objective) == 2 for run in found["best_trials"])
        assert_learned(found["trainer"], 0.9)
    mine, original = ours["best_run"], theirs["best_run"]
    # the original trains again with the batch size of the last trial, whatever the script sets
    assert ours["trainer"].state.train_batch_size == mine.hyperparameters["per_device_train_batch_size"]
    assert (mine.run_id, mine.hyperparameters) == (original.run_id, original.hyperparameters)
    assert mine.objective == pytest.approx(original.objective, rel=1e-6)
    assert {run.run_id for run in ours["best_trials"]} == {run.run_id for run in theirs["best_trials"]}
    assert sorted(Path("searched").glob("run-*/checkpoint-*"))
