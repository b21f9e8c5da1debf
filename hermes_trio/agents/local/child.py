"""One life of the process that serves a model: started, heard, and ended with all that belongs to it."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import cast

import attrs
import structlog
import trio
from attrs import frozen

from hermes_trio.tools.environment import safe_environment

log = structlog.get_logger(__name__)

PROGRAM = Path(__file__).with_name("program.py")
STOP_SECONDS = 5.0
LONGEST_LINE = 4_096
# What the libraries of the child read: which devices there are, and where their own libraries are.
DEVICES = ("CUDA_", "HIP_", "ROCR_", "GGML_", "OMP_", "LD_LIBRARY_PATH", "VK_")


@frozen
class Wish:
    """What is to be served, and how."""

    model: Path
    context: int = 8_192  # tokens, shared by all slots
    slots: int = 4  # turns at the same time
    threads: int = 0  # 0: as many as the library likes
    gpu_layers: int = -1  # -1: as many as fit
    port: int = 0  # 0: a free one
    key: str = attrs.field(factory=lambda: secrets.token_urlsafe(32), repr=False)  # other users may not ask

    def line(self) -> bytes:
        """For the child."""
        return json.dumps({**attrs.asdict(self), "model": str(self.model)}).encode() + b"\n"


class _Ear:
    """Reads what a child says about itself; keeps the two lines that may explain its end."""

    def __init__(self) -> None:
        self._last = self._first_error = ""

    @property
    def complaint(self) -> str:
        """What it complained about first, or its last words."""
        return self._first_error or self._last

    def forget(self) -> None:
        """All is well so far."""
        self._first_error = ""

    async def listen(self, stream: trio.abc.ReceiveStream) -> None:
        """To the end of the stream."""
        rest = b""
        async for piece in stream:
            *lines, rest = (rest + piece).split(b"\n")
            rest = rest[-LONGEST_LINE:]
            for line in lines:
                self._hear(line.decode("utf-8", "replace").strip())

    def _hear(self, line: str) -> None:
        log.debug("the model's server says", line=line)
        _, mark, text = line.partition(" E ")  # a time, a level, a text
        self._last = line or self._last
        self._first_error = self._first_error or (text.strip() if mark else "")


async def live(wish: Wish, on_ready: Callable[[str], None], command: tuple[str, ...] = ()) -> str:
    """Let a child live, and return why it ended, in one line. A cancellation ends it.

    Args:
        wish: for the child.
        on_ready: gets the address when the model is loaded.
        command: the program; ours if there is none.
    """
    ear = _Ear()
    async with trio.open_nursery() as nursery:
        process = await nursery.start(partial(_run, command or (sys.executable, "-P", str(PROGRAM))))
        nursery.start_soon(ear.listen, process.stderr)
        with suppress(trio.BrokenResourceError):  # it is dead already: its end says why
            await process.stdin.send_all(wish.line())
        address = _address(await _line(process.stdout))
        if address:
            ear.forget()
            on_ready(address)
        await process.wait()
    return _end(process.returncode, ear.complaint)


async def _run(command: tuple[str, ...], task_status: trio.TaskStatus[trio.Process]) -> None:
    # The same packages as ours, and none of our secrets.
    devices = [name for name in os.environ if name.startswith(DEVICES)]
    environ = safe_environment(os.environ, devices) | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    await trio.run_process(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        check=False,
        env=environ,
        start_new_session=True,
        deliver_cancel=_stop,
        task_status=task_status,
    )


async def _stop(process: trio.Process) -> None:
    """Called in a shielded scope, which ends with the process."""
    assert process.stdin is not None
    with trio.move_on_after(STOP_SECONDS) as patience:
        await process.stdin.aclose()
        await process.wait()
    if patience.cancelled_caught:
        with suppress(ProcessLookupError):  # it ended just now
            os.killpg(process.pid, signal.SIGKILL)


async def _line(stream: trio.abc.ReceiveStream) -> bytes:
    """The first line; empty if there is none."""
    received = b""
    async for piece in stream:
        received += piece
        if b"\n" in received or len(received) > LONGEST_LINE:
            return received.partition(b"\n")[0]
    return b""


def _address(line: bytes) -> str:
    return cast("str", json.loads(line)["address"]) if line else ""


def _end(code: int | None, complaint: str) -> str:
    how = f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"
    return f"{how}: {complaint}" if complaint else how
