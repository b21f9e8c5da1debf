"""The terminal as a tool: real commands, streamed, bounded, cancelled at once, with nothing left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from hermes_trio.tools.base import NOT_APPROVED, ToolError, ToolUse
from hermes_trio.tools.terminal import make_terminal
from tests.support.processes import TIMEOUT, children, has_ended
from tests.tools.uses import Question, Watcher


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    processes = children()
    yield
    assert not children() - processes


@pytest.fixture
def watcher(tmp_path: Path) -> Watcher:
    return Watcher(tmp_path)


async def failure(command: str, watcher: Watcher, **arguments: object) -> str:
    """What the model reads of a command that fails."""
    with pytest.raises(ToolError) as caught:
        await make_terminal().run({"command": command, **arguments}, watcher.use())
    return str(caught.value)


async def test_output_is_shown_and_returned(watcher: Watcher) -> None:
    assert await make_terminal().run({"command": "echo out; echo err >&2"}, watcher.use()) == "out\nerr"
    assert watcher.heard == "out\nerr\n"
    assert watcher.asked == []


async def test_nothing_printed(watcher: Watcher) -> None:
    assert await make_terminal().run({"command": "true"}, watcher.use()) == "(no output)"


async def test_failures_tell_the_exit_code(watcher: Watcher) -> None:
    assert await failure("echo no; exit 3", watcher) == "no\n[exit code 3]"
    assert "[exit code 127]" in await failure("no_such_program", watcher)
    assert "null byte" in await failure("a\0b", watcher)


async def test_a_slow_command_is_ended(watcher: Watcher) -> None:
    said = await failure("echo begun; sleep 600", watcher, seconds=0.2)
    assert said == "begun\n[killed after 0.2 seconds: it took too long]\n[exit code 143]"


async def test_the_configured_limit_holds(watcher: Watcher) -> None:
    terminal = make_terminal(most_seconds=0.1)
    with pytest.raises(ToolError, match=r"0\.1 seconds"):
        await terminal.run({"command": "sleep 600", "seconds": 1e9}, watcher.use())


async def test_endless_output_is_bounded(watcher: Watcher) -> None:
    with pytest.raises(ToolError) as caught:
        await make_terminal(characters=1000).run({"command": "yes", "seconds": 0.3}, watcher.use())
    assert "characters left out" in str(caught.value)
    assert len(str(caught.value)) < 1200
    assert len(watcher.heard) == 1000


@pytest.mark.parametrize(
    "command", ["echo $$\nsleep 600", "sh -c 'echo $$; exec sleep 600' & wait", "echo $$; yes"]
)
async def test_a_cancelled_call_ends_its_processes(command: str, watcher: Watcher) -> None:
    with trio.fail_after(TIMEOUT):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(make_terminal().run, {"command": command}, watcher.use())
            await watcher.happened.wait()
            nursery.cancel_scope.cancel()
    assert has_ended(int(watcher.heard.split()[0]))


async def test_a_call_whose_listener_hangs_can_be_cancelled(tmp_path: Path) -> None:
    listening = trio.Event()

    async def listen(_text: str) -> None:
        listening.set()
        await trio.sleep_forever()

    with trio.fail_after(TIMEOUT):
        async with trio.open_nursery() as nursery:
            use = ToolUse("call_1", tmp_path, output=listen)
            nursery.start_soon(make_terminal().run, {"command": "echo x; sleep 600"}, use)
            await listening.wait()
            nursery.cancel_scope.cancel()


async def test_a_call_that_is_cancelled_before_it_began(watcher: Watcher) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await make_terminal().run({"command": "touch made; sleep 600"}, watcher.use())
    assert scope.cancelled_caught
    assert not (watcher.workspace / "made").exists()


async def test_secrets_are_not_seen(watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_SERVER_KEY", "OPENAI_API_KEY", "HERMES_TRIO_X", "DATABASE_URL", "ANYTHING_ELSE"):
        monkeypatch.setenv(name, "canary")
    command = {"command": "env; cat /proc/$$/environ; set"}
    assert "canary" not in await make_terminal().run(command, watcher.use())
    monkeypatch.setenv("JAVA_HOME", "/opt/java")
    assert "JAVA_HOME=/opt/java" in await make_terminal(environment=("JAVA_HOME",)).run(
        command, watcher.use()
    )


class TestPlaces:
    async def test_each_session_stays_where_it_went(self, watcher: Watcher) -> None:
        (watcher.workspace / "a b").mkdir()
        terminal = make_terminal()
        said = await terminal.run({"command": "cd 'a b'; echo x"}, watcher.use())
        assert said == "x\n[working directory: a b]"
        here = str(watcher.workspace.resolve())
        assert await terminal.run({"command": "pwd -P"}, watcher.use()) == f"{here}/a b"
        assert await terminal.run({"command": "pwd -P"}, watcher.use("other")) == here
        assert await terminal.run({"command": "pwd -P"}, watcher.use(principal="other")) == here
        assert await terminal.run({"command": "cd .."}, watcher.use()) == "[working directory: .]"

    async def test_places_outside_are_left(self, watcher: Watcher) -> None:
        terminal = make_terminal()
        assert "outside the workspace" in await terminal.run({"command": "cd /"}, watcher.use())
        assert await terminal.run({"command": "pwd -P"}, watcher.use()) == str(watcher.workspace.resolve())

    async def test_a_place_that_is_gone_is_left(self, watcher: Watcher) -> None:
        terminal = make_terminal()
        await terminal.run({"command": "mkdir a; cd a"}, watcher.use())
        (watcher.workspace / "a").rmdir()
        assert await terminal.run({"command": "pwd -P"}, watcher.use()) == str(watcher.workspace.resolve())

    async def test_a_failed_command_moves_too(self, watcher: Watcher) -> None:
        assert await failure("mkdir a; cd a; false", watcher) == "[exit code 1]\n[working directory: a]"


class TestApproval:
    async def test_dangerous_commands_are_asked_about(self, watcher: Watcher) -> None:
        (watcher.workspace / "old").mkdir()
        await make_terminal().run({"command": "rm -rf old"}, watcher.use())
        assert watcher.asked == [
            Question("rm -rf old", "deletes directories recursively", ("delete-recursive",))
        ]
        assert not (watcher.workspace / "old").exists()

    async def test_a_refusal_ends_the_call(self, watcher: Watcher) -> None:
        watcher.agrees = False
        (watcher.workspace / "old").mkdir()
        assert await failure("rm -rf old", watcher) == NOT_APPROVED
        assert (watcher.workspace / "old").exists()
