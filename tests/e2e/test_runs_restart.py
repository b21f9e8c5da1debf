"""Runs outlive the process: drained or cut by SIGTERM, and after a restart the same to the byte."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.conftest import AGENTS
from tests.support.run_stream_rules import check_whole
from tests.support.server_process import TIMEOUT, LaunchOptions, ServerProcess, serving

pytestmark = [pytest.mark.xdist_group("e2e-runs-restart"), pytest.mark.slow]


@contextmanager
def client_of(server: ServerProcess) -> Iterator[httpx2.Client]:
    headers = {"Authorization": f"Bearer {server.key}"}
    with httpx2.Client(
        base_url=server.url, headers=headers, trust_env=False, timeout=TIMEOUT
    ) as client:
        yield client


def begun(client: httpx2.Client, text: str) -> str:
    """The id of a run that was just started."""
    answer = client.post("/v1/runs", json={"input": text, "metadata": {"for": "restart"}})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["run_id"])


def followed(client: httpx2.Client, run_id: str, last: int = -1) -> bytes:
    """The events of a run to its end."""
    answer = client.get(f"/v1/runs/{run_id}/events", params={"last_seq": last})
    assert answer.status_code == 200, answer.text
    return answer.content


def followed_while_it_stops(server: ServerProcess, run_id: str) -> bytes:
    """The events of a run whose server is told to stop after the first words."""
    with client_of(server) as client, client.stream("GET", f"/v1/runs/{run_id}/events") as stream:
        heard = b""
        for piece in stream.iter_bytes():
            if b"message.delta" in piece and b"message.delta" not in heard:
                server.signal()
            heard += piece
        return heard


def check_same(server: ServerProcess, run_id: str, heard: bytes, shown: dict[str, Any]) -> None:
    """The run as it was told before, to the byte, from any of its events on."""
    with client_of(server) as client:
        assert client.get(f"/v1/runs/{run_id}").json() == shown
        assert followed(client, run_id) == heard
        frames = [frame + b"\n\n" for frame in heard.split(b"\n\n")[:-1]]
        for last in (0, len(frames) // 2):
            assert followed(client, run_id, last) == b"".join(frames[last + 1 :])
        [listed] = client.get("/v1/runs").json()["data"]
        assert listed == {name: value for name, value in shown.items() if name != "output"}
        stopped = client.post(f"/v1/runs/{run_id}/stop").json()
        assert stopped == {"run_id": run_id, "status": shown["status"]}
        assert client.get(f"/v1/runs/{run_id}").json() == shown


def test_a_run_that_ended_before_the_restart(tmp_path: Path) -> None:
    plan = LaunchOptions(tmp_path)
    with serving(plan) as server, client_of(server) as client:
        run_id = begun(client, "/terminal echo hello")
        heard = followed(client, run_id)
        shown = client.get(f"/v1/runs/{run_id}").json()
    events = check_whole(heard)
    assert "tool.completed" in [event["event"] for event in events]
    assert (shown["status"], shown["output"]) == ("completed", events[-1]["output"])
    with serving(plan) as server:
        check_same(server, run_id, heard, shown)


@pytest.mark.parametrize(
    ("text", "drain", "status", "reason"),
    [("tokens=20 rate=40", 20, "completed", None), ("!silent", 0.2, "failed", "server_shutdown")],
    ids=["drained", "cut"],
)
def test_a_run_in_progress_at_the_restart(
    text: str, drain: float, status: str, reason: str | None, tmp_path: Path
) -> None:
    plan = LaunchOptions(tmp_path, ("--agent", AGENTS), {"drain_seconds": drain})
    with serving(plan) as server:
        with client_of(server) as client:
            run_id = begun(client, text)
        heard = followed_while_it_stops(server, run_id)
        assert server.wait() == 0
    last = check_whole(heard)[-1]
    assert (last["event"], last.get("reason")) == (f"run.{status}", reason)
    with serving(plan) as server:
        with client_of(server) as client:
            shown = client.get(f"/v1/runs/{run_id}").json()
        assert (shown["status"], shown.get("reason"), shown["metadata"]) == (
            status,
            reason,
            {"for": "restart"},
        )
        assert shown["updated_at"] == last["timestamp"]
        check_same(server, run_id, heard, shown)
