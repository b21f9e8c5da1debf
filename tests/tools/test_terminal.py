"""Real commands, real signals. Every test must leave no child and no descriptor behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from hermes_trio.tools.terminal import CommandResult, Terminal
from tests.support.processes import TIMEOUT, has_ended, in_thread, nothing_left


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    with nothing_left():
        yield


@define
class Listener:
    """Records output, and sets an event when it contains a text."""

    wanted: str = "\n"
    heard: str = ""
    happened: threading.Event = field(factory=threading.Event)

    def __call__(self, text: str) -> None:
        self.heard += text
        if self.wanted in self.heard:
            self.happened.set()

    def wait(self) -> str:
        assert self.happened.wait(TIMEOUT)
        return self.heard


def stop_when(
    terminal: Terminal, command: str, wanted: str = "\n"
) -> tuple[CommandResult, str, float]:
    """Stop a command once it has printed something.

    Also return how long it took to end after that.
    """
    listener, results = Listener(wanted), []
    with in_thread(lambda: results.append(terminal.run(command, listener))):
        heard = listener.wait()
        began = time.monotonic()
        terminal.stop()
    return results[0], heard, time.monotonic() - began


class TestRunning:
    def test_says_what_was_printed(self, tmp_path: Path) -> None:
        assert Terminal(tmp_path).run("echo out; echo err >&2") == CommandResult("out\nerr\n", 0)

    def test_runs_in_its_folder_with_nothing_to_read(self, tmp_path: Path) -> None:
        assert Terminal(tmp_path).run("cat; pwd -P").output == f"{tmp_path.resolve()}\n"

    @pytest.mark.parametrize(
        ("command", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("no-such-command-here", 127)]
    )
    def test_exit_codes_are_those_of_a_shell(self, tmp_path: Path, command: str, code: int) -> None:
        assert Terminal(tmp_path).run(command).exit_code == code

    def test_half_a_line_is_heard_while_the_command_runs(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo")
        # The command only goes on when the listener, having heard the first half, opens the pipe.
        parts: list[str] = []

        def listen(text: str) -> None:
            parts.append(text)
            if text == "half":
                (tmp_path / "fifo").write_text(" a line")

        assert Terminal(tmp_path).run("printf half; cat fifo", listen).output == "half a line"
        assert parts == ["half", " a line"]

    def test_a_character_may_come_in_two_pieces(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo")
        parts: list[str] = []

        def listen(text: str) -> None:
            parts.append(text)
            if text == "a":
                (tmp_path / "fifo").write_bytes(b"\xa9b")

        assert Terminal(tmp_path).run(r"printf 'a\303'; cat fifo", listen).output == "aéb"
        assert parts == ["a", "éb"]

    def test_what_is_no_text_becomes_marks(self, tmp_path: Path) -> None:
        assert (
            Terminal(tmp_path).run(r"printf 'a\377b\303'").output
            == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"
        )

    def test_much_output_is_kept_at_both_ends(self, tmp_path: Path) -> None:
        listener = Listener()
        result = Terminal(tmp_path, limit=100).run("seq 100000", listener)
        everything = "".join(f"{number}\n" for number in range(1, 100_001))
        note = f"\n[... {len(everything) - 100} characters left out ...]\n"
        assert result == CommandResult(everything[:50] + note + everything[-50:], 0, truncated=True)
        assert listener.heard == everything[:100]

    def test_a_closed_output_is_not_the_end(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo")
        with in_thread(lambda: (tmp_path / "fifo").write_text("")):
            assert Terminal(tmp_path).run("exec >&- 2>&-; cat < fifo; exit 5") == CommandResult(
                "", 5
            )


class TestStopping:
    def test_ends_the_command_and_its_children(self, tmp_path: Path) -> None:
        result, heard, took = stop_when(
            Terminal(tmp_path), "sleep 61 & echo $!; sleep 62; echo never"
        )
        assert (result.output, result.exit_code, result.interrupted) == (
            heard,
            128 + signal.SIGTERM,
            True,
        )
        assert has_ended(int(heard))
        assert took < 1

    def test_a_command_may_clean_up(self, tmp_path: Path) -> None:
        command = "trap 'echo bye; exit 3' TERM; echo up; sleep 60 & wait"
        result, _, took = stop_when(Terminal(tmp_path), command)
        assert result == CommandResult("up\nbye\n", 3, interrupted=True)
        assert took < 1

    def test_a_deaf_command_is_killed(self, tmp_path: Path) -> None:
        result, _, took = stop_when(
            Terminal(tmp_path), "trap '' TERM; echo up; while :; do sleep 60; done"
        )
        assert result.exit_code == 128 + signal.SIGKILL
        assert took < 2

    def test_a_deaf_grandchild_is_killed(self, tmp_path: Path) -> None:
        # The shell obeys; what it started does not, and holds the pipe.
        command = """sh -c 'trap "" TERM; echo $$; while :; do sleep 60; done' & wait"""
        result, heard, took = stop_when(Terminal(tmp_path), command)
        assert result.exit_code == 128 + signal.SIGTERM
        assert has_ended(int(heard))
        assert took < 2

    def test_endless_output_is_no_hindrance(self, tmp_path: Path) -> None:
        result, _, took = stop_when(Terminal(tmp_path), "yes")
        assert result.interrupted
        assert took < 2

    def test_before_the_start_nothing_starts(self, tmp_path: Path) -> None:
        terminal = Terminal(tmp_path)
        terminal.stop()
        result = terminal.run("touch started")
        assert result.interrupted
        assert not list(tmp_path.iterdir())

    def test_twice_is_once(self, tmp_path: Path) -> None:
        terminal = Terminal(tmp_path)
        assert stop_when(terminal, "echo; sleep 60")[0].interrupted
        terminal.stop()

    def test_after_the_end_signals_nobody(self, tmp_path: Path) -> None:
        # A stop that took hold of the command just before it ended: its number may be somebody
        # else's by now.
        terminal, late = Terminal(tmp_path), list[Any]()
        terminal.run("echo", lambda _text: late.extend(terminal._groups))
        late[0].terminate()
        assert late[0].wake_fd == -1

    def test_works_while_the_listener_hangs(self, tmp_path: Path) -> None:
        terminal, heard, go_on = Terminal(tmp_path), Listener(), threading.Event()

        def hang(text: str) -> None:
            heard(text)
            assert go_on.wait(TIMEOUT)

        with in_thread(lambda: terminal.run("echo $$; exec sleep 60", hang)):
            pid = int(heard.wait())
            terminal.stop()
            assert has_ended(pid)
            go_on.set()

    def test_ends_all_that_share_the_terminal(self, tmp_path: Path) -> None:
        terminal, results = Terminal(tmp_path), list[CommandResult]()
        listeners = [Listener() for _ in range(6)]
        threads = [
            threading.Thread(
                target=lambda heard=heard: results.append(terminal.run("echo; sleep 60", heard))
            )
            for heard in listeners
        ]
        for thread, heard in zip(threads, listeners, strict=True):
            thread.start()
            heard.wait()
        terminal.stop()
        for thread in threads:
            thread.join(TIMEOUT)
        assert [result.interrupted for result in results] == [True] * 6

    def test_at_any_moment_of_the_start(self, tmp_path: Path) -> None:
        for turn in range(40):
            terminal, results = Terminal(tmp_path), list[CommandResult]()
            with in_thread(lambda: results.append(terminal.run("sleep 60"))):  # noqa: B023 - joined in this round
                for _ in range(turn * 200):
                    pass
                terminal.stop()
            assert results[0].interrupted


class TestTimeLimit:
    @pytest.mark.parametrize("command", ["sleep 60", "yes", "sleep 60 & sleep 61"])
    def test_ends_the_command(self, tmp_path: Path, command: str) -> None:
        began = time.monotonic()
        result = Terminal(tmp_path, limit=1000).run(command, seconds=0.05)
        assert (result.timed_out, result.interrupted, result.exit_code) == (
            True,
            False,
            128 + signal.SIGTERM,
        )
        assert time.monotonic() - began < 1

    def test_what_was_said_before_is_kept(self, tmp_path: Path) -> None:
        listener = Listener()
        result = Terminal(tmp_path).run("echo early; sleep 60", listener, seconds=0.2)
        assert (result.output, listener.heard) == ("early\n", "early\n")

    def test_any_number_is_allowed(self, tmp_path: Path) -> None:
        assert Terminal(tmp_path).run("echo x", seconds=float("inf")).output == "x\n"


class TestTheShellEndsFirst:
    def test_a_background_child_is_ended(self, tmp_path: Path) -> None:
        began = time.monotonic()
        result = Terminal(tmp_path).run("sleep 60 & echo $!")
        assert result.exit_code == 0
        assert has_ended(int(result.output))
        assert time.monotonic() - began < 1

    @pytest.mark.parametrize("work", ["sleep 60", "yes"])
    def test_one_that_left_the_group_does_not_hold_us(self, tmp_path: Path, work: str) -> None:
        os.mkfifo(tmp_path / "fifo")
        command = f"setsid sh -c 'echo $$ > fifo; exec {work}' & cat fifo > pid; echo done"
        result = Terminal(tmp_path, limit=1000).run(command)
        pid = int((tmp_path / "pid").read_text())
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        assert (result.exit_code, "done\n" in result.output or result.truncated) == (0, True)
        assert has_ended(pid)

    def test_all_that_the_shell_said_is_read(self, tmp_path: Path) -> None:
        for _ in range(20):
            assert Terminal(tmp_path).run("seq 5000; sleep 60 &").output.endswith("\n4999\n5000\n")


class TestListenersThatRaise:
    @pytest.mark.parametrize(
        "command", ["echo $$; exec sleep 60", "echo $$; trap '' TERM; while :; do sleep 60; done"]
    )
    def test_end_the_command(self, tmp_path: Path, command: str) -> None:
        pids = []

        def fail(text: str) -> None:
            pids.append(int(text))
            raise OSError("not a failure to start")

        with pytest.raises(OSError, match="not a failure"):
            Terminal(tmp_path).run(command, fail)
        assert has_ended(pids[0])
