"""A small W&B on the loopback: it speaks what the real client needs for a sweep, and keeps what it gets."""

from __future__ import annotations

import base64
import contextlib
import gzip
import itertools
import json
import math
import re
import threading
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from random import Random
from typing import Any

import yaml

from loopback_server import LoopbackServer

KEY = "f00t" * 10
ENTITY = "someone"


@dataclass
class ServiceRun:
    """A run as the service knows it.

    Args:
        id: The id that the service gave it.
        sweep: The id of its sweep; None for a run outside of one.
        args: The values that the sweep has drawn for it.
        began: 1 if a client has begun it.
        num_beats: Heartbeats of the agent since then.
        config: What the client said its settings are.
        history: The rows that were logged.
        summary: The summary, as it was sent last.
        exit_code: How it ended; None while it runs.
    """

    id: str
    sweep: str | None = None
    args: dict[str, Any] = field(default_factory=dict)
    began: int = 0
    num_beats: int = 0
    name: str | None = None
    project: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None


@dataclass
class ServiceSweep:
    """A sweep: what was asked for, and the agents that work on it."""

    id: str
    project: str
    config: dict[str, Any]
    grid: list[dict[str, Any]] | None = None  # what is left of a grid
    state: str = "RUNNING"
    agents: list[str] = field(default_factory=list)


