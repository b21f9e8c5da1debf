"""Run the child process that serves a model, restart it when it exits, and tell turns its state."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import attrs
import structlog
import trio
from attrs import evolve, frozen

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.tools.base import safe_environment

log = structlog.get_logger(__name__)

PROGRAM = Path(__file__).with_name("program.py")
STOP_SECONDS = 5.0
MAX_LINE_BYTES = 4_096
# Variables that the child's libraries read, to choose devices and find their own libraries.
DEVICE_VARIABLES = ("CUDA_", "HIP_", "ROCR_", "GGML_", "OMP_", "LD_LIBRARY_PATH", "VK_")
STABLE_SECONDS = 60.0  # an exit after this time does not count as a repeated failure
MAX_RESTART_DELAY = 60.0


# -- the child process --


@frozen
class LaunchSpec:
    """Which model to serve, and how."""

    model: Path
    context: int = 8_192  # tokens, shared by all slots
    slots: int = 4  # concurrent turns
    threads: int = 0  # 0: chosen by the library
    gpu_layers: int = -1  # -1: as many as fit
    port: int = 0  # 0: any free port
    # Keeps out other users of the machine.
    key: str = attrs.field(factory=lambda: secrets.token_urlsafe(32), repr=False)

    def to_json_line(self) -> bytes:
        """Encode the spec for the child's standard input."""
        return json.dumps({**attrs.asdict(self), "model": str(self.model)}).encode() + b"\n"


class _LogReader:
    """Reads the child's standard error, and keeps the two lines that may explain why it exited."""

    def __init__(self) -> None:
        self._last = self._first_error = ""

    @property
    def explanation(self) -> str:
        """The first error since the last reset, or the last line."""
        return self._first_error or self._last

    def reset(self) -> None:
        """Forget the errors so far: they were not fatal."""
        self._first_error = ""

    async def read(self, stream: trio.abc.ReceiveStream) -> None:
        """Read to the end of the stream."""
        rest = b""
        async for piece in stream:
            *lines, rest = (rest + piece).split(b"\n")
            rest = rest[-MAX_LINE_BYTES:]
            for line in lines:
                self._take(line.decode("utf-8", "replace").strip())

    def _take(self, line: str) -> None:
        log.debug("model server output", line=line)
        _, mark, text = line.partition(" E ")  # time, level, text
        self._last = line or self._last
        self._first_error = self._first_error or (text.strip() if mark else "")


async def run_child(
    spec: LaunchSpec, on_ready: Callable[[str], None], command: tuple[str, ...] = ()
) -> str:
    """Run a child until it exits, and return why it did, in one line. A cancellation stops it.

    Args:
        spec: which model to serve, and how.
        on_ready: receives the child's URL when the model is loaded.
        command: the program to run instead of ``program.py``.
    """
    reader = _LogReader()
    async with trio.open_nursery() as nursery:
        process = await nursery.start(
            partial(_run, command or (sys.executable, "-P", str(PROGRAM)))
        )
        nursery.start_soon(reader.read, process.stderr)
        with suppress(trio.BrokenResourceError):  # it has exited already; its exit code says why
            await process.stdin.send_all(spec.to_json_line())
        line = await _read_line(process.stdout)
        address = cast("str", json.loads(line)["address"]) if line else ""
        if address:
            reader.reset()
            on_ready(address)
        await process.wait()
    code, explanation = process.returncode, reader.explanation
    how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    return f"{how}: {explanation}" if explanation else how


async def _run(command: tuple[str, ...], task_status: trio.TaskStatus[trio.Process]) -> None:
    # Our packages, but none of our secrets.
    devices = [name for name in os.environ if name.startswith(DEVICE_VARIABLES)]
    environ = safe_environment(os.environ, devices) | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path))
    }
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
    """Stop a process. Trio calls this in a shielded scope, which ends with the process."""
    assert process.stdin is not None
    with trio.move_on_after(STOP_SECONDS) as timeout:
        await process.stdin.aclose()
        await process.wait()
    if timeout.cancelled_caught:
        with suppress(ProcessLookupError):  # it has just exited
            os.killpg(process.pid, signal.SIGKILL)


async def _read_line(stream: trio.abc.ReceiveStream) -> bytes:
    """Return the first line; empty if the stream ends before it."""
    received = b""
    async for piece in stream:
        received += piece
        if b"\n" in received or len(received) > MAX_LINE_BYTES:
            return received.partition(b"\n")[0]
    return b""


# -- supervision --

RunChild = Callable[[LaunchSpec, Callable[[str], None]], Awaitable[str]]


class ModelDown(Exception):
    """The model server is down. The message is one line."""


@frozen
class ModelStarting:
    """The model is being loaded."""


@frozen
class ModelUp:
    """The server accepts requests."""

    address: str


@frozen
class ModelRestarting:
    """The server exited, and will be restarted after a delay."""

    reason: str


ModelState = ModelStarting | ModelUp | ModelRestarting


class ModelSupervisor:
    """Runs one model server and tracks its state."""

    def __init__(self, spec: LaunchSpec, run_child: RunChild = run_child) -> None:
        self._spec, self._run_child = spec, run_child
        self._state: ModelState = ModelStarting()
        self._changed = trio.Event()
        self._failures = 0

    async def address(self) -> str:
        """Return the server's URL, waiting while it starts.

        Raises:
            ModelDown: the server exited repeatedly, and is not restarted at once.
        """
        while True:
            match self._state:
                case ModelUp(address):
                    return address
                case ModelRestarting(reason):
                    raise ModelDown(f"The model server is down: {reason}")
                case _:
                    await self._changed.wait()

    async def run(self) -> None:
        """Run the server until cancelled, restarting it with exponential backoff."""
        while True:
            started = trio.current_time()
            reason = await self._run_child(self._spec, self._on_ready)
            log.error("model server exited", reason=reason)
            was_up = isinstance(self._state, ModelUp)
            was_stable = was_up and trio.current_time() - started > STABLE_SECONDS
            self._failures = 0 if was_stable else self._failures + 1
            if not was_up or self._failures > 1:
                self._set_state(ModelRestarting(reason))
                await trio.sleep(min(2.0**self._failures, MAX_RESTART_DELAY))
            self._set_state(ModelStarting())

    def _on_ready(self, address: str) -> None:
        log.info("model loaded", model=str(self._spec.model))
        # Turns keep the address, so the next child must use the same port.
        self._spec = evolve(self._spec, port=urlsplit(address).port or 0)
        self._set_state(ModelUp(address))

    def _set_state(self, state: ModelState) -> None:
        self._state = state
        self._changed.set()
        self._changed = trio.Event()


@asynccontextmanager
async def supervised(supervisor: ModelSupervisor) -> AsyncIterator[str]:
    """Run the server within a block, and yield its URL once the model is loaded.

    Raises:
        ConfigurationError: the model cannot be loaded.
    """
    errors: list[Exception] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.run)
        try:
            try:
                address = await supervisor.address()
            except ModelDown as down:
                raise ConfigurationError(f"model_path: {down}") from down
            yield address
        except Exception as error:  # noqa: BLE001 - raised again below: the nursery would wrap it in a group
            errors.append(error)
        nursery.cancel_scope.cancel()
    for raised in errors:
        raise raised
