"""A session over real sockets.

A stream that is cut in the middle, picked up, and found in the transcript.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

import httpx2
import pytest

from tests.support.server_process import TIMEOUT, ServerProcess, eventually
from tests.support.session_stream_rules import check_whole
from tests.support.socket_client import RawConnection, open_connection

pytestmark = pytest.mark.xdist_group("e2e-shared")

PATH = "/api/sessions"


def call(server: ServerProcess, method: str, path: str, body: Any = None) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {server.key}"}
    with httpx2.Client(trust_env=False, timeout=TIMEOUT) as http:
        return http.request(method, f"{server.url}{PATH}{path}", json=body, headers=headers)


def new_session(server: ServerProcess) -> str:
    session_id = f"e2e-{uuid.uuid4().hex[:12]}"
    assert call(server, "POST", "", {"id": session_id}).status_code == 201
    return session_id


def stream_bytes(server: ServerProcess, session_id: str, text: str, policy: str) -> bytes:
    """A streaming turn as it stands on the wire."""
    body = json.dumps({"message": text}).encode()
    lines = [
        f"POST {PATH}/{session_id}/chat/stream HTTP/1.0",
        "Host: localhost",
        f"Authorization: Bearer {server.key}",
        f"X-Hermes-On-Disconnect: {policy}",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def body_of(talk: RawConnection) -> bytes:
    """What has come after the headers, in whole events."""
    body = talk.seen.partition(b"\r\n\r\n")[2]
    return body[: body.rindex(b"\n\n") + 2]


def test_a_resumed_stream_is_identical_to_the_byte(server: ServerProcess) -> None:
    session_id = new_session(server)
    with open_connection(server) as talk:
        talk.send(stream_bytes(server, session_id, "tokens=60 rate=100", "grace:30"))
        talk.until(b"t000010")
        talk.until(b"\n\n")
        talk.reset()
    begun = body_of(talk)
    last = int(begun.rpartition(b"\nid: ")[2].partition(b"\n")[0])
    run_id = json.loads(begun.partition(b"data: ")[2].partition(b"\n")[0])["run_id"]
    rest = call(server, "GET", f"/{session_id}/chat/stream?run_id={run_id}&last_seq={last}")
    assert rest.status_code == 200, rest.text
    events = check_whole(begun + rest.content)
    again = call(server, "GET", f"/{session_id}/chat/stream?run_id={run_id}")
    assert again.content == begun + rest.content
    said = "".join(event["delta"] for event in events if event["event"] == "assistant.delta")
    assert said.count("t0") == 60
    messages = call(server, "GET", f"/{session_id}/messages").json()["data"]
    assert [(each["role"], each["content"]) for each in messages] == [
        ("user", "tokens=60 rate=100"),
        ("assistant", said),
    ]
    assert {each["run_id"] for each in messages} == {run_id}
    assert call(server, "DELETE", f"/{session_id}").json()["deleted"] is True
    assert call(server, "GET", f"/{session_id}/chat/stream?run_id={run_id}").status_code == 404


def test_a_fork_and_its_source_continue(server: ServerProcess) -> None:
    session_id = new_session(server)
    chat = call(server, "POST", f"/{session_id}/chat", {"message": "/terminal echo hello"})
    assert chat.status_code == 200, chat.text
    child = call(server, "POST", f"/{session_id}/fork").json()["session"]
    assert (child["parent_session_id"], child["tool_call_count"]) == (session_id, 1)
    for each in (session_id, child["id"]):
        answer = call(server, "POST", f"/{each}/chat", {"message": f"in {each}"})
        assert (
            "demo agent" not in answer.text
        )  # it introduces itself only when it knows of no earlier turn
        texts = [
            message["content"]
            for message in call(server, "GET", f"/{each}/messages").json()["data"]
        ]
        assert texts[0] == "/terminal echo hello"
        assert [text for text in texts if text.startswith("in ")] == [f"in {each}"]
        assert call(server, "DELETE", f"/{each}").status_code == 200


def test_deleting_a_session_stops_what_runs_in_it(server: ServerProcess) -> None:
    session_id = new_session(server)
    with open_connection(server) as talk:
        talk.send(stream_bytes(server, session_id, "!silent", "detach"))
        talk.until(b"ready")
        assert call(server, "DELETE", f"/{session_id}").status_code == 200
        assert b"event: done" in talk.to_end()
    eventually(lambda: server.is_idle, 2)
    assert call(server, "GET", f"/{session_id}").status_code == 404