class WandbService(LoopbackServer):
    """The server.

    `refuses` holds operations that are answered with 403; `stops` the number of heartbeats after which a run
    that has begun is told to stop, by the number of the run; from heartbeat `dies_at` on it answers nobody.
    """

    def __init__(self, seed: int = 1) -> None:
        self.sweeps: dict[str, ServiceSweep] = {}
        self.runs: dict[str, ServiceRun] = {}
        self.operations: Counter[str] = Counter()
        self.unknown: list[str] = []
        self.refuses: set[str] = set()
        self.stops: dict[int, int] = {}
        self.dies_at: int | None = None
        self.lock = threading.Lock()
        self._generator = Random(seed)
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if service.dies_at is not None and service.operations["Heartbeat"] >= service.dies_at:
                    self.close_connection = True
                    return
                with service.lock:
                    status, value = service.handle(self.path, body, self.headers.get("Authorization") or "")
                content = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = answer

            def handle(self) -> None:
                with contextlib.suppress(ConnectionError):  # the client ends without saying so
                    super().handle()

            def log_message(self, *args: Any) -> None:
                pass

        self.serve(Handler)

    def handle(self, path: str, body: bytes, authorization: str) -> tuple[int, Any]:
        if path.startswith(("/sdk/otel", "/uploads/")):  # measurements of the client, and files of a run
            return 200, {}
        secret = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        if secret != f"api:{KEY}":
            return 401, {"errors": [{"message": "user is not logged in"}]}
        if found := re.fullmatch(r"/files/[^/]+/[^/]+/([^/]+)/file_stream", path):
            return 200, self.stream(self.runs[found[1]], json.loads(body))
        assert path == "/graphql", path
        asked = json.loads(body)
        found = re.search(r"(?:query|mutation)\s+(\w+)", asked["query"])
        assert found is not None, asked["query"]
        operation = found[1]
        self.operations[operation] += 1
        if operation in self.refuses:
            return 403, {"errors": [{"message": "permission denied"}]}
        answer = getattr(self, f"answer_{operation}", None)
        if answer is None:
            self.unknown.append(asked["query"])
            return 400, {"errors": [{"message": f"{operation} is not spoken here"}]}
        data = answer(asked.get("variables") or {})
        return (200, {"data": data}) if data else (404, {"errors": [{"message": "not found"}]})

    # ---- who is there ----

    def answer_Viewer(self, given: dict[str, Any]) -> Any:
        names = {"id": "viewer", "entity": ENTITY, "username": ENTITY, "email": "someone@example.org"}
        return {"viewer": {**names, "flags": "{}", "teams": {"edges": [{"node": {"name": ENTITY}}]}}}

    answer_GetViewer = answer_Viewer

    def answer_GetDefaultEntity(self, given: dict[str, Any]) -> Any:
        return {"viewer": {"id": "viewer", "entity": ENTITY}}

    def answer_ServerFeaturesQuery(self, given: dict[str, Any]) -> Any:
        return {"serverInfo": {"features": []}}

    def answer_OrganizationCoreWeaveOrganizationID(self, given: dict[str, Any]) -> Any:
        return {"entity": {"organization": None}}

    # ---- sweeps ----

    def answer_UpsertSweep(self, given: dict[str, Any]) -> Any:
        config = yaml.safe_load(given["config"])
        sweep = ServiceSweep(f"sweep{len(self.sweeps)}", given["projectName"] or "uncategorized", config)
        if config["method"] == "grid":
            sweep.grid = list_grid(config["parameters"])
        self.sweeps[sweep.id] = sweep
        warnings = [] if config.get("parameters") else ["the sweep has no parameters"]
        answer = {"name": sweep.id, "project": describe_project(sweep.project)}
        return {"upsertSweep": {"sweep": answer, "configValidationWarnings": warnings}}

    def answer_GetSweep(self, given: dict[str, Any]) -> Any:
        sweep = self.sweeps.get(given["name"])
        if sweep is None:
            return {"project": {"sweep": None}}
        times = {"createdAt": "2026-01-01T00:00:00", "heartbeatAt": None, "updatedAt": None}
        about = {"id": sweep.id, "name": sweep.id, "displayName": None, "state": sweep.state, **times}
        return {"project": {"sweep": {**about, "config": yaml.dump(sweep.config), "runCount": 0}}}

    def answer_CreateAgent(self, given: dict[str, Any]) -> Any:
        sweep = self.sweeps.get(given["sweep"])
        if sweep is None:
            return None
        sweep.agents.append(f"{sweep.id}-agent{len(sweep.agents)}")
        return {"createAgent": {"agent": {"id": sweep.agents[-1]}}}

    def answer_Heartbeat(self, given: dict[str, Any]) -> Any:
        sweep = self.sweeps[given["id"].partition("-")[0]]
        running = [self.runs[name] for name, is_active in json.loads(given["runState"]).items() if is_active]
        answer = {"agent": {"id": given["id"]}, "commands": json.dumps(self.command(sweep, running))}
        return {"agentHeartbeat": answer}

    def command(self, sweep: ServiceSweep, running: list[ServiceRun]) -> list[dict[str, Any]]:
        numbers = {name: number for number, name in enumerate(self.runs)}
        for run in running:
            run.num_beats += run.began
            if run.num_beats and run.num_beats == self.stops.get(numbers[run.id]):
                return [{"type": "stop", "run_id": run.id}]
        if running or sweep.state == "PAUSED":
            return []
        values = self.draw(sweep)
        if values is None:
            return [{"type": "exit"}]
        run = ServiceRun(f"swept{len(self.runs):03d}", sweep.id, values, project=sweep.project)
        self.runs[run.id] = run
        args = {name: {"value": value} for name, value in values.items()}
        return [{"type": "run", "run_id": run.id, "args": args, "program": None}]

    def draw(self, sweep: ServiceSweep) -> dict[str, Any] | None:
        """The values of the next run; None if the sweep has no further one."""
        num_runs = sum(run.sweep == sweep.id for run in self.runs.values())
        if sweep.state not in ("RUNNING", "PAUSED") or num_runs >= sweep.config.get("run_cap", math.inf):
            return None
        if sweep.grid is not None:
            return sweep.grid.pop(0) if sweep.grid else None
        return {
            name: draw_value(entry, self._generator) for name, entry in sweep.config["parameters"].items()
        }

    # ---- runs ----

    def answer_RunResumeStatus(self, given: dict[str, Any]) -> Any:
        return {"model": {**describe_project(given["project"]), "bucket": None}}

    def answer_UpsertBucket(self, given: dict[str, Any]) -> Any:
        run = self.runs.setdefault(given["name"], ServiceRun(given["name"]))
        is_new, run.began = not run.began, 1
        run.project = given.get("project") or run.project
        run.name = given.get("displayName") or run.name
        if given.get("config"):
            run.config.update({key: entry["value"] for key, entry in json.loads(given["config"]).items()})
        about = {"id": run.id, "name": run.id, "displayName": run.name or run.id, "description": None}
        project = describe_project(run.project or "uncategorized")
        bucket = {**about, "config": "{}", "sweepName": run.sweep, "project": project, "historyLineCount": 0}
        return {"upsertBucket": {"bucket": bucket, "inserted": is_new}}

    def answer_RunStoppedStatus(self, given: dict[str, Any]) -> Any:
        return {"project": {"run": {"stopped": False}}}

    def answer_CreateRunFiles(self, given: dict[str, Any]) -> Any:
        files = [
            {"name": name, "uploadUrl": f"{self.address}/uploads/{given['run']}/{name}"}
            for name in given["files"]
        ]
        return {"createRunFiles": {"runID": given["run"], "uploadHeaders": [], "files": files}}

    def stream(self, run: ServiceRun, sent: dict[str, Any]) -> dict[str, Any]:
        """Take rows, the summary and the end of a run."""
        for name, piece in (sent.get("files") or {}).items():
            if name == "wandb-history.jsonl":
                run.history[piece["offset"] :] = [json.loads(line) for line in piece["content"]]
            elif name == "wandb-summary.json":
                run.summary.update(json.loads(piece["content"][-1]))
        if sent.get("complete"):
            run.exit_code = sent["exitcode"]
        return {}


def describe_project(name: str) -> dict[str, Any]:
    return {"id": f"project-{name}", "name": name, "entity": {"id": f"entity-{ENTITY}", "name": ENTITY}}


def list_grid(parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """Every combination of the values."""
    options = [entry.get("values", [entry.get("value")]) for entry in parameters.values()]
    return [dict(zip(parameters, values, strict=True)) for values in itertools.product(*options)]


def draw_value(entry: dict[str, Any], generator: Random) -> Any:
    """One value of a parameter, by chance; a distribution that W&B does not have is a mistake."""
    if "value" in entry:
        return entry["value"]
    if "values" in entry:
        return generator.choice(entry["values"])
    low, high, distribution = entry["min"], entry["max"], entry["distribution"]
    if distribution == "int_uniform":
        return generator.randint(low, high)
    if distribution == "uniform":
        return generator.uniform(low, high)
    if distribution in ("log_uniform_values", "q_log_uniform_values"):
        value = math.exp(generator.uniform(math.log(low), math.log(high)))
        return value if distribution[0] == "l" else round(value / entry["q"]) * entry["q"]
    raise AssertionError(f"{distribution} is no distribution of W&B")
