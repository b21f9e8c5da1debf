"""Several worker processes behind one port, and the supervisor that starts, watches and stops them.

The supervisor opens the listening sockets and the keys, and serves nothing itself. It imports
neither agents nor frameworks, which keeps it small and keeps their code out of it. Workers are new
interpreters that inherit the sockets; `worker_channel` describes how the two sides talk.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType

import structlog
import trio
from attrs import define, evolve, frozen

from hermes_trio import logs
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.keys import Credentials, KeySources, log_doubtful_keys, open_credentials
from hermes_trio.server.greeting import greet, local_url, socket_url
from hermes_trio.server.process_secrets import hide_secrets
from hermes_trio.server.shutdown import ShutdownTimeouts
from hermes_trio.server.signals import RELOAD_SIGNAL, SignalCallback, handle_signals
from hermes_trio.server.sockets import CannotListen, close_all, listening
from hermes_trio.server.versions import check_versions
from hermes_trio.server.worker_channel import (
    Order,
    Ready,
    Refused,
    WorkerPlan,
    decode_report,
    encode_order,
    encode_plan,
)
from hermes_trio.settings import LoadedSettings, Settings

log = structlog.get_logger(__name__)

KILL_MARGIN_SECONDS = 5.0
"""How much longer than its shutdown may take by itself a worker is waited for before it is killed."""

_LAST_REPORT_SECONDS = 1.0  # for reading what an ended worker had sent
_MAX_PARENT_CHARS = 70  # the path of a socket has at most 107 bytes
_NOTHING: Mapping[str, str] = MappingProxyType({})

# The search path of this process decides what is imported, not the working directory.
_PROGRAM = "import sys; sys.path[:] = {path!r}; from hermes_trio.server.worker import main; main({channel})"


# -- restarts --


@frozen
class RestartPolicy:
    """When a worker that ended is started again, in seconds."""

    first: float = 0.1
    longest: float = 30.0
    steady: float = 60.0  # a worker that was ready for this long starts afresh


class Backoff:
    """The pauses before each restart of one worker. They double while the worker keeps ending early."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._pause = policy.first

    def next_pause(self, ready_seconds: float) -> float:
        """Return how long to wait now that the worker has ended, having been ready for a time."""
        if ready_seconds >= self._policy.steady:
            self._pause = self._policy.first
        pause = self._pause
        self._pause = min(2 * pause, self._policy.longest)
        return pause


# -- the supervisor --


@frozen
class Launch:
    """How to start one worker."""

    number: int
    command: Callable[[int], Sequence[str]]  # takes the descriptor of the worker's channel
    plan: bytes = b""  # sent first
    descriptors: tuple[int, ...] = ()  # inherited, beside the channel


@define(eq=False)
class _Worker:
    """A running worker."""

    launch: Launch
    process: trio.Process
    channel: trio.SocketStream
    ready_at: float | None = None
    refusal: str = ""


@frozen
class _End:
    """How a worker ended."""

    ready_seconds: float
    text: str
    refusal: str = ""
    is_clean: bool = False  # exit code 0


