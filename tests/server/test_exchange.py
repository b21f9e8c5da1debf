"""What an application is told of a plain request is what Hypercorn would tell it."""

from __future__ import annotations

from typing import Any

import pytest
from hypercorn.config import Config
from hypercorn.protocol.events import Request, StreamClosed
from hypercorn.protocol.h11 import STREAM_ID
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState

from hermes_trio.server.exchange import Exchange, PlainStream
from hermes_trio.server.plain import Head, read_head

STATE = ConnectionState({"a": 1})


class Applications:
    """Notes what would be started and said."""

    def __init__(self) -> None:
        self.scopes: list[Any] = []
        self.said: list[Any] = []

    async def spawn_app(self, _app: Any, _config: Any, scope: Any, _send: Any) -> Any:
        self.scopes.append(scope)
        return self.put

    async def put(self, message: Any) -> None:
        self.said.append(message)


class Log:
    """Notes what would be in the access log."""

    def __init__(self) -> None:
        self.lines: list[tuple[Any, Any]] = []

    async def access(self, scope: Any, response: Any, _seconds: float) -> None:
        self.lines.append((scope, response))


def config(log: Log, server_names: list[str] | None = None) -> Config:
    made = Config.from_mapping(server_names=server_names or [], root_path="/root")
    made._log = log  # type: ignore[assignment]
    return made


def parts(made: Config, applications: Applications, sent: list[Any]) -> tuple[Any, ...]:
    async def send(event: Any) -> None:
        sent.append(event)

    addresses = (("192.0.2.1", 50_000), ("192.0.2.2", 80))
    return None, made, WorkerContext(None), applications, False, *addresses, send, STREAM_ID


def head_of(target: bytes, host: bytes = b"x") -> Head:
    head = read_head(b"POST %s HTTP/1.1\r\nHost: %s\r\nX-A: b\r\n\r\n" % (target, host))
    assert head is not None
    return head


def as_event(head: Head) -> Request:
    return Request(STREAM_ID, head.headers, "1.1", head.method, head.target, STATE)


@pytest.mark.parametrize("target", [b"/", b"/a%20b/%C3%A9?c=%20d&e=?", b"*", b"http://x/y", b"?", b"/%ff"])
async def test_the_scope_of_a_plain_request_is_hypercorns(target: bytes) -> None:
    ours, theirs, head = Applications(), Applications(), head_of(target)
    await PlainStream(None, *parts(config(Log()), ours, [])).begin(head, STATE)  # type: ignore[arg-type]
    await Exchange(*parts(config(Log()), theirs, [])).handle(as_event(head))
    assert ours.scopes == theirs.scopes
    assert ours.scopes[0]["state"] == STATE
    assert ours.scopes[0]["state"] is not STATE


@pytest.mark.parametrize(("host", "is_ours"), [(b"named", True), (b"other", False)])
async def test_a_host_that_is_not_ours_is_refused(host: bytes, is_ours: bool) -> None:
    applications, sent = Applications(), list[Any]()
    made = config(Log(), server_names=["named"])
    stream = PlainStream(None, *parts(made, applications, sent))  # type: ignore[arg-type]
    await stream.begin(head_of(b"/", host), STATE)
    assert (len(applications.scopes), stream.closed) == (int(is_ours), not is_ours)
    assert [event.status_code for event in sent if hasattr(event, "status_code")] == [404] * (not is_ours)


async def test_a_client_that_leaves_is_told_and_logged_once() -> None:
    ours, our_log, theirs, their_log = Applications(), Log(), Applications(), Log()
    plain = PlainStream(None, *parts(config(our_log), ours, []))  # type: ignore[arg-type]
    stock = Exchange(*parts(config(their_log), theirs, []))
    await plain.begin(head_of(b"/"), STATE)
    await stock.handle(as_event(head_of(b"/")))
    for _ in range(2):
        await plain.end()
        await stock.handle(StreamClosed(stream_id=STREAM_ID))
    assert ours.said == theirs.said == [{"type": "http.disconnect"}]
    assert our_log.lines == their_log.lines == [(ours.scopes[0], None)]
