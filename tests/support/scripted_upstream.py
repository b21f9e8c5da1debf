"""A scripted model server: real HTTP on a loopback socket.

Each request plays the next script, which is a list of steps::

    async with scripted([Say("Hello"), FINISH], [Reply(429, headers={"Retry-After": "1"})]) as
    upstream:
        ...  # talk to upstream.base_url
        assert upstream.requests[0].json["model"] == "m"

A script may also be a function that makes the steps from the request. A
:class:`~tests.support.fakes.Pause` is a step too: there the server waits until the test says
``go``.
"""

from __future__ import annotations

import json
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
from attrs import define, field, frozen

from tests.support.asgi import real_timeout
from tests.support.fakes import Pause

Json = dict[str, Any]
NO_HEADERS: Mapping[str, str] = {}


@frozen
class Say:
    """A piece of text."""

    text: str


@frozen
class Think:
    """A piece of reasoning, under the name that the server has for it."""

    text: str
    name: str = "reasoning_content"


@frozen
class Call:
    """A whole tool call. Several in one chunk: :class:`Calls`."""

    name: str
    args: Any = field(factory=dict)  # a text goes out as it is
    call_id: str = "call_1"
    index: int = 0

    @property
    def json(self) -> Json:
        arguments = self.args if isinstance(self.args, str) else json.dumps(self.args)
        function = {"name": self.name, "arguments": arguments}
        return {"index": self.index, "id": self.call_id, "type": "function", "function": function}


@frozen
class Calls:
    """Pieces of tool calls as the server has them, in one chunk."""

    pieces: tuple[Json, ...]


@frozen
class Finish:
    """The last chunk, the usage, and the end marker."""

    reason: str = "stop"
    usage: Mapping[str, Any] | None = None
    done: bool = True


@frozen
class Event:
    """An event with this data."""

    payload: Any


@frozen
class Raw:
    """Bytes of the body, as they are."""

    data: bytes


@frozen
class Reply:
    """A whole answer instead of a stream."""

    status: int = 200
    body: bytes | Json = b""
    headers: Mapping[str, str] = NO_HEADERS


@frozen
class Reset:
    """The connection is reset without a response."""


@frozen
class Close:
    """The connection is closed in the middle of the answer."""


@frozen
class Stall:
    """Nothing more is sent until the client gives up."""


Step = Say | Think | Call | Calls | Finish | Event | Raw | Reply | Reset | Close | Stall | Pause
USAGE = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
FINISH = Finish(usage=USAGE)
CALLED = Finish("tool_calls", USAGE)


def says(*texts: str) -> tuple[Step, ...]:
    """Return the script of a plain answer."""
    return (*map(Say, texts), FINISH)


def calls(*made: Call) -> tuple[Step, ...]:
    """Return the script of an answer that calls tools, all at once."""
    return (Calls(tuple({**call.json, "index": n} for n, call in enumerate(made))), CALLED)


def whole(text: str = "", made: Sequence[Call] = (), reason: str = "stop", **more: Any) -> Reply:
    """Return the answer of a server that does not stream."""
    message = {"role": "assistant", "content": text or None, **more}
    if made:
        message["tool_calls"] = [call.json for call in made]
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return Reply(200, {"object": "chat.completion", "choices": [choice], "usage": USAGE})


def refusal(
    status: int, message: str, headers: Mapping[str, str] = NO_HEADERS, **more: Any
) -> Reply:
    """Return an error in the usual envelope."""
    return Reply(status, {"error": {"message": message, "type": "some_error", **more}}, headers)


def sse(payload: object) -> bytes:
    """Return an encoded event."""
    return f"data: {json.dumps(payload, ensure_ascii=False)}\n\n".encode()


def chunk(delta: Mapping[str, Any], reason: str | None = None) -> Json:
    """Return a chunk of a stream."""
    choice = {"index": 0, "delta": dict(delta), "finish_reason": reason}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "model": "m",
        "choices": [choice],
    }


@frozen
class ReceivedRequest:
    """A received request."""

    method: str
    path: str
    headers: Mapping[str, str]  # by lower-case name
    body: bytes
    connection: int  # which connection it came on, counted from 1

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Script = Sequence[Step] | Callable[[ReceivedRequest], Sequence[Step]]


