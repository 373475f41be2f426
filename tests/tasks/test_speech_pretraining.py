"""Pretraining on sounds alone: hidden moments are told from others of the same sound."""

import copy
import math

import pytest
import soundfile
import torch

from footplate import TrainerCallback
from footplate.tasks import TaskError
from footplate.tasks.common import contrast
from tasks import small, tones

NUM_OTHERS = 10


def flags(tmp_path, *words):
    """Flags of a small model with random weights, for the folder dev."""
    config = tones.small_wav2vec2(
        tmp_path / "config",
        num_negatives=NUM_OTHERS,
        num_codevectors_per_group=16,
        codevector_dim=32,
        proj_codevector_dim=32,
        mask_time_prob=0.5,
        mask_time_length=3,
    )
    return [
        *("--config_name", config, "--feature_extractor_name", config, "--report_to", "none"),
        *("--validation_file", tmp_path / "dev", "--min_duration_in_seconds", 0.1, "--do_eval"),
        *("--learning_rate", "2e-3", "--warmup_steps", 20, "--output_dir", tmp_path / "out", *words),
    ]


def test_hidden_moments_are_told_from_others(tmp_path):
    tones.write_words(tmp_path / "train", 150, 0)
    tones.write_words(tmp_path / "dev", 30, 1)
    before = small.run("speech_pretraining", *flags(tmp_path))
    words = flags(tmp_path, "--do_train", "--train_file", tmp_path / "train", "--num_train_epochs", 12)
    after = small.run("speech_pretraining", *words)
    chance = math.log(NUM_OTHERS + 1)  # 2.4
    assert before["eval_contrastive_loss"] > 0.9 * chance
    assert after["eval_contrastive_loss"] < 0.6 * chance  # seen: 2.53, then 0.96
    assert after["eval_accuracy"] > before["eval_accuracy"] + 0.3  # seen: 0.22, then 0.71
    assert after["eval_codevector_perplexity"] > 8  # seen: 14.7; with one code for all, both mean nothing
    logged = [entry for entry in small.losses_in(tmp_path / "out") if "train_loss" not in entry]
    assert all("contrastive_loss" in entry for entry in logged)


def test_the_loss_is_that_of_one_hidden_moment_however_batches_are_cut(tmp_path):
    """The gradient of an update is the one of the original's loop: of the sum, divided by the moments."""
    from transformers import Wav2Vec2Config, Wav2Vec2FeatureExtractor, Wav2Vec2ForPreTraining

    flags(tmp_path)
    settings = {
        f"{name}_dropout": 0.0 for name in ("attention", "activation", "feat_proj", "hidden", "final")
    }
    config = Wav2Vec2Config.from_pretrained(tmp_path / "config", layerdrop=0.0, **settings)
    extractor = Wav2Vec2FeatureExtractor.from_pretrained(tmp_path / "config")
    torch.manual_seed(0)
    model = Wav2Vec2ForPreTraining(config)
    sounds = [torch.randn(length).tolist() for length in (3000, 2600, 3200)]
    batch = contrast.HidingCollator(extractor, config, 0.5, 3, None)(
        [{"input_values": row} for row in sounds]
    )
    lengths = [int(model._get_feat_extract_output_lengths(len(row))) for row in sounds]
    hidden = batch["mask_time_indices"]
    assert hidden.shape[1] == max(lengths)
    assert all(hidden[row, length:].sum() == 0 for row, length in enumerate(lengths))  # no padding is hidden

    from footplate import TrainingArguments

    twin = copy.deepcopy(model)
    args = TrainingArguments(str(tmp_path / "trainer"), report_to="none", label_names=["mask_time_indices"])
    trainer = contrast.ContrastTrainer(model, args, train_dataset=[{"input_values": sounds[0]}])
    trainer.record = lambda name, value: None
    torch.manual_seed(1)
    loss = trainer.compute_loss(model.train(), dict(batch))
    loss.backward()
    torch.manual_seed(1)
    twin.train()(**batch).loss.backward()
    assert loss.item() < 2 * math.log(NUM_OTHERS + 1)
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        if theirs.grad is not None:
            torch.testing.assert_close(mine.grad, theirs.grad / hidden.sum())


