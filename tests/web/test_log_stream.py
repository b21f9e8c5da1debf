"""The log as a stream: the latest lines and those that follow, for administrators, until the server stops."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.access import Access
from hermes_trio.keys import Keyring, NamedKey
from hermes_trio.log_tail import MAX_LINE_CHARS, LogTail
from hermes_trio.schema import replies
from hermes_trio.web.state import WebOptions
from tests.support.fakes import KEY, OTHER_KEY, AppHarness, bearer, make_harness

LOGS = "/api/logs"
KEYS = Keyring((NamedKey("ann", KEY, Access(is_admin=True)), NamedKey("bob", OTHER_KEY)))


def logging_harness(*texts: str, options: WebOptions | None = None) -> tuple[AppHarness, LogTail]:
    harness = make_harness(keyring=KEYS, options=options or WebOptions())
    tail = harness.state.log_feed.tail
    for text in texts:
        tail.append(1.5, "info", text)
    return harness, tail


def texts(stream: bytes) -> list[str]:
    """The lines of a stream, whose numbers are the ids of their events."""
    found: list[dict[str, Any]] = []
    for frame in stream.decode().split("\n\n"):
        if frame and not frame.startswith(":"):
            number, event, data = frame.split("\n")
            line = json.loads(data.removeprefix("data: "))
            assert line.keys() == {each.name for each in replies.LogEvent.__attrs_attrs__}
            assert (number, event) == (f"id: {line['number']}", "event: log")
            found.append(line)
    return [line["text"] for line in found]


async def read_all(harness: AppHarness, query: str = "", **headers: str) -> list[str]:
    """What a stream sends of a server that has stopped."""
    harness.state.log_feed.close()
    answer = await harness.client.get(f"{LOGS}{query}", headers)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/event-stream"
    return texts(answer.body)


async def test_the_latest_lines_and_those_that_follow() -> None:
    harness, tail = logging_harness("one", "two")
    async with harness.client.open("GET", LOGS) as exchange:
        await wait_all_tasks_blocked()
        threads = [
            threading.Thread(target=tail.append, args=(2.5, "error", text)) for text in ("a", "b")
        ]
        for thread in threads:
            thread.start()
            thread.join()
            await wait_all_tasks_blocked()
        harness.state.log_feed.close()
        await exchange.end()
    assert texts(exchange.raw) == ["one", "two", "a", "b"]


async def test_how_many_lines_is_up_to_the_client() -> None:
    harness, _ = logging_harness("one", "two", "three")
    assert await read_all(harness, "?lines=2") == ["two", "three"]
    assert await read_all(harness, "?lines=0") == []


async def test_a_client_continues_after_the_line_that_it_has() -> None:
    harness, _ = logging_harness("one", "two", "three")
    assert await read_all(harness, **{"Last-Event-ID": "2"}) == ["three"]
    assert await read_all(harness, **{"Last-Event-ID": "3"}) == []
    # The number is that of an earlier process.
    assert await read_all(harness, **{"Last-Event-ID": "900"}) == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("query", "headers", "param"),
    [
        ("?lines=1001", {}, "lines"),
        ("?lines=x", {}, "lines"),
        ("", {"Last-Event-ID": "-1"}, "Last-Event-ID"),
    ],
)
async def test_bad_numbers_are_refused(query: str, headers: dict[str, str], param: str) -> None:
    harness, _ = logging_harness()
    answer = await harness.client.get(f"{LOGS}{query}", headers)
    assert (answer.status, answer.error["param"]) == (400, param)


async def test_it_is_for_administrators() -> None:
    harness, _ = logging_harness("one")
    answer = await harness.client.get(LOGS, bearer(OTHER_KEY))
    assert (answer.status, answer.error["code"]) == (403, "insufficient_scope")


async def test_a_quiet_stream_is_kept_alive(mock_clock: MockClock) -> None:
    harness, _ = logging_harness(options=WebOptions(keepalive_seconds=10))
    async with harness.client.open("GET", LOGS) as exchange:
        await wait_all_tasks_blocked()
        mock_clock.jump(10)
        await wait_all_tasks_blocked()
        harness.state.log_feed.close()
        await exchange.end()
    assert exchange.raw == b": keepalive\n\n" * 2


async def test_a_client_that_leaves_listens_no_longer() -> None:
    harness, tail = logging_harness()
    async with harness.client.open("GET", LOGS) as exchange:
        await wait_all_tasks_blocked()
        exchange.disconnect()
        await exchange.end()
    tail.append(1.0, "info", "nobody hears this")
    assert tail._listeners == ()
    assert harness.is_idle


def test_a_tail_is_bounded() -> None:
    tail = LogTail(max_lines=2)
    for text in ("one", "two", "x" * (MAX_LINE_CHARS + 1)):
        tail.append(1.0, "info", text)
    two, long = tail.read(0)
    assert (two.number, two.text, long.number) == (2, "two", 3)
    assert long.text == "x" * (MAX_LINE_CHARS - 1) + "…"
    assert tail.read(2, limit=0) == []


def test_a_listener_may_log() -> None:
    """As a finalizer may, which the garbage collector runs in the middle of anything."""
    tail = LogTail()

    def log_once() -> None:
        if tail.count == 1:
            tail.append(1.0, "info", "two")

    with tail.listening(log_once):
        tail.append(1.0, "info", "one")
    tail.append(1.0, "info", "three")
    assert [line.text for line in tail.read(0)] == ["one", "two", "three"]