@define(eq=False)
class ScriptedUpstream:
    """The server, and the requests it received."""

    base_url: str
    scripts: deque[Script]
    requests: list[ReceivedRequest] = field(factory=list)
    unexpected: list[ReceivedRequest] = field(factory=list)  # came when no script was left
    models: tuple[str, ...] = ()  # what it tells when it is asked
    connections: int = 0
    open_connections: int = 0
    _closed: trio.Event = field(factory=trio.Event)

    async def until_closed(self) -> None:
        """Wait until every client has disconnected."""
        with real_timeout():
            while self.open_connections:
                await self._closed.wait()

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer the requests of one connection."""
        self.connections += 1
        self.open_connections += 1
        try:
            await self._converse(_Connection(stream, self.connections))
        except (trio.BrokenResourceError, trio.ClosedResourceError, _ConnectionOver):
            pass  # the client left, or the script let it go
        finally:
            self.open_connections -= 1
            self._closed.set()
            self._closed = trio.Event()

    async def _converse(self, line: _Connection) -> None:
        while True:
            asked = await line.request()
            if asked.method == "GET":
                await line.play(
                    Reply(200, {"object": "list", "data": [{"id": name} for name in self.models]})
                )
                continue
            self.requests.append(asked)
            for step in self._steps(asked):
                await line.play(step)
            await line.finish()

    def _steps(self, asked: ReceivedRequest) -> Sequence[Step]:
        if not self.scripts:
            self.unexpected.append(asked)
            return [refusal(500, "the test has no script for this request")]
        script = self.scripts.popleft()
        return script(asked) if callable(script) else script


@asynccontextmanager
async def serve_scripts(*scripts: Script) -> AsyncIterator[ScriptedUpstream]:
    """Serve the scripts, one for each request, for as long as the block runs."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    upstream = ScriptedUpstream(f"http://127.0.0.1:{port}/v1", deque(scripts))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(trio.serve_listeners, upstream.serve, listeners))
        yield upstream
        nursery.cancel_scope.cancel()
    assert not upstream.unexpected, [asked.json for asked in upstream.unexpected]


class _ConnectionOver(Exception):
    """The connection is over."""


class _Connection:
    """One connection: reads requests, writes answers."""

    def __init__(self, stream: trio.SocketStream, number: int) -> None:
        self._stream, self._number = stream, number
        self._buffer = b""
        self._is_streaming = False

    async def request(self) -> ReceivedRequest:
        """Return the next request."""
        while b"\r\n\r\n" not in self._buffer:
            await self._more()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        length = int(headers.get("content-length", "0"))
        while len(self._buffer) < length:
            await self._more()
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return ReceivedRequest(method, path, headers, body, self._number)

    async def _more(self) -> None:
        got = await self._stream.receive_some()
        if not got:
            raise _ConnectionOver
        self._buffer += got

    async def play(self, step: Step) -> None:
        """Play one step of a script."""
        match step:
            case Pause():
                await step.stop_here_in_trio()
            case Reply():
                await self._reply(step)
            case Reset():
                self._reset()
            case Close():
                raise await self._left()
            case Stall():
                await self._begin()
                while True:
                    await self._more()
            case _:
                for data in _bytes(step):
                    await self._write(data)

    async def finish(self) -> None:
        """End the response with the script."""
        if self._is_streaming:
            await self._stream.send_all(b"0\r\n\r\n")
            self._is_streaming = False

    async def _begin(self) -> None:
        if not self._is_streaming:
            self._is_streaming = True
            head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            await self._stream.send_all(head.encode())

    async def _write(self, data: bytes) -> None:
        await self._begin()
        await self._stream.send_all(b"%x\r\n%s\r\n" % (len(data), data))

    async def _reply(self, reply: Reply) -> None:
        body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        headers = {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **reply.headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        await self._stream.send_all(f"HTTP/1.1 {reply.status} Said\r\n{lines}\r\n".encode() + body)

    def _reset(self) -> None:
        self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise _ConnectionOver

    async def _left(self) -> _ConnectionOver:
        await self._begin()
        return _ConnectionOver()


def _bytes(step: Step) -> Iterator[bytes]:
    """Yield the bytes of a step, piece by piece."""
    match step:
        case Say(text):
            yield sse(chunk({"content": text}))
        case Think(text, name):
            yield sse(chunk({name: text}))
        case Call():
            yield sse(chunk({"tool_calls": [step.json]}))
        case Calls(pieces):
            yield sse(chunk({"tool_calls": list(pieces)}))
        case Finish():
            yield from _end(step)
        case Event(payload):
            yield sse(payload)
        case Raw(data):
            yield data
        case _:
            raise AssertionError(f"no step: {step}")


def _end(step: Finish) -> Iterator[bytes]:
    yield sse(chunk({}, step.reason))
    if step.usage is not None:
        yield sse({"object": "chat.completion.chunk", "choices": [], "usage": dict(step.usage)})
    if step.done:
        yield b"data: [DONE]\n\n"
