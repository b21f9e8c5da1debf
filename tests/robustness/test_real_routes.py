"""Every operation of a server that can start no thread.

It works, or says in the envelope that it cannot now.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import httpx2
import pytest

from hermes_trio.schema.openapi import OPERATIONS, Operation
from tests.robustness.mangled_requests import BODIES
from tests.robustness.real_footprint import at_rest, faults_at_rest
from tests.robustness.real_servers import being_there, server_in
from tests.robustness.report import CaseCounter
from tests.support.server_process import TIMEOUT, ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("robustness-limits")]

NEED_NONE = {
    "/health",
    "/v1/health",
    "/health/live",
    "/health/ready",
    "/health/detailed",
    "/version",
    "/metrics",
}
ENDLESS = "/api/logs"  # its stream ends with the server
EXPECTED = "thread|store failed|logs could not|saved late|failed"


def asked(server: ServerProcess, operation: Operation, ids: dict[str, str]) -> httpx2.Response:
    """A proper request, whole; streams are read to their end, if they have one."""
    path = operation.path
    for name in operation.parameters:
        path = path.replace(f"{{{name}}}", ids[name])
    body = BODIES.get((operation.method, operation.path))
    headers = {"Authorization": f"Bearer {server.key}", "Content-Type": "application/json"}
    content = b"" if body is None else json.dumps(body).encode()
    with (
        httpx2.Client(trust_env=False, timeout=TIMEOUT) as http,
        http.stream(
            operation.method.upper(), server.url + path, content=content, headers=headers
        ) as answer,
    ):
        if operation.path != ENDLESS or answer.status_code != 200:
            answer.read()
        return answer


def made(server: ServerProcess) -> dict[str, str]:
    """The ids of one of everything."""
    headers = {"Authorization": f"Bearer {server.key}"}
    with httpx2.Client(
        trust_env=False, timeout=TIMEOUT, base_url=server.url, headers=headers
    ) as http:
        response = http.post("/v1/responses", json={"input": "tokens=3"}).json()["id"]
        run = http.post("/v1/runs", json={"input": "tokens=3"}).json()["run_id"]
        session = http.post("/api/sessions", json={}).json()["session"]["id"]
        item = {"type": "message", "role": "user", "content": "Hi"}
        conversation = http.post("/v1/conversations", json={"items": [item]}).json()["id"]
        items = http.get(f"/v1/conversations/{conversation}/items").json()["data"]
        scheduled = {"name": "j", "schedule": "every 2h", "prompt": "Hi"}
        job = http.post("/api/jobs", json=scheduled).json()["job"]["id"]
    ids = {
        "response_id": response,
        "run_id": run,
        "session_id": session,
        "conversation_id": conversation,
        "job_id": job,
    }
    return {**ids, "item_id": items[0]["id"], "model_id": "hermes-agent"}


def check(operation: Operation, answer: httpx2.Response) -> None:
    """What it says is true, and it says it in the envelope."""
    about = (operation.method, operation.path, answer.status_code)
    assert answer.status_code < 500 or answer.status_code == 503, about
    assert answer.status_code == 200 or operation.path not in NEED_NONE, about
    if answer.status_code == 503:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}, about
        assert answer.headers["Retry-After"], about


def test_every_route_without_threads(tmp_path: Path, cases: CaseCounter) -> None:
    statuses = Counter[str]()
    switch = tmp_path / "no-threads"
    with server_in(tmp_path, "synthetic", EXPECTED, fault_threads=switch) as server:
        ids = made(server)
        before = at_rest(server)
        with being_there(switch):
            for operation in OPERATIONS:
                answer = asked(server, operation, ids)
                check(operation, answer)
                statuses[f"routes without threads: {answer.status_code}"] += 1
        assert asked(server, OPERATIONS[0], ids).status_code == 200
        assert made(server)
        assert faults_at_rest(server, before) == []
    assert statuses["routes without threads: 503"]
    cases.add("process faults", statuses)
