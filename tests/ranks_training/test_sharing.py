"""Under several ranks one of them makes the repository and pushes; a dead Hub changes and delays nothing."""

from __future__ import annotations

import json

import pytest
from safetensors.torch import load_file

from loopback import TOKEN


def read_ledger(launched, name):
    return json.loads((launched.folder / name / "net" / "hub.json").read_text())


def test_one_rank_makes_the_repository_and_pushes_and_what_arrives_is_whole(launched):
    first, second = launched.found["sharing.pushed"]
    assert (first["name"], first["commit"]) == ("me/net", "The end")
    assert (second["name"], second["commit"]) == (None, None)
    assert launched.hub.requests["POST /api/repos/create"] == 1
    ((name, repo),) = launched.hub.repos.items()
    assert name == "me/net"
    messages = [message for _, message, _ in repo.commits]
    in_training = [message for message in messages if message.startswith("Training in progress")]
    assert in_training == [f"Training in progress, step {step}" for step in (2, 4, 6)]
    assert messages[-1] == "The end"
    files = repo.branches["main"]
    assert {"model.safetensors", "README.md", "training_args.bin"} <= set(files)
    folder = launched.folder / "sharing.pushed" / "net"
    assert files["model.safetensors"] == (folder / "model.safetensors").read_bytes()
    arrived = {key: value.tolist() for key, value in load_file(folder / "model.safetensors").items()}
    assert arrived == first["weights"] == second["weights"]
    assert not (folder / ".push").exists()
    assert not [path for path in read_ledger(launched, "sharing.pushed")["waiting"] if "checkpoint" in path]


def test_pushes_and_a_dead_hub_leave_the_weights_and_the_time_of_all_ranks_alone(launched):
    plain = launched.found["sharing.unshared"]
    for job in ("sharing.pushed", "sharing.dead"):
        for found, expected in zip(launched.found[job], plain, strict=True):
            assert found["weights"] == expected["weights"]
            assert found["loss"] == expected["loss"]
    for rank in launched.found["sharing.dead"]:
        assert rank["name"] is None
        assert max(rank["seconds"]) < 5  # the attempts at the first push take 10 s, and are not waited for


@pytest.mark.parametrize("job", ["sharing.pushed", "sharing.dead"])
def test_what_was_not_sent_is_named_and_the_token_is_in_no_file(launched, job):
    waiting = read_ledger(launched, job)["waiting"]
    if job == "sharing.dead":
        assert "the model of checkpoint-6" in waiting
    for path in (launched.folder / job).rglob("*"):
        assert not path.is_file() or TOKEN.encode() not in path.read_bytes(), path
