"""``hypercorn -k trio hermes_trio.asgi:app``: the same server under Hypercorn's own command line."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pytest
import trio

from tests.e2e.conftest import AGENTS
from tests.e2e.records import turns
from tests.e2e.server import PATIENCE, Plan, Server, begin, eventually, kill
from tests.e2e.wire import chat_bytes, listening, talking
from tests.server.raw import UPGRADE
from tests.server.triggers import h2_bad_path, h2_connect

pytestmark = pytest.mark.xdist_group("e2e-hypercorn")

COMMAND = (
    *(sys.executable, "-m", "hypercorn", "--worker-class", "trio", "--workers", "1"),
    *("--bind", "127.0.0.1:0", "hermes_trio.asgi:app"),
)
_RUNNING = re.compile(r"Running on (http://\S+)")


@pytest.fixture(scope="module")
def hypercorn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"agent": AGENTS, "api_key": "a-key-for-hypercorn"}
    plan = Plan(tmp_path_factory.mktemp("hypercorn"), settings=settings, command=COMMAND)
    server = begin(plan)
    try:
        eventually(lambda: _RUNNING.search(server.log) is not None or server.process.poll() is not None)
        found = _RUNNING.search(server.log)
        assert found is not None, server.log
        server.url = found[1]
        yield server
        server.signal()
        server.wait(PATIENCE)
    finally:
        kill(server)


def test_a_turn(hypercorn: Server) -> None:
    with listening(hypercorn, "under-hypercorn", "/terminal echo hi\n/long 3") as stream:
        assert stream.last_chunk()["choices"][0]["finish_reason"] == "stop"
    assert turns(hypercorn, "under-hypercorn")[0].status == "completed"


@pytest.mark.parametrize("more", [b"x", b"\xff\x00garbage\r\n\r\n" * 10], ids=["byte", "garbage"])
def test_a_bad_upgrade_costs_one_connection(hypercorn: Server, more: bytes) -> None:
    with listening(hypercorn, "victim", "tokens=20 rate=40") as victim:
        victim.until("t000001")
        with talking(hypercorn) as talk:
            talk.send(UPGRADE + more)
            assert b" 400 " in talk.to_end()
        assert victim.last_chunk()["choices"][0]["finish_reason"] == "stop"
    assert hypercorn.health()["status"] == "ok"


@pytest.mark.parametrize("trigger", [h2_bad_path, h2_connect])
async def test_a_bad_frame_costs_one_connection(hypercorn: Server, trigger: object) -> None:
    assert callable(trigger)
    with trio.fail_after(PATIENCE):
        await trigger(hypercorn.port)
    assert hypercorn.health()["status"] == "ok"


def test_a_client_that_leaves(hypercorn: Server) -> None:
    with talking(hypercorn) as talk:
        talk.send(chat_bytes(hypercorn, "left", "/terminal sleep 60"))
        talk.until(b'"status": "running"')
    eventually(lambda: [turn.reason for turn in turns(hypercorn, "left")] == ["client_disconnected"], 1)
