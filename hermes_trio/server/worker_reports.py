"""How workers report to each other: each serves its report on a Unix socket in a private directory.

A connection gets one report as JSON and is closed.
"""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path

import trio
from attrs import asdict, frozen

from hermes_trio.web.workers import WorkerReport, silent

ANSWER_SECONDS = 1.0
MAX_REPORT_BYTES = 4_000_000

MakeReport = Callable[[], Awaitable[WorkerReport]]


@asynccontextmanager
async def serve_reports(path: Path, make: MakeReport) -> AsyncIterator[None]:
    """Serve reports on a socket for the length of a block."""
    with _listening_socket(path) as sock:
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, partial(_send_report, make), [listener])
            yield
            nursery.cancel_scope.cancel()


@contextmanager
def _listening_socket(path: Path) -> Iterator[socket.socket]:
    """Listen at a path for the length of a block; a socket that a dead worker left is replaced."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.bind(str(path))
        sock.listen()
        try:
            yield sock
        finally:
            path.unlink(missing_ok=True)


async def _send_report(make: MakeReport, stream: trio.SocketStream) -> None:
    with trio.move_on_after(ANSWER_SECONDS), suppress(trio.BrokenResourceError):
        async with stream:
            await stream.send_all(json.dumps(asdict(await make())).encode())


@frozen
class ReportCollector:
    """Collects the reports of the other workers."""

    directory: Path
    number: int  # of this worker
    count: int

    async def collect(self) -> Sequence[WorkerReport]:
        """Return one report for each other worker, in order; of those that do not answer, a silent one."""
        others = [number for number in range(1, self.count + 1) if number != self.number]
        found = {number: silent(number) for number in others}

        async def ask(number: int) -> None:
            with suppress(OSError, trio.BrokenResourceError, ValueError, TypeError):
                found[number] = await _receive_report(socket_path(self.directory, number))

        with trio.move_on_after(ANSWER_SECONDS):
            async with trio.open_nursery() as nursery:
                for number in others:
                    nursery.start_soon(ask, number)
        return [found[number] for number in others]


async def _receive_report(path: Path) -> WorkerReport:
    """Ask one worker.

    Raises:
        OSError: It does not listen.
        trio.BrokenResourceError: It has died.
        ValueError, TypeError: It has died halfway, or sends something else.
    """
    data = bytearray()
    async with await trio.open_unix_socket(str(path)) as stream:
        async for part in stream:
            data += part
            if len(data) > MAX_REPORT_BYTES:
                raise ValueError("the report of a worker is too long")
    return WorkerReport(**json.loads(data))


def socket_path(directory: Path, number: int) -> Path:
    """Return the path of a worker's socket."""
    return directory / f"worker-{number}"
