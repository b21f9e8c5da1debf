"""The log lines of a request: they carry its id, and the last one tells how it ended."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import structlog
from quart import Response
from trio.testing import wait_all_tasks_blocked

from hermes_trio.core.events import Text
from hermes_trio.web.sse import StreamTruncated
from hermes_trio.web.state import WebOptions
from tests.support.asgi import Exchange, make_scope
from tests.support.fakes import CHAT, KEY, AppHarness, Pause, ask, ask_stream, bearer, make_harness

log = structlog.get_logger(__name__)
Lines = list[dict[str, Any]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """All log lines, with what is bound to the context."""
    entries = structlog.testing.LogCapture()
    before = structlog.get_config()["processors"]
    structlog.configure(processors=[structlog.contextvars.merge_contextvars, entries])
    yield entries.entries  # type: ignore[misc]  # mappings are dictionaries here
    structlog.configure(processors=before)


def requests(lines: Lines) -> Lines:
    """The lines of the access log, without the time it took."""
    found = [dict(line) for line in lines if line["event"] == "request"]
    assert all(line.pop("duration") >= 0 and line.pop("log_level") == "info" for line in found)
    return [{name: value for name, value in line.items() if name != "event"} for line in found]


async def test_a_whole_response(lines: Lines) -> None:
    harness = make_harness()
    answer = await harness.client.send(CHAT, ask(), {"X-Request-Id": "mine"})
    assert requests(lines) == [
        {
            "method": "POST",
            "route": CHAT,
            "status": 200,
            "bytes": len(answer.body),
            "complete": True,
            "principal": "ann",
            "request_id": "mine",
        }
    ]


async def test_a_stream_is_logged_when_it_ends(lines: Lines) -> None:
    pause = Pause()
    harness = make_harness([Text("One"), pause, Text("two")])
    async with harness.client.post(CHAT, ask_stream()) as exchange:
        await exchange.content("One")
        assert requests(lines) == []
        pause.go()
        answer = await exchange.end()
    [line] = requests(lines)
    assert (line["status"], line["bytes"], line["complete"]) == (200, len(answer.body), True)
    assert line["request_id"] == answer.headers["x-request-id"]


async def test_a_client_that_leaves_a_stream(lines: Lines) -> None:
    pause = Pause()
    harness = make_harness([Text("One"), pause])
    async with harness.client.post(CHAT, ask_stream()) as exchange:
        await exchange.content("One")
        exchange.disconnect()
        await exchange.end()
    [line] = requests(lines)
    assert (line["status"], line["complete"]) == (200, False)
    assert line["bytes"] == len(exchange.raw)


async def test_a_client_that_leaves_before_there_is_a_status(lines: Lines) -> None:
    harness = make_harness()
    async with harness.client.open("POST", CHAT, [b"{"], is_whole=False) as exchange:
        await wait_all_tasks_blocked()
        exchange.disconnect()
        await exchange.end()
    [line] = requests(lines)
    assert (line["status"], line["bytes"], line["complete"]) == (None, 0, False)


async def test_a_stream_that_is_cut(lines: Lines) -> None:
    """The transfer breaks, without a traceback in the log.

    The run gave its reader up, which is no mistake.
    """
    harness = make_harness()

    @harness.app.get("/cut")
    async def cut() -> Response:
        async def parts() -> AsyncIterator[bytes]:
            yield b"part"
            raise StreamTruncated

        return Response(parts(), 200)

    async with harness.client.open("GET", "/cut") as exchange:
        await exchange.end()
    assert not exchange.was_finished
    [line] = requests(lines)
    assert (line["status"], line["bytes"], line["complete"]) == (200, 4, False)
    [warning] = [line for line in lines if line["log_level"] != "info"]
    assert (warning["log_level"], warning.get("exc_info")) == ("warning", None)
    assert warning["request_id"] == line["request_id"]


@pytest.mark.parametrize(
    ("method", "path", "headers", "route", "status"),
    [
        ("GET", "/health", {}, "/health", 200),
        ("GET", "/v1/runs/run_x", {}, "/v1/runs/<run_id>", 404),
        ("GET", "/nowhere", {}, "", 404),
        ("DELETE", "/health", {}, "", 405),
        ("GET", "?x", {}, "", 400),
        ("GET", "/health", {"Origin": "https://evil.test"}, "", 403),
        ("POST", CHAT, {"Content-Length": "99999999999"}, "", 413),
        ("OPTIONS", CHAT, {}, "", 200),
    ],
)
async def test_every_response_is_logged(
    method: str, path: str, headers: dict[str, str], route: str, status: int, lines: Lines
) -> None:
    await make_harness().client.get(path, headers, method)
    [line] = requests(lines)
    assert (line["method"], line["route"], line["status"]) == (method, route, status)


async def test_a_request_without_a_key_has_no_principal(lines: Lines) -> None:
    harness = make_harness()
    await harness.client.get("/v1/models", {"Authorization": "Bearer wrong"})
    [line] = requests(lines)
    assert (line["principal"], line["status"]) == ("", 401)
    [refusal] = [line for line in lines if line["event"] == "refused a key"]
    assert refusal["request_id"] == line["request_id"]


async def test_it_can_be_switched_off(lines: Lines) -> None:
    harness = make_harness(options=WebOptions(access_log=False))
    assert (await harness.client.get("/health")).status == 200
    assert lines == []


async def request_in_this_task(harness: AppHarness, path: str) -> str:
    """A request that is handled in the task of the caller, as a server may do on a connection that is kept alive."""
    exchange = Exchange(make_scope("GET", path, bearer(KEY)))
    exchange.upload(b"")
    await exchange.run(harness.client.app)
    return exchange.answer.headers["x-request-id"]


async def test_requests_in_one_task_have_their_own_ids_and_leave_none_behind(lines: Lines) -> None:
    harness = make_harness()

    @harness.app.get("/logs")
    async def logs() -> str:
        log.info("in a view")
        return ""

    first, second = (
        await request_in_this_task(harness, "/logs"),
        await request_in_this_task(harness, "/logs"),
    )
    log.info("afterwards")
    assert first != second
    assert [(line["event"], line.get("request_id")) for line in lines] == [
        ("in a view", first),
        ("request", first),
        ("in a view", second),
        ("request", second),
        ("afterwards", None),
    ]
    assert re.fullmatch(r"req_[0-9a-f]{32}", first)
    assert structlog.contextvars.get_contextvars() == {}
