"""A real server in its own process: start it, inspect it from outside, stop it.

Every wait has a time limit.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
from attrs import define, field, frozen

ROOT = Path(__file__).parents[2]
TIMEOUT = 30.0  # seconds; only a failing test waits that long
MARK = "E2E_MARK"
MODULE = (sys.executable, "-m", "hermes_trio", "serve", "--port", "0")

_FOREIGN = re.compile(
    r"HERMES_TRIO_.*|API_SERVER_.*|OPENAI_.*|XDG_.*|PORT|DATABASE_URL|PYTHONWARNINGS"
)
_ADDRESS = re.compile(r"https?://\S+")
_KEY = re.compile(r"^ +key +(\S+)$", re.MULTILINE)
_COMPLAINTS = ("Traceback", "[error", "[critical", "[warning", "Exception ignored", "Warning:")
_AGENT_FAILURE = re.compile(
    r"^.*the agent raised an exception.*\n(?:Traceback|  +[+|]? ).*\n(?:(?!\d{4}-\d\d-\d\dT).*\n?)*",
    re.MULTILINE,
)


class StartupError(AssertionError):
    """The server did not start."""


@frozen
class LaunchOptions:
    """How to start a server."""

    folder: Path  # its data and its log are kept here
    flags: tuple[str, ...] = ()
    settings: Mapping[str, object] = field(factory=dict)
    command: tuple[str, ...] = MODULE
    cwd: Path = ROOT

    @property
    def data_dir(self) -> Path:
        """The data folder of the server."""
        return self.folder / "data"

    def environment(self, mark: str) -> dict[str, str]:
        """The environment without the settings of the user who runs the tests."""
        kept = {name: value for name, value in os.environ.items() if not _FOREIGN.fullmatch(name)}
        if os.geteuid() != 0:
            kept["HERMES_TRIO_SANDBOX"] = "off"  # else only root can count its descriptors
        settings = {"data_dir": self.data_dir, **self.settings}
        ours = {f"HERMES_TRIO_{name.upper()}": str(value) for name, value in settings.items()}
        return {**kept, "HOME": str(self.folder), "PYTHONPATH": str(ROOT), MARK: mark, **ours}

    def popen(self, mark: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start the process."""
        return subprocess.Popen(
            [*self.command, *self.flags],
            cwd=self.cwd,
            env=self.environment(mark),
            stdin=subprocess.DEVNULL,
            **options,
        )


@define
class ServerProcess:
    """A running server process."""

    plan: LaunchOptions
    mark: str
    process: subprocess.Popen[bytes]
    log_file: Path
    greeting: str = ""
    url: str = ""
    trust: Any = False  # what httpx2 takes as ``verify``

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    @property
    def port(self) -> int:
        """The port of the server."""
        return int(self.url.rpartition(":")[2])

    @property
    def key(self) -> str:
        """The API key of the server, configured or generated."""
        given = self.plan.settings.get("api_key")
        return str(given) if given else (self.plan.data_dir / "api-key").read_text().strip()

    @property
    def shown_key(self) -> str:
        """The key in the greeting, "" if there is none."""
        found = _KEY.search(self.greeting)
        return found[1] if found else ""

    @property
    def log(self) -> str:
        """The text of its standard error."""
        return self.log_file.read_text(errors="replace")

    def complaints(self, expected: str) -> list[str]:
        """Return the log lines that report trouble, except expected ones."""
        log = _AGENT_FAILURE.sub("", self.log)  # what agents of tests raise on purpose
        lines = [line for line in log.splitlines() if any(sign in line for sign in _COMPLAINTS)]
        return [line for line in lines if not (expected and re.search(expected, line))]

    def get(self, path: str) -> httpx2.Response:
        """Send a GET request with the key, on a new connection."""
        headers = {"Authorization": f"Bearer {self.key}", "Connection": "close"}
        with httpx2.Client(verify=self.trust, trust_env=False, timeout=TIMEOUT) as client:
            return client.get(self.url + path, headers=headers)

    def post(self, path: str, body: object) -> httpx2.Response:
        """Send a JSON body with the key, on a new connection."""
        headers = {"Authorization": f"Bearer {self.key}", "Connection": "close"}
        with httpx2.Client(verify=self.trust, trust_env=False, timeout=TIMEOUT) as client:
            return client.post(self.url + path, json=body, headers=headers)

    def health(self) -> dict[str, Any]:
        """Return the detailed health of the server."""
        answer: dict[str, Any] = self.get("/health/detailed").json()
        return answer

    @property
    def is_idle(self) -> bool:
        """Whether no run is live and no slot is taken."""
        health = self.health()
        return bool(health["active_agents"] == 0 and health["slots"]["in_use"] == 0)

    def signal(self, number: int = signal.SIGTERM) -> float:
        """Send a signal; return the time."""
        self.process.send_signal(number)
        return time.monotonic()

    def wait(self, seconds: float = TIMEOUT) -> int:
        """Return the exit code; fail if the process does not end within some seconds."""
        assert has_ended(self.process, seconds), f"still there after {seconds} s:\n{self.log}"
        return self.process.wait()

    def stop(self) -> None:
        """Stop the server, and check that it exits cleanly and leaves no process behind."""
        if self.process.returncode is None:
            self.signal()
        assert self.wait() == 0, self.log
        assert processes(self.mark) == []