class Supervisor:
    """Keeps workers running until it is asked to stop, then drains them.

    Args:
        launches: One for each worker.
        kill_seconds: How long after the first request to stop workers are killed.
        on_ready: Called once, when the first worker is ready.
        on_stop: Called once, when no worker will be started any more.
        policy: When workers that ended are started again.
    """

    def __init__(
        self,
        launches: Sequence[Launch],
        kill_seconds: float,
        on_ready: Callable[[], None] = lambda: None,
        on_stop: Callable[[], None] = lambda: None,
        policy: RestartPolicy | None = None,
    ) -> None:
        self._launches, self._kill_seconds = launches, kill_seconds
        self._on_ready, self._on_stop = on_ready, on_stop
        self._policy = policy or RestartPolicy()
        self._stopping, self._forced = trio.Event(), trio.Event()
        self._starting = trio.Lock()
        self._kill_scope = trio.CancelScope()
        self._ready_workers: set[_Worker] = set()  # those that are ready
        self._was_reloaded = False
        self._was_ready = False
        self._never_ready: set[int] = set()  # workers that ended before any was ready
        self._is_failed = False
        self.refusal = ""  # one line: why no worker can start

    def request_stop(self, source: str) -> None:
        """Drain all workers; a second request ends the drain."""
        if self._stopping.is_set():
            log.warning("asked again to stop: ending all runs now", by=source)
            self._forced.set()
        else:
            log.info("stopping all workers", by=source)
            self._stopping.set()

    def request_reload(self, source: str) -> None:
        """Let all workers read their files again, also those that are about to be ready."""
        log.info("reloading all workers", by=source)
        self._was_reloaded = True
        for worker in self._ready_workers:
            worker.process.send_signal(RELOAD_SIGNAL)

    async def run(self) -> int:
        """Run the workers until they have been stopped. Return the exit code: 0 if all ended well."""
        async with trio.open_nursery() as workers:
            workers.start_soon(self._end_starts)
            for launch in self._launches:
                workers.start_soon(self._keep_running, launch)
        return 1 if self._is_failed else 0

    async def _end_starts(self) -> None:
        await self._stopping.wait()
        async with self._starting:
            self._on_stop()

    async def _keep_running(self, launch: Launch) -> None:
        backoff = Backoff(self._policy)
        while not self._stopping.is_set():
            end = await self._run_once(launch)
            if self._stopping.is_set():
                self._note_last_end(launch, end)
                return
            pause = backoff.next_pause(end.ready_seconds)
            # One that ended well was told to by a signal of its own.
            report = log.warning if end.is_clean else log.error
            report("a worker ended", worker=launch.number, how=end.text, restart_seconds=pause)
            self._give_up_if_none_starts(launch, end)
            with trio.move_on_after(pause):
                await self._stopping.wait()

    def _note_last_end(self, launch: Launch, end: _End) -> None:
        if not (end.is_clean or self._is_failed):
            log.error("a worker did not end well", worker=launch.number, how=end.text)
            self._is_failed = True

    def _give_up_if_none_starts(self, launch: Launch, end: _End) -> None:
        """Stop if every worker has ended and none was ever ready: another attempt would fail, too."""
        if self._was_ready:
            return
        self._never_ready.add(launch.number)
        self.refusal = self.refusal or end.refusal
        if len(self._never_ready) == len(self._launches):
            log.error("no worker can start")
            self._is_failed = True
            self._stopping.set()

    async def _run_once(self, launch: Launch) -> _End:
        """Run a worker to its end."""
        ours, theirs = socket.socketpair()
        channel = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        async with channel, trio.open_nursery() as nursery:
            with theirs:
                async with self._starting:
                    if self._stopping.is_set():
                        return _End(0.0, "was not started", is_clean=True)  # noqa: ASYNC121 - the nursery is empty
                    try:
                        process = await nursery.start(_run_process, launch, theirs.fileno())
                    except OSError as error:
                        reason = error.strerror or error
                        return _End(0.0, f"cannot be started: {reason}")  # noqa: ASYNC121 - the nursery is empty
            worker = _Worker(launch, process, channel)
            nursery.start_soon(self._send_orders, worker)
            nursery.start_soon(self._kill_late, worker)
            async with trio.open_nursery() as reading:
                reading.start_soon(self._read_reports, worker)
                code = await process.wait()
                ended_at = trio.current_time()
                # What it had sent has arrived. Its children might still hold the channel open.
                reading.cancel_scope.deadline = ended_at + _LAST_REPORT_SECONDS
            self._ready_workers.discard(worker)
            nursery.cancel_scope.cancel()
        ready_seconds = 0.0 if worker.ready_at is None else ended_at - worker.ready_at
        text = worker.refusal or describe_exit(code)
        return _End(ready_seconds, text, worker.refusal, is_clean=code == 0)

    async def _send_orders(self, worker: _Worker) -> None:
        with suppress(trio.BrokenResourceError):  # the worker has ended
            await worker.channel.send_all(worker.launch.plan)
            await self._stopping.wait()
            await worker.channel.send_all(encode_order(Order.DRAIN))
            await self._forced.wait()
            await worker.channel.send_all(encode_order(Order.STOP_NOW))

    async def _kill_late(self, worker: _Worker) -> None:
        await self._stopping.wait()
        await trio.sleep(self._kill_seconds)
        log.critical("a worker does not end: killing it", worker=worker.launch.number)
        worker.process.kill()

    async def _read_reports(self, worker: _Worker) -> None:
        pending = b""
        with suppress(trio.BrokenResourceError):
            async for data in worker.channel:
                *lines, pending = (pending + data).split(b"\n")
                for line in lines:
                    self._note_report(worker, decode_report(line))

    def _note_report(self, worker: _Worker, report: Ready | Refused) -> None:
        if isinstance(report, Refused):
            worker.refusal = report.message
            return
        log.info("a worker is ready", worker=worker.launch.number, pid=worker.process.pid)
        worker.ready_at = trio.current_time()
        self._ready_workers.add(worker)
        if self._was_reloaded:  # it may have read its files before
            worker.process.send_signal(RELOAD_SIGNAL)
        is_first, self._was_ready = not self._was_ready, True
        if is_first:
            self._on_ready()


