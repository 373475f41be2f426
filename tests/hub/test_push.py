"""Pushes by the real client to a Hub on the loopback: what arrives, what is named if not, no token."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file

import footplate
import tiny
from footplate.cli.main import main
from footplate.hub import publisher as publishing
from loopback import TOKEN

SAVING = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2}


class Pushes(footplate.TrainerCallback):
    def __init__(self):
        self.steps = []

    def on_push_begin(self, args, state, control, **kwargs):
        self.steps.append(state.global_step)


def build(folder, **settings):
    options = {"callbacks": [Pushes()]}
    chosen = {"push_to_hub": True, "hub_token": TOKEN, "max_steps": 2, **settings}
    return tiny.build_trainer(folder, tiny.Regression(), tiny.regression_data(32), options=options, **chosen)


def pushes_of(trainer):
    return next(one.steps for one in trainer.callback_handler.callbacks if isinstance(one, Pushes))


def weights_of(trainer):
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def assert_no_token(folder, *texts):
    """The token is in no file of a run, and in none of the texts."""
    for path in Path(folder).rglob("*"):
        assert not path.is_file() or TOKEN.encode() not in path.read_bytes(), path
    for text in texts:
        assert TOKEN not in text


# ---- what arrives ----


def test_a_push_at_the_end_sends_model_card_and_results(client, tmp_path):
    trainer = build(tmp_path / "net", hub_strategy="end", **{**SAVING, "max_steps": 2})
    assert trainer.hub_model_id == "me/net"
    trainer.train()
    assert client.repos["me/net"].commits == []
    commit = trainer.push_to_hub("The end", tags="mine", license="mit")
    assert commit.commit_url.startswith(client.address)
    ((branch, message, _),) = client.repos["me/net"].commits
    assert (branch, message) == ("main", "The end")
    files = client.repos["me/net"].branches["main"]
    assert {"model.safetensors", "README.md", "training_args.bin"} <= set(files)
    assert not [
        name for name in files if name.startswith(("checkpoint", "events", "hub", "report", ".", "trackers"))
    ]
    card = ModelCard(files["README.md"].decode())
    assert card.data.license == "mit"
    assert "# net\n" in card.text
    (tmp_path / "got.safetensors").write_bytes(files["model.safetensors"])
    got = load_file(tmp_path / "got.safetensors")
    assert torch.equal(got["slope"], trainer.model.slope)
    assert pushes_of(trainer) == [2]
    assert_no_token(tmp_path)


def test_save_model_pushes_too_and_only_once(client, tmp_path):
    trainer = build(tmp_path / "net", hub_model_id="team/other")
    trainer.train()
    trainer.save_model()
    ((_, message, _),) = client.repos["team/other"].commits
    assert message == "Model save"
    assert trainer.push_in_progress.is_done()


@pytest.mark.parametrize(
    ("strategy", "folders"),
    [
        ("every_save", set()),
        ("checkpoint", {"last-checkpoint"}),
        ("all_checkpoints", {f"checkpoint-{n}" for n in (2, 4, 6)}),
    ],
)
def test_each_strategy_sends_sealed_checkpoints(client, tmp_path, strategy, folders):
    trainer = build(tmp_path / "net", hub_strategy=strategy, hub_always_push=True, **SAVING)
    trainer.train()
    trainer._finish_current_push()
    repo = client.repos["me/net"]
    assert [message for _, message, _ in repo.commits] == [
        f"Training in progress, step {n}" for n in (2, 4, 6)
    ]
    files = repo.branches["main"]
    assert {name.split("/")[0] for name in files if "/" in name} == folders
    last = (tmp_path / "net" / "checkpoint-6" / "model.safetensors").read_bytes()
    assert files["model.safetensors"] == last
    for folder in folders:
        assert {f"{folder}/manifest.json", f"{folder}/optimizer.pt"} <= set(files)
    assert not (tmp_path / "net" / ".push").exists()
    assert len(pushes_of(trainer)) == 3
    assert publishing.load_ledger(tmp_path / "net").waiting == []
    assert_no_token(tmp_path)


def test_a_checkpoint_from_the_hub_resumes_the_run(client, tmp_path):
    trainer = build(tmp_path / "net", hub_strategy="checkpoint", hub_always_push=True, **SAVING)
    trainer.train()
    trainer._finish_current_push()
    place = tmp_path / "copy" / "checkpoint-6"
    for name, content in client.repos["me/net"].branches["main"].items():
        if name.startswith("last-checkpoint/"):
            path = place / name.removeprefix("last-checkpoint/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    resumed = tiny.build_trainer(tmp_path / "copy", tiny.Regression(), tiny.regression_data(32), **SAVING)
    assert resumed.train(resume_from_checkpoint=str(place)).global_step == 6
    assert torch.equal(resumed.model.slope, trainer.model.slope)


def test_a_revision_is_made_and_a_new_repository_is_private(client, tmp_path):
    trainer = build(tmp_path / "net", hub_revision="dev", hub_private_repo=True)
    trainer.train()
    trainer.push_to_hub()
    trainer.push_to_hub(revision="other")
    repo = client.repos["me/net"]
    assert repo.is_private
    assert repo.branches["main"] == {}
    assert "model.safetensors" in repo.branches["dev"]
    assert [branch for branch, _, _ in repo.commits] == ["dev", "other"]


def test_without_push_to_hub_nothing_is_made_until_it_is_asked_for(client, tmp_path):
    trainer = build(tmp_path / "net", push_to_hub=False, hub_token=None, **SAVING)
    trainer.train()
    trainer.save_model()
    assert not client.requests
    assert trainer.hub_model_id is None
    trainer.init_git_repo()
    assert trainer.hub_model_id == "me/net"
    future = trainer.push_to_hub(blocking=False)
    assert future.result(30).oid
    assert_no_token(tmp_path)


def test_what_did_not_change_is_not_sent_again(client, tmp_path):
    trainer = build(tmp_path / "net")
    trainer.train()
    trainer.push_to_hub()
    uploads = sum(count for name, count in client.requests.items() if name.startswith("PUT"))
    trainer.push_to_hub()
    assert len(client.repos["me/net"].commits) == 1
    assert sum(count for name, count in client.requests.items() if name.startswith("PUT")) == uploads


def test_files_behind_a_link_and_rows_of_the_data_are_not_sent(client, tmp_path):
    (tmp_path / "private.txt").write_text("mine")
    trainer = build(tmp_path / "net")
    (tmp_path / "net" / "link.txt").symlink_to(tmp_path / "private.txt")
    (tmp_path / "net" / "notes.txt").write_text("for all")
    for name in ("samples.jsonl", "hardest_rows.jsonl"):
        (tmp_path / "net" / name).write_text('{"input": "a row of the data"}\n')
    trainer._add_sm_patterns_to_gitignore()
    trainer._add_sm_patterns_to_gitignore()
    (tmp_path / "net" / "model.tar.sagemaker-uploading").write_text("")
    trainer.push_to_hub()
    files = client.repos["me/net"].branches["main"]
    assert "notes.txt" in files
    assert not {"link.txt", "samples.jsonl", "hardest_rows.jsonl"} & set(files)
    assert files[".gitignore"] == b"*.sagemaker-uploading\n*.sagemaker-uploaded\n"
    assert not [name for name in files if name.endswith("uploading")]


# ---- a Hub that refuses, is slow, or dead ----


def test_a_refused_upload_is_named_and_sent_later(client, tmp_path, caplog, capsys):
    client.refuses = ["PUT /lfs"]
    trainer = build(tmp_path / "net", hub_strategy="checkpoint", hub_always_push=True, **SAVING)
    with caplog.at_level(logging.INFO):
        trainer.train()
    assert client.repos["me/net"].commits == []
    said = caplog.text
    assert "hub is switched off, training goes on without it" in said
    assert "NOT ON THE HUB: the model of checkpoint-2" in said
    assert f"footplate push {tmp_path / 'net'}" in said
    waiting = publishing.load_ledger(tmp_path / "net").waiting
    assert waiting[-2:] == ["the model of checkpoint-6", "last-checkpoint (checkpoint-6)"]

    client.refuses = []
    assert main(["push", str(tmp_path / "net")]) == 0
    files = client.repos["me/net"].branches["main"]
    last = tmp_path / "net" / "checkpoint-6"
    assert files["last-checkpoint/optimizer.pt"] == (last / "optimizer.pt").read_bytes()
    assert files["model.safetensors"] == (last / "model.safetensors").read_bytes()
    assert publishing.load_ledger(tmp_path / "net").waiting == []
    assert main(["push", str(tmp_path / "net")]) == 0
    printed = capsys.readouterr()
    assert "has all" in printed.out
    assert len(client.repos["me/net"].commits) == 1
    assert_no_token(tmp_path, said, printed.out, printed.err)


def test_after_a_refusal_the_next_save_tries_again(client, tmp_path, monkeypatch):
    monkeypatch.setattr(publishing, "FIRST_PAUSE", 0.0)
    client.refuses = ["commit/main"]
    trainer = build(tmp_path / "net", hub_always_push=True, save_in_background=False, **SAVING)

    class Heal(footplate.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 5:
                trainer._finish_current_push()
                client.refuses = []

    trainer.add_callback(Heal())
    trainer.train()
    trainer._finish_current_push()
    assert [message for _, message, _ in client.repos["me/net"].commits] == ["Training in progress, step 6"]
    assert publishing.load_ledger(tmp_path / "net").waiting == []


def test_a_wrong_token_is_told_before_training_and_is_in_no_message(client, tmp_path, caplog):
    wrong = "hf_wrongAndStillSecret"
    with caplog.at_level(logging.DEBUG, logger="footplate"):
        trainer = build(tmp_path / "net", hub_token=wrong)
        assert "create failed" in caplog.text
        assert "Set hub_token or HF_TOKEN" in caplog.text
        trainer.train()
        with pytest.raises(OSError, match="401") as raised:
            trainer.push_to_hub()
    chain = [raised.value, raised.value.__cause__, raised.value.__context__]
    assert wrong not in caplog.text + "".join(map(repr, chain)) + repr(vars(trainer)) + str(trainer.args)
    assert not any(hasattr(error, "request") for error in chain)  # it has the headers of the request
    assert_no_token(tmp_path)
    for path in (tmp_path / "net").rglob("*"):
        assert not path.is_file() or wrong.encode() not in path.read_bytes()


def test_a_dead_hub_changes_neither_weights_nor_time(tmp_path, client, monkeypatch, caplog):
    results, seconds = [], []
    long = {**SAVING, "max_steps": 300, "save_steps": 50}
    for is_pushed in (False, True):
        if is_pushed:
            client.close()
        folder = tmp_path / f"net{int(is_pushed)}"
        trainer = build(folder, push_to_hub=is_pushed, hub_strategy="checkpoint", **long)
        began = time.monotonic()
        trainer.train()
        seconds.append(time.monotonic() - began)
        results.append(weights_of(trainer))
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])
    assert seconds[1] - seconds[0] < 2.0
    assert publishing.load_ledger(tmp_path / "net1").waiting
    assert not [thread for thread in threading.enumerate() if "hub" in thread.name and not thread.daemon]
    monkeypatch.setattr(trainer._publisher._guard, "delays", (0.0,))
    with pytest.raises(OSError, match="footplate push"):
        trainer.push_to_hub()
    began = time.monotonic()
    trainer.save_model()  # at the end of a script: a Hub that is dead is no reason to fail
    assert time.monotonic() - began < 20
    assert (tmp_path / "net1" / "model.safetensors").is_file()
    assert main(["push", str(tmp_path / "net1")]) == 1
    assert_no_token(tmp_path, caplog.text)


def test_a_slow_hub_is_not_waited_for_and_gets_what_was_sealed(client, tmp_path):
    trainer = build(
        tmp_path / "net", hub_always_push=True, save_total_limit=1, hub_strategy="all_checkpoints", **SAVING
    )
    client.delay = 0.4
    began = time.monotonic()
    trainer.train()
    assert time.monotonic() - began < 4.0  # three pushes take 8 s and more
    assert [path.name for path in (tmp_path / "net").glob("checkpoint-*")] == ["checkpoint-6"]
    client.delay = 0.0
    trainer._finish_current_push()
    files = client.repos["me/net"].branches["main"]
    assert {f"checkpoint-{step}/model.safetensors" for step in (2, 4, 6)} <= set(
        files
    )  # rotated away meanwhile


def test_a_save_during_a_push_is_left_out_and_the_last_one_is_not(client, tmp_path):
    trainer = build(tmp_path / "net", **{**SAVING, "max_steps": 40})
    client.delay = 0.3
    trainer.train()
    client.delay = 0.0
    trainer._finish_current_push()
    messages = [message for _, message, _ in client.repos["me/net"].commits]
    assert len(messages) < 10
    assert messages[-1] == "Training in progress, step 40"
    assert publishing.load_ledger(tmp_path / "net").waiting == []


def test_a_folder_that_is_not_sealed_is_not_sent(client, tmp_path, caplog):
    trainer = build(tmp_path / "net", **SAVING)
    trainer.train()
    trainer._finish_current_push()
    num_commits = len(client.repos["me/net"].commits)
    (tmp_path / "net" / "checkpoint-6" / "optimizer.pt").write_bytes(b"cut")
    trainer._push_from_checkpoint(str(tmp_path / "net" / "checkpoint-6"))
    trainer._finish_current_push()
    assert len(client.repos["me/net"].commits) == num_commits
    assert "not a complete checkpoint" in caplog.text


def test_links_of_a_killed_run_are_removed(client, tmp_path):
    left = tmp_path / "net" / ".push" / "1-1" / "checkpoint-2"
    left.mkdir(parents=True)
    (left / "model.safetensors").write_bytes(b"old")
    trainer = build(tmp_path / "net", **SAVING)
    trainer.train()
    trainer._finish_current_push()
    assert not (tmp_path / "net" / ".push").exists()


def test_a_model_that_is_saved_in_training_is_pushed_without_waiting(client, tmp_path):
    trainer = build(tmp_path / "net", hub_strategy="end", max_steps=30)

    class SaveOften(footplate.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step % 10 == 0:
                trainer.save_model()

    trainer.add_callback(SaveOften())
    client.delay = 0.3
    began = time.monotonic()
    trainer.train()
    assert time.monotonic() - began < 4.0
    client.delay = 0.0
    trainer._finish_current_push()
    assert [message for _, message, _ in client.repos["me/net"].commits] == ["Model save"]
    left = ["the model of update 20", "the model of update 30"]
    assert publishing.load_ledger(tmp_path / "net").waiting == left
    trainer.push_to_hub()
    assert len(client.repos["me/net"].commits) == 2
    assert publishing.load_ledger(tmp_path / "net").waiting == []


def test_a_push_under_way_sends_what_was_there_when_it_began(client, tmp_path, caplog):
    trainer = build(tmp_path / "net", hub_strategy="end")
    trainer.train()
    client.delay = 0.2
    future = trainer.push_to_hub(blocking=False)
    sent = {
        name: (tmp_path / "net" / name).read_bytes() for name in ("model.safetensors", "training_args.bin")
    }
    with torch.no_grad():
        trainer.model.slope += 1
    trainer.args.learning_rate = 7.0
    while not future.done():  # files that change while the client reads them would not fit their hashes
        trainer.save_model(_internal_call=True)
    assert future.result().oid
    files = client.repos["me/net"].branches["main"]
    assert {name: files[name] for name in sent} == sent
    assert (tmp_path / "net" / "model.safetensors").read_bytes() != sent["model.safetensors"]
    assert "failed" not in caplog.text
    assert not (tmp_path / "net" / ".push").exists()


# ---- tasks ----


def test_a_task_pushes_the_card_with_its_results(client, tmp_path):
    rows = [{"sentence": f"{word} film", "label": word} for word in ("good", "bad") * 8]
    with (tmp_path / "rows.csv").open("w", encoding="utf-8") as file:
        file.writelines(["sentence,label\n", *(f"{row['sentence']},{row['label']}\n" for row in rows)])
    sizes = "hidden_size=16,num_hidden_layers=1,num_attention_heads=2,intermediate_size=16"
    words = [
        "run",
        "classification",
        "--model_type",
        "bert",
        "--config_overrides",
        sizes,
        "--train_tokenizer",
    ]
    for split in ("train", "validation", "test"):
        words += [f"--{split}_file", str(tmp_path / "rows.csv")]
    words += [
        "--do_train",
        "--do_eval",
        "--do_predict",
        "--max_steps",
        "2",
        "--output_dir",
        str(tmp_path / "net"),
    ]
    assert main([*words, "--push_to_hub", "--hub_token", TOKEN, "--use_cpu", "--report_to", "none"]) == 0
    repo = client.repos["me/net"]
    assert [message for _, message, _ in repo.commits][-2:] == ["Model save", "End of training"]
    files = repo.branches["main"]
    card = ModelCard(files["README.md"].decode())
    first = card.data.eval_results[0]
    assert (first.dataset_split, first.metric_type, first.dataset_name) == (
        "validation",
        "accuracy",
        "rows.csv",
    )
    assert card.data.tags[:2] == ["footplate", "classification"]
    assert {"run.yaml", "task.json", "eval_results.json", "model.safetensors"} <= set(files)
    assert_no_token(tmp_path)
    assert not [name for name, content in files.items() if TOKEN.encode() in content]


# ---- the command ----


def test_the_command_sends_a_run_that_was_never_pushed(client, tmp_path, capsys):
    trainer = build(tmp_path / "net", push_to_hub=False, **SAVING)
    trainer.train()
    assert main(["push", str(tmp_path / "net"), "--to", "team/new", "--private", "--revision", "v1"]) == 0
    repo = client.repos["team/new"]
    assert repo.is_private
    assert "model.safetensors" in repo.branches["v1"]
    assert "to team/new" in capsys.readouterr().out
    assert main(["push", str(tmp_path / "net"), "--to", "team/new", "--strategy", "all_checkpoints"]) == 0
    assert "checkpoint-4/optimizer.pt" in repo.branches["main"]


def test_the_command_names_what_is_wrong(tmp_path, capsys):
    assert main(["push", str(tmp_path / "none")]) == 2
    assert main(["push", str(tmp_path)]) == 2
    assert "nothing to send" in capsys.readouterr().err


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
import tiny
trainer = tiny.build_trainer(
    sys.argv[2], tiny.Regression(), tiny.regression_data(8), max_steps=2, push_to_hub=True,
    save_strategy="steps", save_steps=1, hub_token=sys.argv[3], report_to="none",
)
trainer.train()
print(trainer.args, trainer.args.to_json_string())
"""


@pytest.mark.parametrize("is_dead", [False, True])
def test_a_script_ends_with_its_last_push_or_without_a_hub(hub, tmp_path, monkeypatch, is_dead):
    hub.delay = 0.2
    monkeypatch.setenv("HF_ENDPOINT", hub.address)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    if is_dead:
        hub.close()
    words = [sys.executable, "-c", SCRIPT, str(Path(tiny.__file__).parent), str(tmp_path / "net"), TOKEN]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    if is_dead:
        assert f"footplate push {tmp_path / 'net'}" in done.stderr
    else:
        assert hub.repos["me/net"].commits[-1][1] == "Training in progress, step 2"
    assert_no_token(tmp_path, done.stdout, done.stderr)