def has_ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Return whether a child process ends within some seconds, as soon as it does."""
    if process.poll() is not None:
        return True
    pidfd = os.pidfd_open(process.pid)
    try:
        return bool(select.select([pidfd], [], [], seconds)[0])
    finally:
        os.close(pidfd)


def processes(text: str) -> list[int]:
    """Return the processes with a text in their command line or environment."""
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):  # it ended while we looked, or is not ours to look at
            if (
                folder.name.isdigit()
                and int(folder.name) != os.getpid()
                and _carries(folder, text.encode())
            ):
                found.append(int(folder.name))
    return found


def _carries(folder: Path, text: bytes) -> bool:
    return text in (folder / "cmdline").read_bytes() or text in (folder / "environ").read_bytes()


def eventually(holds: Callable[[], bool], seconds: float = TIMEOUT) -> float:
    """Poll until a condition holds; fail after a time limit.

    Return how long that took.
    """
    begun = time.monotonic()
    while not holds():
        assert time.monotonic() - begun < seconds, f"it does not hold after {seconds} s"
        time.sleep(0.005)
    return time.monotonic() - begun


@contextmanager
def serving(plan: LaunchOptions, trust: Any = False, expected: str = "") -> Iterator[ServerProcess]:
    """Run a server for the length of a block.

    It must exit cleanly, with only expected warnings in its log.
    """
    server = start(plan)
    server.trust = trust
    try:
        yield server
        server.stop()
        assert server.complaints(expected) == [], server.log
    finally:
        kill(server)


def start(plan: LaunchOptions) -> ServerProcess:
    """Start a server and read its greeting."""
    server = begin(plan)
    try:
        server.greeting = _read_until(server, b"Try it:")
    except BaseException:
        kill(server)
        raise
    address = _ADDRESS.search(server.greeting)
    assert address is not None
    server.url = address[0]
    return server


def begin(plan: LaunchOptions, **options: Any) -> ServerProcess:
    """Start the process without waiting for it."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    mark = uuid.uuid4().hex
    log_file = plan.folder / f"log-{mark}"
    with log_file.open("wb") as log:
        process = plan.popen(mark, stdout=subprocess.PIPE, stderr=log, **options)
    return ServerProcess(plan, mark, process, log_file)


def _read_until(server: ServerProcess, text: bytes) -> str:
    output = server.process.stdout
    assert output is not None
    seen, deadline = b"", time.monotonic() + TIMEOUT
    while text not in seen:
        ready = select.select([output], [], [], max(0.0, deadline - time.monotonic()))[0]
        data = os.read(output.fileno(), 65536) if ready else b""
        if not data:
            raise StartupError(f"no greeting in {seen!r}:\n{server.log}")
        seen += data
    return seen.decode()


def kill(server: ServerProcess) -> None:
    """Kill the process and its children, if they are still there."""
    server.process.kill()
    server.process.wait(TIMEOUT)
    if server.process.stdout is not None:
        server.process.stdout.close()
    for pid in processes(server.mark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def run(plan: LaunchOptions, extra: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Start a command that should end by itself."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    return subprocess.run(
        [*plan.command, *plan.flags, *extra],
        cwd=plan.cwd,
        env=plan.environment("none"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
