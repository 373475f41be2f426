"""A small Hub on the loopback: it speaks the protocol of `huggingface_hub`, keeps what it gets, can fail."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote

from loopback_server import LoopbackServer

TOKEN = "hf_s3cretOfTheLoopback"
LARGE = (".safetensors", ".bin", ".pt", ".pth")


def git_hash(content: bytes) -> str:
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


class Repo:
    """The branches of a repository, each a list of commits and the files after the last one."""

    def __init__(self, is_private: bool) -> None:
        self.is_private = is_private
        self.branches: dict[str, dict[str, bytes]] = {"main": {}}
        self.commits: list[tuple[str, str, list[str]]] = []  # branch, message, paths


class LoopbackHub(LoopbackServer):
    """The server; `refuses` holds patterns of requests that are answered with 403, `delay` slows all down."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.stored: dict[str, bytes] = {}
        self.requests: Counter[str] = Counter()
        self.refuses: list[str] = []
        self.delay = 0.0
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.headers.get("Transfer-Encoding") == "chunked":
                    body = read_chunks(self.rfile)
                time.sleep(hub.delay)
                status, value = hub.handle(self.command, unquote(self.path), body, dict(self.headers))
                content = b"" if value is None else json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                if isinstance(value, dict) and "code" in value:
                    self.send_header("X-Error-Code", value["code"])
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_HEAD = answer

            def log_message(self, *args: Any) -> None:
                pass

        self.serve(Handler)

    def handle(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, Any]:
        path, _, query = path.partition("?")
        self.requests[f"{method} {path}"] += 1
        if any(re.search(pattern, f"{method} {path}") for pattern in self.refuses):
            return 403, {"error": "the loopback refuses"}
        if found := re.fullmatch(r"/lfs/(\w+)", path):  # a storage of its own, without a token
            assert hashlib.sha256(body).hexdigest() == found[1]
            self.stored[found[1]] = body
            return 200, {}
        sent = {name.lower(): value for name, value in headers.items()}.get("authorization")
        if sent != f"Bearer {TOKEN}":
            return 401, {"error": f"Invalid credentials in {sent}"}  # as rude as a server can be
        if path == "/api/repos/create":
            return self.create(json.loads(body))
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if path == "/api/whoami-v2":
            return 200, {"name": "me", "type": "user", "orgs": []}
        if found := re.fullmatch(r"/(\w+/[\w.-]+)\.git/info/lfs/objects/batch", path):
            return 200, {"objects": [self.offer(entry) for entry in json.loads(body)["objects"]]}
        if found := re.fullmatch(r"/api/models/(\w+/[\w.-]+)(?:/([\w-]+)/(.*?))?/?", path):
            repo = self.repos.get(found[1])
            if repo is None:
                return 404, {"error": "Repository not found", "code": "RepoNotFound"}
            return self.use(found[1], repo, found[2], found[3], body)
        return 404, {"error": f"{method} {path} is not spoken here {query}"}

    def create(self, asked: dict[str, Any]) -> tuple[int, Any]:
        name = f"{asked.get('organization') or 'me'}/{asked['name']}"
        answer = {"url": f"{self.address}/{name}"}
        if name in self.repos:
            return 409, answer
        self.repos[name] = Repo(asked.get("visibility") == "private")
        return 200, answer

    def offer(self, entry: dict[str, Any]) -> dict[str, Any]:
        if entry["oid"] in self.stored:
            return dict(entry)
        return {**entry, "actions": {"upload": {"href": f"{self.address}/lfs/{entry['oid']}"}}}

    def use(self, name: str, repo: Repo, verb: str | None, branch: str, body: bytes) -> tuple[int, Any]:
        if verb is None or verb == "revision":
            return 200, {"id": name, "sha": "0" * 40, "private": repo.is_private, "siblings": [], "tags": []}
        if verb == "branch":
            is_new = branch not in repo.branches
            repo.branches.setdefault(branch, dict(repo.branches["main"]))
            return (200, {}) if is_new else (409, {"error": "Reference already exists"})
        files = repo.branches.get(branch)
        if files is None:
            return 404, {"error": "Invalid rev id", "code": "RevisionNotFound"}
        if verb == "preupload":
            return 200, {"files": [self.plan(entry, files) for entry in json.loads(body)["files"]]}
        if verb == "paths-info":
            wanted = parse_qs(body.decode())["paths"] if body[:1] != b"{" else json.loads(body)["paths"]
            return 200, [describe(path, files[path]) for path in wanted if path in files]
        assert verb == "commit", verb
        lines = [json.loads(line) for line in body.splitlines()]
        for line in lines[1:]:
            value = line["value"]
            is_large = line["key"] == "lfsFile"
            content = self.stored[value["oid"]] if is_large else base64.b64decode(value["content"])
            files[value["path"]] = content
        paths = [line["value"]["path"] for line in lines[1:]]
        repo.commits.append((branch, lines[0]["value"]["summary"], paths))
        number = f"{len(repo.commits):040d}"
        return 200, {
            "commitUrl": f"{self.address}/{name}/commit/{number}",
            "commitOid": number,
            "success": True,
        }

    def plan(self, entry: dict[str, Any], files: dict[str, bytes]) -> dict[str, Any]:
        path, content = entry["path"], files.get(entry["path"])
        mode = "lfs" if path.endswith(LARGE) else "regular"
        known = (
            None
            if content is None
            else (hashlib.sha256(content).hexdigest() if mode == "lfs" else git_hash(content))
        )
        return {"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": known}


def describe(path: str, content: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "file", "path": path, "size": len(content), "oid": git_hash(content)}
    if path.endswith(LARGE):
        digest = hashlib.sha256(content).hexdigest()
        entry["lfs"] = {"oid": digest, "sha256": digest, "size": len(content), "pointerSize": 134}
    return entry


def read_chunks(stream: Any) -> bytes:
    parts = []
    while size := int(stream.readline(), 16):
        parts.append(stream.read(size))
        stream.readline()
    stream.readline()
    return b"".join(parts)


def point_client_at(hub: LoopbackHub, monkeypatch: Any) -> None:
    """Tell the client of this process where the Hub is: its variables are read only when it is imported."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", hub.address)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    if "transformers" in sys.modules:  # it keeps a client, which knows the address it was made with
        monkeypatch.setattr("transformers.utils.hub._hf_api", None)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
