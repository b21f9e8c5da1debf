"""What programs of tools can see and change in the sandbox, with the real bubblewrap where it works."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import trio
from attrs import evolve

from hermes_trio.agent.interface import NO_SANDBOX, SandboxConfig
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.tools.base import ToolError
from hermes_trio.tools.sandbox import Sandbox, find_problem, open_sandbox
from hermes_trio.tools.search import search_files
from hermes_trio.tools.terminal import CommandResult, Terminal, make_terminal
from tests.support.processes import TIMEOUT, children
from tests.tools.use_recorder import UseRecorder

PROGRAM = shutil.which("bwrap") or ""
PROBLEM = find_problem(PROGRAM)
needs_bubblewrap = pytest.mark.skipif(bool(PROBLEM), reason=PROBLEM)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a workspace and things that are none of its business."""
    (tmp_path / "workspace").mkdir()
    (tmp_path / "api-key").write_text("canary-key")
    (tmp_path / "hermes.db").write_text("canary-record")
    (tmp_path / "workspace/file").write_text("content")
    return tmp_path


def run(data: Path, command: str, sandbox: Sandbox | None = None) -> CommandResult:
    workspace = data / "workspace"
    terminal = Terminal(workspace, sandbox=sandbox or Sandbox(PROGRAM))
    return terminal.run(command, seconds=TIMEOUT)