def test_codes_are_chosen_less_and_less_freely_and_a_resumed_run_has_the_same_temperature(
    tmp_path, monkeypatch
):
    tones.write_words(tmp_path / "train", 16, 0)
    tones.write_words(tmp_path / "dev", 4, 1)
    seen = []

    class Spy(TrainerCallback):
        def on_step_end(self, args, state, control, model=None, **kwargs):
            seen.append(model.quantizer.temperature)

    original = contrast.ContrastTrainer.__init__

    def build(self, *args, **kwargs):
        original(self, *args, **{**kwargs, "callbacks": [*kwargs["callbacks"], Spy()]})

    monkeypatch.setattr(contrast.ContrastTrainer, "__init__", build)
    words = ["--do_train", "--train_file", tmp_path / "train", "--gumbel_temperature_decay", 0.5]
    words += ["--max_train_steps", 5, "--saving_steps", 3, "--num_warmup_steps", 0]
    small.run("speech_pretraining", *flags(tmp_path, *words))
    assert seen == [2.0, 2.0, 1.0, 0.5, 0.5]
    seen.clear()
    small.run(
        "speech_pretraining",
        *flags(tmp_path, *words, "--resume_from_checkpoint", tmp_path / "out" / "checkpoint-3"),
    )
    assert seen == [0.5, 0.5]


def test_long_sounds_are_cut_short_ones_left_out_and_the_first_rows_evaluated(tmp_path, caplog):
    rows = tones.write_words(tmp_path / "train", 20, 0)
    for row in rows[10:15]:
        soundfile.write(tmp_path / row["audio"], torch.randn(3 * tones.RATE).numpy() / 10, tones.RATE)
    for row in rows[15:18]:
        soundfile.write(tmp_path / row["audio"], torch.randn(400).numpy() / 10, tones.RATE)
    small.write_csv(tmp_path / "train.csv", rows)
    words = flags(tmp_path, "--do_train", "--train_file", tmp_path / "train.csv", "--max_steps", 1)
    place = words.index("--validation_file")
    words = [*words[:place], *words[place + 2 :], "--max_duration_in_seconds", 1]
    with pytest.raises(TaskError, match="--validation_split_percentage 1 of 20 rows are 0"):
        small.run("speech_pretraining", *words)
    results = small.run("speech_pretraining", *words, "--validation_split_percentage", 20)
    assert results["train_samples"] == 13
    assert results["eval_samples"] == 4
    assert "3 of 16 train rows are left out" in caplog.text


def test_weights_are_random_unless_pretraining_continues(tmp_path):
    from safetensors.torch import load_file

    tones.write_words(tmp_path / "train", 8, 0)
    tones.write_words(tmp_path / "dev", 4, 1)
    one = ["--do_train", "--train_file", tmp_path / "train", "--max_steps", 1, "--learning_rate", "1e-9"]
    small.run("speech_pretraining", *flags(tmp_path, *one))
    first = load_file(tmp_path / "out" / "model.safetensors")["project_hid.weight"]
    start = [*flags(tmp_path, *one)[4:], "--model_name_or_path", tmp_path / "out", "--seed", 7]
    folder = tmp_path / "again"
    small.run("speech_pretraining", *start, "--output_dir", folder)
    assert not torch.allclose(load_file(folder / "model.safetensors")["project_hid.weight"], first, atol=1e-4)
    folder = tmp_path / "continued"
    small.run("speech_pretraining", *start, "--output_dir", folder, "--continue_pretraining")
    assert torch.allclose(load_file(folder / "model.safetensors")["project_hid.weight"], first, atol=1e-4)


def test_a_model_that_cannot_be_pretrained_and_a_broken_sound_are_named(tmp_path):
    tones.write_words(tmp_path / "train", 8, 0)
    tones.write_words(tmp_path / "dev", 4, 1)
    words = flags(tmp_path, "--do_train", "--train_file", tmp_path / "train")
    with pytest.raises(
        TaskError, match="--config_overrides do_stable_layer_norm=True,feat_extract_norm=layer"
    ):
        small.run("speech_pretraining", *words, "--config_overrides", "do_stable_layer_norm=False")
    (tmp_path / "train" / "3.flac").write_bytes(b"fLaC")
    with pytest.raises(TaskError, match=r"train: 1 of 8 rows cannot be used: row 4: .*3\.flac is no sound"):
        small.run("speech_pretraining", *words)
