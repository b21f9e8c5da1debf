"""A disconnect interrupts the run at once, and the text so far is stored."""

from __future__ import annotations

import statistics
import uuid
from collections.abc import Callable

import pytest

from tests.e2e.conftest import Measured
from tests.e2e.interruptible_agent import interrupt_file
from tests.support.server_process import ServerProcess, eventually, processes
from tests.support.socket_client import RawConnection, chat_bytes, open_chat_stream, open_connection
from tests.support.stored_records import turns

pytestmark = pytest.mark.xdist_group("e2e-shared")

Leave = Callable[[RawConnection], float]
LEAVES = [RawConnection.leave, RawConnection.reset, RawConnection.half_close]


def new_name(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:12]}"


@pytest.mark.parametrize("leave", LEAVES)
def test_a_silent_tool_dies_with_its_client(
    server: ServerProcess, leave: Leave, measured: Measured
) -> None:
    session, number = new_name("gone"), f"60.{uuid.uuid4().int % 10**12}"
    with open_connection(server) as talk:
        talk.send(chat_bytes(server, session, f"/terminal echo begun; sleep {number}"))
        talk.until(b'"status": "running"')
        eventually(lambda: processes(f"sleep\0{number}") != [])
        leave(talk)
        taken = eventually(
            lambda: not processes(number) and bool(turns(server, session)) and server.is_idle, 1
        )
    measured("seconds_until_all_clean", round(taken, 4))
    (turn,) = turns(server, session)
    assert (turn.status, turn.reason) == ("incomplete", "client_disconnected")
    assert turn.roles == ["user", "assistant", "tool"]
    assert turn.messages[1]["tool_calls"][0]["name"] == "terminal"
    assert turn.messages[2]["content"].endswith("[cancelled before it ended]")


def test_the_next_turn_has_the_interrupted_one_in_its_history(server: ServerProcess) -> None:
    session = new_name("again")
    with open_connection(server) as talk:
        talk.send(chat_bytes(server, session, "/terminal sleep 60"))
        talk.until(b'"status": "running"')
    eventually(lambda: bool(turns(server, session)), 1)
    with open_chat_stream(server, session, "/long 3") as stream:
        said = "".join(stream.rest())
    assert "word3" in said
    assert "demo agent" not in said  # it introduces itself only when it knows of no earlier turn
    assert [turn.reason for turn in turns(server, session)] == ["client_disconnected", ""]


def interrupted_at(server: ServerProcess, session: str) -> float:
    file = interrupt_file(server.plan.data_dir / "workspace", session)
    eventually(file.exists, 2)
    return float(file.read_text().split()[0])


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("leave", LEAVES)
def test_the_agent_is_interrupted_at_once(
    server: ServerProcess, leave: Leave, stream: bool, measured: Measured
) -> None:
    delays = [_delay(server, leave, stream) for _ in range(5)]
    measured("seconds_until_interrupt", [round(delay, 4) for delay in delays])
    assert statistics.median(delays) < 0.1
    eventually(lambda: server.is_idle, 1)


def _delay(server: ServerProcess, leave: Leave, stream: bool) -> float:
    session = new_name("silent")
    with open_connection(server) as talk:
        talk.send(chat_bytes(server, session, "!silent", stream))
        if stream:
            talk.until(b'"content": "ready"')
        runs = server.plan.data_dir / "workspace" / f"{session}.runs"
        eventually(runs.exists)
        left = leave(talk)
        return interrupted_at(server, session) - left


def test_a_disconnect_does_not_affect_other_clients(server: ServerProcess) -> None:
    other = new_name("other")
    with (
        open_chat_stream(server, other, "tokens=100 rate=200") as stream,
        open_connection(server) as talk,
    ):
        talk.send(chat_bytes(server, new_name("gone"), "!silent"))
        talk.until(b'"content": "ready"')
        talk.reset()
        assert stream.last_chunk()["choices"][0]["finish_reason"] == "stop"
    (turn,) = turns(server, other)
    assert turn.said_by("assistant").count("t0") == 100
