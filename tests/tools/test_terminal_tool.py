"""The terminal as a tool.

Real commands, streamed, bounded, cancelled at once, with nothing left behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from hermes_trio.tools.base import NOT_APPROVED, ToolError, ToolUse
from hermes_trio.tools.terminal import make_terminal
from tests.support.processes import TIMEOUT, children, has_ended
from tests.tools.use_recorder import AskedApproval, UseRecorder


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    processes = children()
    yield
    assert not children() - processes


@pytest.fixture
def recorder(tmp_path: Path) -> UseRecorder:
    return UseRecorder(tmp_path)


async def failure(command: str, recorder: UseRecorder, **arguments: object) -> str:
    """Return the error text of a command that fails."""
    with pytest.raises(ToolError) as caught:
        await make_terminal().run({"command": command, **arguments}, recorder.use())
    return str(caught.value)


async def test_output_is_shown_and_returned(recorder: UseRecorder) -> None:
    assert (
        await make_terminal().run({"command": "echo out; echo err >&2"}, recorder.use())
        == "out\nerr"
    )
    assert recorder.heard == "out\nerr\n"
    assert recorder.asked == []


async def test_nothing_printed(recorder: UseRecorder) -> None:
    assert await make_terminal().run({"command": "true"}, recorder.use()) == "(no output)"


async def test_failures_tell_the_exit_code(recorder: UseRecorder) -> None:
    assert await failure("echo no; exit 3", recorder) == "no\n[exit code 3]"
    assert "[exit code 127]" in await failure("no_such_program", recorder)
    assert "null byte" in await failure("a\0b", recorder)


async def test_a_slow_command_is_ended(recorder: UseRecorder) -> None:
    said = await failure("echo begun; sleep 600", recorder, seconds=0.2)
    assert said == "begun\n[killed after 0.2 seconds: it took too long]\n[exit code 143]"


async def test_the_configured_limit_holds(recorder: UseRecorder) -> None:
    terminal = make_terminal(most_seconds=0.1)
    with pytest.raises(ToolError, match=r"0\.1 seconds"):
        await terminal.run({"command": "sleep 600", "seconds": 1e9}, recorder.use())


async def test_endless_output_is_bounded(recorder: UseRecorder) -> None:
    with pytest.raises(ToolError) as caught:
        await make_terminal(characters=1000).run({"command": "yes", "seconds": 0.3}, recorder.use())
    assert "characters left out" in str(caught.value)
    assert len(str(caught.value)) < 1200
    assert len(recorder.heard) == 1000


@pytest.mark.parametrize(
    "command", ["echo $$\nsleep 600", "sh -c 'echo $$; exec sleep 600' & wait", "echo $$; yes"]
)
async def test_a_cancelled_call_ends_its_processes(command: str, recorder: UseRecorder) -> None:
    with trio.fail_after(TIMEOUT):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(make_terminal().run, {"command": command}, recorder.use())
            await recorder.happened.wait()
            nursery.cancel_scope.cancel()
    assert has_ended(int(recorder.heard.split()[0]))


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


async def test_a_call_that_is_cancelled_before_it_began(recorder: UseRecorder) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await make_terminal().run({"command": "touch made; sleep 600"}, recorder.use())
    assert scope.cancelled_caught
    assert not (recorder.workspace / "made").exists()


async def test_secrets_are_not_seen(recorder: UseRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "API_SERVER_KEY",
        "OPENAI_API_KEY",
        "HERMES_TRIO_X",
        "DATABASE_URL",
        "ANYTHING_ELSE",
    ):
        monkeypatch.setenv(name, "canary")
    command = {"command": "env; cat /proc/$$/environ; set"}
    assert "canary" not in await make_terminal().run(command, recorder.use())
    monkeypatch.setenv("JAVA_HOME", "/opt/java")
    assert "JAVA_HOME=/opt/java" in await make_terminal(environment=("JAVA_HOME",)).run(
        command, recorder.use()
    )


class TestWorkingDirectories:
    async def test_each_session_stays_where_it_went(self, recorder: UseRecorder) -> None:
        (recorder.workspace / "a b").mkdir()
        terminal = make_terminal()
        said = await terminal.run({"command": "cd 'a b'; echo x"}, recorder.use())
        assert said == "x\n[working directory: a b]"
        here = str(recorder.workspace.resolve())
        assert await terminal.run({"command": "pwd -P"}, recorder.use()) == f"{here}/a b"
        assert await terminal.run({"command": "pwd -P"}, recorder.use("other")) == here
        assert await terminal.run({"command": "pwd -P"}, recorder.use(principal="other")) == here
        assert await terminal.run({"command": "cd .."}, recorder.use()) == "[working directory: .]"

    async def test_places_outside_are_left(self, recorder: UseRecorder) -> None:
        terminal = make_terminal()
        assert "outside the workspace" in await terminal.run({"command": "cd /"}, recorder.use())
        assert await terminal.run({"command": "pwd -P"}, recorder.use()) == str(
            recorder.workspace.resolve()
        )

    async def test_a_place_that_is_gone_is_left(self, recorder: UseRecorder) -> None:
        terminal = make_terminal()
        await terminal.run({"command": "mkdir a; cd a"}, recorder.use())
        (recorder.workspace / "a").rmdir()
        assert await terminal.run({"command": "pwd -P"}, recorder.use()) == str(
            recorder.workspace.resolve()
        )

    async def test_a_failed_command_moves_too(self, recorder: UseRecorder) -> None:
        assert (
            await failure("mkdir a; cd a; false", recorder)
            == "[exit code 1]\n[working directory: a]"
        )


class TestApproval:
    async def test_dangerous_commands_are_asked_about(self, recorder: UseRecorder) -> None:
        (recorder.workspace / "old").mkdir()
        await make_terminal().run({"command": "rm -rf old"}, recorder.use())
        assert recorder.asked == [
            AskedApproval(
                "rm -rf old",
                "deletes directories recursively; creates, changes or deletes files",
                ("terminal: rm -rf old",),
            )
        ]
        assert not (recorder.workspace / "old").exists()

    async def test_an_approval_is_for_one_command_in_one_directory(
        self, recorder: UseRecorder
    ) -> None:
        (recorder.workspace / "sub").mkdir()
        terminal = make_terminal()
        for command in ("touch a", "touch b", "cd sub", "touch a"):
            await terminal.run({"command": command}, recorder.use())
        assert [asked.patterns for asked in recorder.asked] == [
            ("terminal: touch a",),
            ("terminal: touch b",),
            ("terminal in sub: touch a",),
        ]
        assert all(asked.allow_permanent for asked in recorder.asked)

    @pytest.mark.parametrize("command", ["$(echo ls)", "${X}ho x", "echo ls | sh", "cat <<E\nE"])
    async def test_always_is_not_offered_for_what_can_change(
        self, command: str, recorder: UseRecorder
    ) -> None:
        with suppress(ToolError):
            await make_terminal().run({"command": command}, recorder.use())
        [asked] = recorder.asked
        assert (asked.patterns, asked.allow_permanent) == ((f"terminal: {command}",), False)

    async def test_commands_that_the_operator_allows(self, recorder: UseRecorder) -> None:
        await make_terminal(allow=("touch",)).run({"command": "touch a"}, recorder.use())
        assert recorder.asked == []
        assert (recorder.workspace / "a").exists()

    async def test_git_ignores_dangerous_configuration_unless_asked(
        self, recorder: UseRecorder
    ) -> None:
        shown = await make_terminal().run({"command": "printenv"}, recorder.use())
        assert "core.fsmonitor" in shown
        asked = await make_terminal().run({"command": "sh -c printenv"}, recorder.use())
        assert "core.fsmonitor" not in asked

    async def test_a_refusal_ends_the_call(self, recorder: UseRecorder) -> None:
        recorder.agrees = False
        (recorder.workspace / "old").mkdir()
        assert await failure("rm -rf old", recorder) == NOT_APPROVED
        assert (recorder.workspace / "old").exists()
