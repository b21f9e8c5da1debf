"""``hermes-trio chat`` as people use it: in a terminal, in a pipe, in a script."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import define

from tests.e2e.conftest import AGENTS
from tests.support.server_process import (
    ROOT,
    TIMEOUT,
    LaunchOptions,
    ServerProcess,
    has_ended,
    serving,
)

pytestmark = [pytest.mark.xdist_group("e2e-shared"), pytest.mark.slow]

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One of its own: a client that leaves at once leaves its run behind, and a server that was stopped has its delays."""
    plan = LaunchOptions(
        tmp_path_factory.mktemp("chat-server"), ("--agent", AGENTS), {"drain_seconds": 0}
    )
    with serving(plan, expected="refused a key") as running:
        yield running


def command(server: ServerProcess, arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "hermes_trio", "chat", "--url", server.url, *arguments]


def environment(server: ServerProcess) -> dict[str, str]:
    return {
        **server.plan.environment("chat"),
        "TERM": "xterm-256color",
        "COLUMNS": "80",
        "LANG": "C.UTF-8",
    }


def chat(
    server: ServerProcess, *arguments: str, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """The command without a terminal."""
    return subprocess.run(
        command(server, arguments), input=stdin, capture_output=True, text=True, timeout=TIMEOUT,
        cwd=ROOT, env=environment(server), check=False, start_new_session=True,
    )  # fmt: skip


def events(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


@define
class Terminal:
    """The command in a terminal, as a person sees and uses it."""

    process: subprocess.Popen[bytes]
    fd: int
    seen: str = ""
    place: int = 0  # behind what was waited for last

    def until(self, text: str) -> str:
        """Wait until something shows up after what was waited for before.

        Returns all up to then.
        """
        deadline, begin = time.monotonic() + TIMEOUT, self.place
        while text not in self.seen[begin:]:
            assert self._read(deadline), f"no {text!r} in {self.seen[begin:]!r}"
        self.place = self.seen.index(text, begin) + len(text)
        return self.seen[begin : self.place]

    def _read(self, deadline: float) -> bool:
        if not select.select([self.fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # how Linux tells the end of a terminal
            return False
        self.seen += _ESCAPE.sub("", data.decode("utf-8", "replace"))
        return bool(data)

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self.fd, text.encode())

    def code(self) -> int:
        """Wait for the end and return the exit code."""
        while self._read(time.monotonic() + TIMEOUT):
            pass
        assert has_ended(self.process, TIMEOUT)
        return self.process.wait()


@contextmanager
def terminal(server: ServerProcess, *arguments: str, path: Path = ROOT) -> Iterator[Terminal]:
    """A terminal of 80 by 24 characters; Ctrl-C in it means what it means."""
    variables = environment(server) | {"PYTHONPATH": f"{path}{os.pathsep}{ROOT}"}
    outside, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        command(server, arguments), stdin=inside, stdout=inside, stderr=inside, cwd=ROOT, env=variables,
        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
    )  # fmt: skip
    os.close(inside)
    try:
        yield Terminal(process, outside)
    finally:
        process.kill()
        process.wait(TIMEOUT)
        os.close(outside)


# Scripts


def test_json_for_scripts(server: ServerProcess) -> None:
    done = chat(server, "--json", "/terminal echo hello")
    assert (done.returncode, done.stderr) == (0, "")
    told = events(done)
    kinds = [event["event"] for event in told]
    assert kinds[0] == "run.started"
    assert kinds[-1] == "run.completed"
    assert [event["seq"] for event in told] == [*range(len(told))]
    assert kinds.index("tool.started") < kinds.index("tool.completed")
    assert "hello" in told[-1]["output"]


def test_only_the_answer_is_written_to_a_pipe(server: ServerProcess) -> None:
    done = chat(server, "--session", "chat-pipe", "explain", stdin="a file\nwith lines\n")
    assert done.returncode == 0
    assert done.stdout.endswith(
        "You said: “explain\n\na file\nwith lines”. Try `/help` to see what I can do.\n"
    )
    again = chat(server, "--session", "chat-pipe", stdin="and again\n")
    assert (
        again.stdout == "You said: “and again”. Try `/help` to see what I can do.\n"
    )  # no introduction: it goes on


def test_a_failure_is_reported_on_stderr(server: ServerProcess) -> None:
    done = chat(server, "/fail on purpose")
    assert done.returncode == 1
    assert done.stderr == "failed: on purpose\n"


def test_a_wrong_key(server: ServerProcess, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("not-the-key-of-this-server")
    key.chmod(0o600)
    done = chat(server, "--key-file", str(key), "x")
    assert done.returncode == 2
    assert "key" in done.stderr.lower()
    assert "not-the-key" not in done.stderr


def test_without_a_terminal_approvals_are_denied_by_default(server: ServerProcess) -> None:
    denied = chat(server, "--session", "chat-no", "/ask echo yes")
    assert "not approved" in denied.stdout
    assert (
        denied.stderr
        == "denied, because there is no terminal to ask on: echo yes (see --approve)\n"
    )
    approved = chat(server, "--session", "chat-yes", "--approve", "once", "/ask echo yes")
    assert approved.stdout.endswith("`/ask echo yes`: yes\n")


def test_a_script_that_is_interrupted(server: ServerProcess) -> None:
    process = subprocess.Popen(
        command(server, ["--json", "/sleep 60"]), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, cwd=ROOT, env=environment(server), text=True,
    )  # fmt: skip
    assert process.stdout is not None
    with process, process.stdout:
        lines = iter(process.stdout.readline, "")
        assert any('"tool.started"' in line for line in lines)
        process.send_signal(signal.SIGINT)
        last = [json.loads(line)["event"] for line in lines][-1]
    assert (process.returncode, last) == (130, "run.cancelled")


# A terminal


def test_a_turn_in_a_terminal(server: ServerProcess) -> None:
    pytest.importorskip("rich")
    with terminal(server, "/think about it\n/terminal echo from-the-tool") as screen:
        assert screen.code() == 0
    assert "about it" in screen.seen
    assert re.search(
        r"✓ terminal echo from-the-tool {2}\d\.\d s\r?\n {2}from-the-tool", screen.seen
    )
    assert "Here is what came of it" in screen.seen
    assert re.search(r"\d\.\d s · \d+ tokens", screen.seen)


def test_ctrl_c_stops_the_run(server: ServerProcess) -> None:
    pytest.importorskip("rich")
    with terminal(server, "/sleep 60") as screen:
        screen.until("sleep")
        screen.type("\x03")
        assert screen.code() == 130
    assert "■ stopped" in screen.seen
    assert "■ sleep" in screen.seen or "✗ sleep" in screen.seen


def test_a_second_ctrl_c_leaves(server: ServerProcess) -> None:
    pytest.importorskip("rich")
    with terminal(server, "/sleep 60") as screen:
        screen.until("sleep")
        server.signal(signal.SIGSTOP)  # so that it does not hear of the first one
        try:
            screen.type("\x03")
            screen.until("Ctrl-C again quits")
            screen.type("\x03")
            assert screen.code() == 130
        finally:
            server.signal(signal.SIGCONT)
    assert "■ stopped" not in screen.seen


@pytest.mark.parametrize(
    ("key", "shown"), [("o", "✓ approved once: echo asked"), ("d", "✗ denied: echo asked")]
)
def test_an_approval_request_is_answered_by_a_key(
    server: ServerProcess, key: str, shown: str
) -> None:
    pytest.importorskip("rich")
    with terminal(server, "/ask echo asked") as screen:
        screen.until("d deny")
        screen.type(key)
        assert screen.code() == 0
    assert "The agent asks" in screen.seen
    assert shown in screen.seen


@pytest.mark.parametrize(("key", "code"), [("o", "asked"), ("d", "not approved")])
def test_plain_text_in_a_terminal_asks_too(server: ServerProcess, key: str, code: str) -> None:
    with terminal(server, "--plain", "/ask echo asked") as screen:
        screen.until("d deny")
        screen.type(key)
        assert screen.code() == 0
    assert "The agent asks" in screen.seen
    assert code in screen.seen.partition("d deny")[2].lower()


def test_a_chat_without_rich_is_plain(server: ServerProcess, tmp_path: Path) -> None:
    with terminal(server, path=hide_package(tmp_path, "rich")) as screen:
        screen.until("pip install rich")
        screen.until("> ")
        screen.type("first\r")
        assert "“first”" in screen.until("what I can do.")
        screen.until("> ")
        screen.type("\x04")
        assert screen.code() == 0


def hide_package(folder: Path, name: str) -> Path:
    """Make a folder that, on the search path, makes a package look as if it were not installed."""
    (folder / "sitecustomize.py").write_text(f"import sys\nsys.modules[{name!r}] = None\n")
    return folder


def test_one_turn_after_the_other(server: ServerProcess) -> None:
    pytest.importorskip("rich")
    with terminal(server, "--session", "chat-loop") as screen:
        screen.until("> ")
        screen.type("first\r")
        screen.until("tokens")
        screen.until("> ")
        screen.type("second\r")
        answer = screen.until("tokens")
        screen.until("> ")
        screen.type("\x1b[A\x1b[A\r")  # two back
        assert "“first”" in screen.until("tokens")
        screen.until("> ")
        screen.type("\x04")
        assert screen.code() == 0
    assert "“second”" in answer
    assert "demo agent" not in answer


def test_the_prompt_history_of_a_session_is_restored(server: ServerProcess) -> None:
    pytest.importorskip("rich")
    assert chat(server, "--session", "chat-again", "from before").returncode == 0
    with terminal(server, "--session", "chat-again") as screen:
        screen.until("> ")
        screen.type("\x1b[A\r")
        assert "“from before”" in screen.until("tokens")
        screen.until("> ")
        screen.type("\x04")
        assert screen.code() == 0
