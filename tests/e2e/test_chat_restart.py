"""Chat turns outlive their process: killed in the midst of a stream, kept as far as they went."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.server_process import LaunchOptions, ServerProcess, kill, serving, start
from tests.support.socket_client import open_chat_stream
from tests.support.stored_records import turns

pytestmark = [pytest.mark.xdist_group("e2e-chat-restart"), pytest.mark.slow]

RATE = 100  # words a second
WORDS = 60  # that the client has seen when the process dies
LAST = 20  # of them, at least, that the store has: it is a moment behind


def test_a_turn_in_a_session_survives_the_process(tmp_path: Path) -> None:
    plan = LaunchOptions(tmp_path, ("--agent", "synthetic"))
    heard = talk_until_killed(start(plan), "kept")
    with serving(plan, expected="recovered a run of a dead process") as server:
        shown = server.get(f"/v1/runs/{heard[0]['id']}").json()
        assert (shown["status"], shown["reason"]) == ("failed", "process_died")
        assert (shown["kind"], shown["session_id"]) == ("chat", "kept")
        (turn,) = turns(server, "kept")
        assert (turn.status, turn.reason) == ("incomplete", "process_died")
        text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in heard)
        stored = turn.said_by("assistant")
        assert stored == shown["output"]
        assert stored.startswith(text) or text.startswith(stored)
        assert f"t{LAST:06}" in stored
        # The session goes on from there.
        with open_chat_stream(server, "kept", "tokens=1") as stream:
            assert stream.last_chunk()["choices"][0]["finish_reason"] == "stop"
        assert [turn.status for turn in turns(server, "kept")] == ["incomplete", "completed"]


def talk_until_killed(server: ServerProcess, session: str) -> list[dict[str, Any]]:
    """The chunks that a client gets of a turn before its server is killed."""
    heard: list[dict[str, Any]] = []
    try:
        with open_chat_stream(server, session, f"tokens=100000 rate={RATE}") as stream:
            for line in stream.lines:
                if line.startswith("data: "):
                    heard.append(json.loads(line.removeprefix("data: ")))
                if f"t{WORDS:06}" in line:
                    break
            kill(server)
    finally:
        kill(server)
    return heard