async def _run_process(
    launch: Launch, channel: int, *, task_status: trio.TaskStatus[trio.Process]
) -> None:
    """Run a worker in a process group of its own: Ctrl-C on a terminal is for the supervisor alone."""
    await trio.run_process(
        launch.command(channel),
        stdin=subprocess.DEVNULL,
        check=False,
        pass_fds=(channel, *launch.descriptors),
        process_group=0,
        task_status=task_status,
    )


def describe_exit(code: int) -> str:
    """Return how a process ended, in words."""
    if code >= 0:
        return f"exit code {code}"
    return f"killed by signal {-code} ({signal.strsignal(-code) or 'unknown'})"


async def run_supervisor(make: Callable[[], Supervisor]) -> int:
    """Run a supervisor that SIGINT and SIGTERM stop and that passes on SIGHUP. Return the exit code.

    Raises:
        ConfigurationError: No worker could start.
    """
    supervisor = make()
    async with handle_signals(SignalCallback(supervisor.request_stop), supervisor.request_reload):
        code = await supervisor.run()
    if code and supervisor.refusal:
        raise ConfigurationError(supervisor.refusal)
    return code


# -- the server --


def main(loaded: LoadedSettings) -> int:
    """Serve with several workers until a signal. Return the exit code.

    Raises:
        ConfigurationError: The server cannot start as it is configured.
    """
    settings = loaded.settings
    logs.configure(settings.log_level, settings.log_format)
    check_versions()
    credentials = open_credentials(
        KeySources(settings.host, settings.data_dir, settings.api_key, settings.api_key_file)
    )
    log_doubtful_keys(credentials.keys.keyring, settings.profiles)
    return supervise(settings, credentials, hide_secrets(loaded))


def supervise(
    settings: Settings, credentials: Credentials, environment: Mapping[str, str] = _NOTHING
) -> int:
    """Open the port and run the workers until a signal. Return the exit code.

    Args:
        settings: Those of the server.
        credentials: Used by all workers.
        environment: Variables that were taken from the environment, and that agents may need.

    Raises:
        ConfigurationError: The server cannot start as it is configured.
    """
    try:
        with (
            listening(settings.host, settings.port, settings.unix_socket) as sockets,
            _reports_dir() as directory,
        ):
            return _run_workers(settings, credentials, environment, sockets, directory)
    except CannotListen as error:
        raise ConfigurationError(str(error)) from error


def _run_workers(
    settings: Settings,
    credentials: Credentials,
    environment: Mapping[str, str],
    sockets: Sequence[socket.socket],
    directory: Path,
) -> int:
    descriptors = tuple(sock.fileno() for sock in sockets)
    first = WorkerPlan(1, settings, credentials, directory, descriptors, dict(environment))
    plans = [evolve(first, number=number) for number in range(1, settings.workers + 1)]
    launches = [
        Launch(plan.number, partial(_command, plan.number), encode_plan(plan), descriptors)
        for plan in plans
    ]
    url = local_url(socket_url(sockets[0], is_tls=settings.certfile is not None))
    make = partial(
        Supervisor,
        launches,
        ShutdownTimeouts.from_settings(settings).total + KILL_MARGIN_SECONDS,
        partial(greet, settings, credentials.keys, url),
        # While they are open here, the kernel accepts connections even if no worker does.
        partial(close_all, sockets),
    )
    return trio.run(run_supervisor, make, strict_exception_groups=True)


@contextmanager
def _reports_dir() -> Iterator[Path]:
    """Make a directory that only this user can enter, whose path is short enough for sockets in it."""
    try:
        parent = tempfile.gettempdir()
        if len(parent) > _MAX_PARENT_CHARS:
            parent = "/tmp"  # noqa: S108  # only the parent: the name below it is made safely
        directory = tempfile.mkdtemp(prefix="hermes-trio-", dir=parent)
    except OSError as error:
        raise ConfigurationError(
            f"workers: their sockets need a temporary directory: {error.strerror or error}"
        ) from error
    try:
        yield Path(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _command(number: int, channel: int) -> list[str]:
    """Return the command of a worker; the last argument only tells a reader of ``ps`` which one it is."""
    program = _PROGRAM.format(path=sys.path, channel=channel)
    return [sys.executable, "-P", "-c", program, f"worker-{number}"]