@needs_bubblewrap
class TestView:
    def test_the_workspace_is_writable(self, data: Path) -> None:
        result = run(data, "cat file; echo more >> file; pwd; echo x > ~/in-home")
        assert result.output == f"content{data}/workspace\n"
        assert result.exit_code == 0
        assert (data / "workspace/file").read_text() == "contentmore\n"
        assert (data / "workspace/in-home").exists()

    def test_keys_and_records_are_invisible(self, data: Path) -> None:
        result = run(
            data, f"ls {data}; cat {data}/api-key {data}/hermes.db; find / -name api-key 2>&-"
        )
        assert "canary" not in result.output
        assert result.output.startswith("workspace\n")
        assert result.output.count("No such file") == 2

    def test_a_link_does_not_lead_out(self, data: Path) -> None:
        (data / "workspace/link").symlink_to(data / "api-key")
        assert "canary" not in run(data, "cat link").output

    @pytest.mark.parametrize("path", [Path.home(), Path("/root"), Path("/home")])
    def test_homes_are_invisible(self, path: Path, data: Path) -> None:
        result = run(data, f"ls -A {path}")
        assert result.exit_code or not result.output

    def test_the_system_is_read_only(self, data: Path) -> None:
        for path in ("/usr/x", "/etc/x", "/bin/x", "/x"):
            run(data, f"touch {path}")
            assert not Path(path).exists()
        assert run(data, "touch /usr/x").exit_code

    def test_password_hashes_are_hidden_even_from_root(self, data: Path) -> None:
        assert "root:" not in run(data, "cat /etc/shadow").output

    def test_temporary_files_are_its_own(self, data: Path) -> None:
        assert run(data, "echo x > /tmp/sandboxed && cat /tmp/sandboxed").output == "x\n"
        assert not Path("/tmp/sandboxed").exists()

    def test_other_processes_are_invisible(
        self, data: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CANARY", "canary-variable")
        result = run(
            data, "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline; ls /proc | grep -c '^[0-9]'"
        )
        assert "canary" not in result.output
        assert int(result.output.split("\n")[-2].split("\0")[-1]) < 10
        assert run(data, f"kill -0 {os.getpid()}").exit_code

    def test_there_is_no_network_unless_it_is_allowed(self, data: Path) -> None:
        interfaces = "tail -n +3 /proc/net/dev | cut -d: -f1"
        assert run(data, interfaces).output.split() == ["lo"]
        allowed = run(data, interfaces, Sandbox(PROGRAM, network=True)).output.split()
        own = Path("/proc/net/dev").read_text().splitlines()[2:]
        assert allowed == [line.split(":")[0].strip() for line in own]

    def test_other_folders_can_be_made_readable(self, data: Path) -> None:
        toolchain = data / "toolchain"
        toolchain.mkdir()
        (toolchain / "tool").write_text("x")
        command = f"cat {toolchain}/tool; touch {toolchain}/new"
        assert run(data, command).exit_code
        result = run(data, command, Sandbox(PROGRAM, readable=(toolchain,)))
        assert result.output.startswith("x")
        assert "Read-only" in result.output

    @pytest.mark.skipif(not shutil.which("prlimit"), reason="prlimit is not installed")
    def test_resources_are_limited(self, data: Path) -> None:
        assert run(data, "ulimit -c; ulimit -n").output == "0\n4096\n"


@needs_bubblewrap
class TestRunning:
    def test_exit_codes_and_signals(self, data: Path) -> None:
        assert run(data, "exit 3").exit_code == 3
        assert run(data, "no_such_program").exit_code == 127

    def test_a_slow_command_is_ended_with_everything_it_started(self, data: Path) -> None:
        before = children()
        terminal = Terminal(data / "workspace", sandbox=Sandbox(PROGRAM))
        result = terminal.run("setsid sleep 600 & sleep 600", seconds=0.3)
        assert result.timed_out
        assert not children() - before

    async def test_the_tool_remembers_its_directory(self, data: Path) -> None:
        recorder = UseRecorder(data / "workspace")
        use = evolve(recorder.use(), sandbox=Sandbox(PROGRAM))
        terminal = make_terminal()
        said = await terminal.run({"command": "mkdir sub; cd sub"}, use)
        assert said == "[working directory: sub]"
        assert await terminal.run({"command": "pwd"}, use) == f"{data}/workspace/sub"

    async def test_a_cancelled_call_ends_its_processes(self, data: Path) -> None:
        before = children()
        recorder = UseRecorder(data / "workspace")
        use = evolve(recorder.use(), sandbox=Sandbox(PROGRAM))
        with trio.fail_after(TIMEOUT):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(make_terminal().run, {"command": "echo up; sleep 600"}, use)
                await recorder.happened.wait()
                nursery.cancel_scope.cancel()
        assert not children() - before

    async def test_search(self, data: Path) -> None:
        use = evolve(UseRecorder(data / "workspace").use(), sandbox=Sandbox(PROGRAM))
        assert await search_files.run({"pattern": "cont"}, use) == "file:1: content"
        with pytest.raises(ToolError, match="pattern"):
            await search_files.run({"pattern": "("}, use)


@needs_bubblewrap
class TestApproval:
    async def test_a_profile_may_relax_it_without_network(self, data: Path) -> None:
        recorder = UseRecorder(data / "workspace", agrees=False)
        use = evolve(recorder.use(), sandbox=Sandbox(PROGRAM))
        await make_terminal(ask_in_sandbox=False).run({"command": "touch made"}, use)
        assert recorder.asked == []
        assert (data / "workspace/made").exists()

    @pytest.mark.parametrize("sandbox", [None, Sandbox(PROGRAM, network=True)])
    async def test_but_not_otherwise(self, sandbox: Sandbox | None, data: Path) -> None:
        recorder = UseRecorder(data / "workspace", agrees=False)
        use = evolve(recorder.use(), sandbox=sandbox)
        with pytest.raises(ToolError):
            await make_terminal(ask_in_sandbox=False).run({"command": "touch made"}, use)
        assert len(recorder.asked) == 1


class TestChoosing:
    def test_off(self) -> None:
        assert open_sandbox(NO_SANDBOX) is None

    def test_not_installed(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert open_sandbox(SandboxConfig("auto")) is None
        with pytest.raises(ConfigurationError, match=r"^sandbox: required, but bubblewrap .* not"):
            open_sandbox(SandboxConfig("require"))

    @pytest.mark.parametrize("script", ["echo no namespaces >&2; exit 1", "exit 1"])
    def test_not_working(
        self, script: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        fake = tmp_path / "bwrap"
        fake.write_text(f"#!/bin/sh\n{script}\n")
        fake.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert open_sandbox(SandboxConfig("auto")) is None
        with pytest.raises(ConfigurationError, match=r"bubblewrap fails: (no namespaces|\?)$"):
            open_sandbox(SandboxConfig("require"))

    @needs_bubblewrap
    @pytest.mark.parametrize("mode", ["auto", "require"])
    def test_working(self, mode: str) -> None:
        assert open_sandbox(SandboxConfig(mode, True)) == Sandbox(PROGRAM, network=True)
