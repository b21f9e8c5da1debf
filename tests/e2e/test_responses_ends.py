"""Responses that are cut short: by their client, by a limit, by the end of the server.

And what is there after it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.conftest import AGENTS, Launch
from tests.e2e.responses import (
    PATH,
    body_bytes,
    client_of,
    id_in,
    kinds,
    post,
    reason,
    shown,
    strictly,
    valid,
)
from tests.e2e.sdk import MODEL
from tests.support.server_process import ServerProcess, eventually, processes
from tests.support.socket_client import RawConnection, open_connection
from tests.support.stored_records import unfinished

pytestmark = pytest.mark.xdist_group("e2e-responses-ends")

Leave = Callable[[RawConnection], Any]
LEAVES = pytest.mark.parametrize(
    "leave", [RawConnection.leave, RawConnection.reset, RawConnection.half_close]
)


def ended(server: ServerProcess, response_id: str, seconds: float = 3) -> dict[str, Any]:
    """A response when it is over; that must be soon."""
    eventually(lambda: shown(server, response_id)["status"] != "in_progress", seconds)
    return shown(server, response_id)


@LEAVES
def test_leaving_in_the_middle_of_the_text(server: ServerProcess, leave: Leave) -> None:
    with open_connection(server) as talk:
        talk.send(body_bytes(server, "tokens=100000 rate=500"))
        response_id = id_in(talk)
        talk.until(b"t000010")
        leave(talk)
        record = ended(server, response_id)
    assert (record["status"], record["hermes"]["reason"]) == ("incomplete", "client_disconnected")
    text = record["output"][0]["content"][0]["text"]
    assert text.startswith("t000001")
    assert text.count("t0") == int(text.split()[-1].strip(".t"))
    eventually(lambda: server.is_idle, 2)


@LEAVES
def test_leaving_while_a_tool_runs(server: ServerProcess, leave: Leave) -> None:
    number = str(60_000_000 + uuid.uuid4().int % 10_000_000)
    with open_connection(server) as talk:
        talk.send(body_bytes(server, f"/terminal echo begun; sleep {number}"))
        response_id = id_in(talk)
        talk.until(b"mcp_call_arguments.done")
        eventually(lambda: processes(f"sleep\0{number}") != [])
        leave(talk)
        record = ended(server, response_id)
    assert (record["status"], record["hermes"]["reason"]) == ("incomplete", "client_disconnected")
    call = record["output"][-1]
    assert (call["type"], call["status"]) == ("mcp_call", "incomplete")
    assert call["output"].startswith("begun")
    eventually(lambda: not processes(number) and server.is_idle, 3)


def test_a_detached_response_continues(server: ServerProcess) -> None:
    request = body_bytes(server, "tokens=100 rate=200")
    with open_connection(server) as talk:
        talk.send(
            request.replace(
                b"Host: localhost", b"Host: localhost\r\nX-Hermes-On-Disconnect: detach"
            )
        )
        response_id = id_in(talk)
        talk.until(b"t000003")
    record = ended(server, response_id)
    assert record["status"] == "completed"
    assert record["output"][0]["content"][0]["text"].count("t0") == 100


def test_a_time_limit(launch: Launch) -> None:
    server = launch("--agent", AGENTS, run_seconds=0.7)
    with client_of(server) as client:
        events = list(strictly(client.responses.create(model=MODEL, input="!silent", stream=True)))
        whole = valid(client.responses.create(model=MODEL, input="!silent"))
        assert events[-1].type == "response.incomplete"
        for response in (events[-1].response, whole, client.responses.retrieve(whole.id)):
            assert (response.status, reason(response)) == ("incomplete", "timeout")
            assert response.output_text == "ready"


@pytest.mark.slow
def test_a_shutdown_and_a_restart(launch: Launch) -> None:
    first = launch("--agent", AGENTS, drain_seconds=0.2)
    with client_of(first) as client:
        before = client.responses.create(model=MODEL, input="hello").to_dict()
        background = client.responses.create(model=MODEL, input="/sleep 60", background=True).id
        eventually(lambda: "mcp_call" in kinds(client.responses.retrieve(background)), 5)
    with open_connection(first) as talk:
        talk.send(body_bytes(first, "tokens=100000 rate=200"))
        response_id = id_in(talk)
        talk.until(b"t000010")
        first.signal()
        streamed = talk.to_end()
    assert first.wait() == 0
    assert b"event: response.incomplete" in streamed
    assert b'"reason": "server_shutdown"' in streamed
    assert b"data: [DONE]\n\n" in streamed
    assert unfinished(first) == 0
    check_the_next_one(launch("--agent", AGENTS), before, background, response_id)


def check_the_next_one(
    second: ServerProcess, before: dict[str, Any], background: str, response_id: str
) -> None:
    with client_of(second) as client:
        assert client.responses.retrieve(str(before["id"])).to_dict() == before
        for cut in (background, response_id):
            record = valid(client.responses.retrieve(cut))
            assert (record.status, reason(record)) == ("incomplete", "server_shutdown")
            *_, last = strictly(client.responses.retrieve(cut, stream=True))
            assert last.type == "response.incomplete"
            following = client.responses.create(
                model=MODEL, input="/long 2", previous_response_id=cut
            )
            assert following.status == "completed"


@pytest.mark.slow
def test_a_drain_lets_responses_end(launch: Launch) -> None:
    server = launch("--agent", AGENTS, drain_seconds=10)
    with open_connection(server) as talk:
        talk.send(body_bytes(server, "tokens=100 rate=100"))
        talk.until(b"t000010")
        server.signal()
        eventually(lambda: server.get("/health/ready").status_code == 503, 2)
        refused = post(server, "too late")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "gateway_draining")
        assert b"event: response.completed" in talk.to_end()
    assert server.wait() == 0


def test_a_second_reader_joins_at_any_event(server: ServerProcess) -> None:
    """The response runs while it is read."""
    with open_connection(server) as talk, open_connection(server) as other:
        talk.send(body_bytes(server, "tokens=100 rate=100"))
        response_id = id_in(talk)
        talk.until(b"t000005")
        other.send(
            f"GET {PATH}/{response_id}?stream=true&starting_after=6 HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {server.key}\r\n\r\n".encode()
        )
        other.until(b"data: [DONE]\n\n")
        talk.until(b"data: [DONE]\n\n")
    frames = [piece for piece in talk.seen.split(b"event: ") if b'"sequence_number": 7}' in piece]
    assert frames[0].partition(b"\n\n")[0] in other.seen
    assert b'"sequence_number": 6}' not in other.seen
