"""``python -m benchmarks.servers.limit PORT``.

The speed of Trio and the kernel with almost nothing in between.

A bare Trio socket server with the minimum of HTTP that the benchmark's client understands. It has the
same agents and the same bound between agent and writer, joins pending text into one frame, and tunes
the interpreter as hermes_trio does.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import islice
from typing import Any

import trio

from benchmarks.servers.frames import FINISH, KEEPALIVE, ROLE, reply, text_frame
from benchmarks.servers.schedule import Load, parse_load, speak

PLACES = 256
KEEPALIVE_SECONDS = 2.0
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
REPLY_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"

Write = Callable[[str], Awaitable[None]]


class Pile:
    """A bounded queue of text between an agent and the writer, with one wake-up for many pieces."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._changed = threading.Condition()
        self._pieces: list[str] = []
        self._is_over = False
        self._armed = False
        self._news = trio.Event()
        self.gone = threading.Event()

    def put(self, piece: str) -> None:
        """Add a piece, from a thread; block while the queue is full."""
        with self._changed:
            while len(self._pieces) >= PLACES and not self.gone.is_set():
                self._changed.wait()
            self._pieces.append(piece)
            self._wake()

    def end(self) -> None:
        """End the stream."""
        with self._changed:
            self._is_over = True
            self._wake()

    def _wake(self) -> None:
        if self._armed:
            self._armed = False
            self._token.run_sync_soon(self._news.set)

    def leave(self) -> None:
        """Discard further pieces: the client has left."""
        with self._changed:
            self.gone.set()
            self._changed.notify_all()

    async def take(self) -> str:
        """Return everything pending as one text; "" at the end."""
        while True:
            with self._changed:
                if self._pieces or self._is_over:
                    pieces, self._pieces = self._pieces, []
                    self._changed.notify_all()
                    return "".join(pieces)
                self._armed = True
                self._news = trio.Event()
            await self._news.wait()


async def from_task(load: Load) -> AsyncIterator[str]:
    """Yield the text of an agent that runs in this task: everything due, in one piece."""
    await trio.sleep(load.wait)
    start = trio.current_time()
    number = 1
    while number <= load.tokens:
        await trio.sleep_until(load.due(start, number))
        pieces = list(islice(_due(load, start, number), PLACES))
        number += len(pieces)
        yield "".join(pieces)


def _due(load: Load, start: float, first: int) -> Iterator[str]:
    """Return the tokens that are due by now, at least the first."""
    yield load.token(first)
    now = trio.current_time()
    for number in range(first + 1, load.tokens + 1):
        if load.due(start, number) > now:
            return
        yield load.token(number)


class Server:
    """Handles all connections."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(10_000)

    async def handle(self, stream: trio.SocketStream) -> None:
        """Handle one connection."""
        waiting = b""
        try:
            while True:
                while b"\r\n\r\n" not in waiting:
                    if not (data := await stream.receive_some(65536)):
                        return
                    waiting += data
                head, _, waiting = waiting.partition(b"\r\n\r\n")
                length = _content_length(head)
                while len(waiting) < length:
                    waiting += await stream.receive_some(65536)
                body, waiting = waiting[:length], waiting[length:]
                await self._answer(stream, body)
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            await trio.aclose_forcefully(stream)

    async def _answer(self, stream: trio.SocketStream, body: bytes) -> None:
        if not body:
            await stream.send_all(REPLY_HEAD % 2 + b"ok")
            return
        asked = json.loads(body)
        load = parse_load(asked["messages"][-1]["content"])
        if asked.get("stream"):
            await stream.send_all(STREAM_HEAD + chunk(ROLE))
            await self._run(
                load, lambda text: stream.send_all(chunk(text_frame(text) if text else KEEPALIVE))
            )
            await self.ended(asked)
            await stream.send_all(chunk(FINISH) + LAST_CHUNK)
        else:
            whole = reply("".join(await self._collect(load)))
            await self.ended(asked)
            await stream.send_all(REPLY_HEAD % len(whole) + whole)

    async def ended(self, asked: Any) -> None:
        """Do nothing. Called when a turn has ended, before its client is told."""

    async def _collect(self, load: Load) -> list[str]:
        pieces: list[str] = []

        async def keep(text: str) -> None:
            pieces.append(text)

        await self._run(load, keep)
        return pieces

    async def _run(self, load: Load, write: Write) -> None:
        """Yield the agent's text; "" after a silence."""
        if load.mode == "async":
            async for piece in from_task(load):
                await write(piece)
            return
        pile = Pile()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._host, load, pile)
            try:
                await self._pass_on(pile, write)
            finally:
                pile.leave()

    async def _host(self, load: Load, pile: Pile) -> None:
        def work() -> None:
            speak(load, pile.put, pile.gone)
            pile.end()

        await trio.to_thread.run_sync(work, limiter=self._limiter, abandon_on_cancel=True)

    async def _pass_on(self, pile: Pile, write: Write) -> None:
        text = "first"
        while text:
            with trio.move_on_after(KEEPALIVE_SECONDS) as patience:
                text = await pile.take()
            if text:
                await write("" if patience.cancelled_caught else text)


def chunk(data: bytes) -> bytes:
    """Return data as a chunk of a body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _content_length(head: bytes) -> int:
    _, found, rest = head.lower().partition(b"content-length:")
    return int(rest.split(b"\r\n", 1)[0]) if found else 0


def tune() -> None:
    """Tune the interpreter as hermes_trio does."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 1_000)
    sys.setswitchinterval(0.02)


def main() -> None:
    """Serve until the process is ended."""
    tune()
    trio.run(serve, int(sys.argv[1]), Server())


async def serve(port: int, server: Server) -> None:
    """Listen on a port of this machine."""
    await trio.serve_tcp(server.handle, port, host="127.0.0.1", backlog=1024)


if __name__ == "__main__":
    main()
