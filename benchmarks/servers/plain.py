"""``python -m benchmarks.servers.plain PORT [WORKERS]``.

A straightforward server with Starlette on uvicorn.

A synchronous agent has its own thread and puts its tokens into the queue of its stream; an
asynchronous one is an asyncio task. Each token is a frame, and each frame is a write.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from benchmarks.servers.frames import FINISH, KEEPALIVE, ROLE, reply, text_frame
from benchmarks.servers.schedule import Load, parse_load, speak

KEEPALIVE_SECONDS = 2.0
QUEUE = 256
Say = Callable[[str | None], None]


async def health(request: Request) -> Response:
    """Report that the server responds."""
    return PlainTextResponse("ok")


async def chat(request: Request) -> Response:
    """Run one turn."""
    body = await request.json()
    load = parse_load(body["messages"][-1]["content"])
    if body.get("stream"):
        return StreamingResponse(stream(load), media_type="text/event-stream")
    pieces = [piece async for piece in tokens(load)]
    return Response(reply("".join(filter(None, pieces))), media_type="application/json")


async def stream(load: Load) -> AsyncIterator[bytes]:
    """Yield the frames of one turn."""
    yield ROLE
    async for piece in tokens(load):
        yield KEEPALIVE if piece is None else text_frame(piece)
    yield FINISH


def tokens(load: Load) -> AsyncIterator[str | None]:
    """Yield pieces of text; None after a silence."""
    return from_task(load) if load.mode == "async" else from_thread(load)


async def from_task(load: Load) -> AsyncIterator[str | None]:
    """Yield the text of an agent that runs in this task. Does not report silences."""
    await asyncio.sleep(load.wait)
    start = time.monotonic()
    for number in range(1, load.tokens + 1):
        if (left := load.due(start, number) - time.monotonic()) > 0:
            await asyncio.sleep(left)
        yield load.token(number)


async def from_thread(load: Load) -> AsyncIterator[str | None]:
    """Yield the text of an agent in a thread, which blocks while the queue is full."""
    loop, gone, places = asyncio.get_running_loop(), threading.Event(), threading.Semaphore(QUEUE)
    waiting: asyncio.Queue[str | None] = asyncio.Queue()

    def put(piece: str | None) -> None:
        while not places.acquire(timeout=1):
            if gone.is_set():
                return
        loop.call_soon_threadsafe(waiting.put_nowait, piece)

    def work() -> None:
        speak(load, put, gone)
        put(None)

    threading.Thread(target=work, daemon=True).start()
    try:
        while True:
            try:
                piece = await asyncio.wait_for(waiting.get(), KEEPALIVE_SECONDS)
            except TimeoutError:
                yield None
                continue
            places.release()
            if piece is None:
                return
            yield piece
    finally:
        gone.set()


app = Starlette(
    routes=[Route("/health", health), Route("/v1/chat/completions", chat, methods=["POST"])],
)


def main() -> None:
    """Serve until the process is ended."""
    workers = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    uvicorn.run(
        app if workers == 1 else "benchmarks.servers.plain:app",
        host="127.0.0.1",
        port=int(sys.argv[1]),
        workers=workers,
        log_level="warning",
        access_log=False,
        backlog=1024,
    )


if __name__ == "__main__":
    main()
