"""Start contenders: each is a process on its own core, for the length of a block."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from attrs import frozen

from benchmarks.contenders import SERVER_CORE, Address, Contender, Program
from benchmarks.loads import KEEPALIVE_SECONDS
from benchmarks.servers.peer import KEY
from tests.support.server_process import LaunchOptions

ROOT = Path(__file__).parents[1]
TIMEOUT_SECONDS = 60.0
POLL_SECONDS = 0.005
LOG = "log"
AGENT = "benchmarks.agent:factory"
HEALTH = b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
# Threads inherit the core of the thread that starts them, so it has to be chosen before there is
# any other.
PINNED = (
    sys.executable, "-S", "-c",
    "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); os.execv(sys.argv[2], sys.argv[2:])",
)  # fmt: skip
SETTINGS = {
    "api_key": KEY,
    "max_runs": 0,
    "log_level": "warning",
    "keepalive_seconds": KEEPALIVE_SECONDS,
    "drain_seconds": 0,
    "interrupt_grace_seconds": 1,
}


class NotStarted(Exception):
    """A contender did not start."""


@frozen
class Interpreters:
    """The Python interpreters of the contenders."""

    ours: str = sys.executable
    peer: str = ""  # "" if there is none; its contenders are skipped
    plain: str = ""

    def of(self, program: Program) -> str:
        """Return the interpreter of a program."""
        return {Program.PEER: self.peer, Program.PLAIN: self.plain}.get(program, self.ours)


@asynccontextmanager
async def serving(
    contender: Contender, interpreters: Interpreters, folder: Path
) -> AsyncIterator[Address]:
    """Run a contender for the length of the block, in an existing folder.

    Raises:
        NotStarted: it does not answer.
    """
    port = free_port()
    command = command_of(contender, interpreters.of(contender.program), port, folder)
    settings = {
        **SETTINGS,
        "write_through": "on" if contender.write_through else "off",
        "stream_durability": contender.durability,
    }
    async with running([*PINNED, str(SERVER_CORE), *command], folder, settings) as process:
        await until_healthy(port, process, folder)
        yield Address(port, process.pid)


@asynccontextmanager
async def running(
    command: Sequence[str], folder: Path, settings: Mapping[str, object] = SETTINGS
) -> AsyncIterator[trio.Process]:
    """Run a process for the length of the block; its output goes into a file of the folder."""
    with (folder / LOG).open("wb") as log:
        process = await trio.lowlevel.open_process(
            command,
            cwd=ROOT,
            env=LaunchOptions(folder, settings=dict(settings)).environment("bench"),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.kill()
        with trio.CancelScope(shield=True), trio.move_on_after(TIMEOUT_SECONDS):
            await process.wait()


async def until_healthy(port: int, process: trio.Process, folder: Path) -> None:
    """Return when ``/health`` answers.

    Raises:
        NotStarted: it never does.
    """
    with trio.move_on_after(TIMEOUT_SECONDS):
        while process.returncode is None:
            if await _is_healthy(port):
                return
            await trio.sleep(POLL_SECONDS)
    raise NotStarted(await trio.Path(folder / LOG).read_text(errors="replace"))


async def measure_startup(folder: Path) -> float:
    """Return the seconds from starting ``hermes-trio serve`` to its first answer, on the core of this process."""
    port = free_port()
    command = (sys.executable, "-m", "hermes_trio", "serve", "--agent", "demo", "--port", str(port))
    begun = trio.current_time()
    async with running(command, folder) as process:
        await until_healthy(port, process, folder)
        return trio.current_time() - begun


def command_of(contender: Contender, python: str, port: int, folder: Path) -> Sequence[str]:
    """Return the command that starts a contender."""
    match contender.program:
        case Program.OURS:
            return (python, "-m", "hermes_trio", "serve", "--agent", AGENT, "--port", str(port))
        case Program.PEER:
            home = str(folder / "hermes")
            return (
                python, "-m", "benchmarks.servers.peer", str(port), home, str(contender.threads),
            )  # fmt: skip
        case Program.RECORDS:
            return (python, "-m", "benchmarks.servers.records", str(port), str(folder))
        case _:
            return (python, "-m", f"benchmarks.servers.{contender.program.value}", str(port))


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


async def _is_healthy(port: int) -> bool:
    try:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(HEALTH)
            return (await stream.receive_some(64)).startswith(b"HTTP/1.1 200")
    except OSError:
        return False
