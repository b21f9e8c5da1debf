"""Run the programs of tools in a sandbox of their own, with bubblewrap.

A program in the sandbox sees the system read-only, its workspace, and nothing else: no home
directory, no data directory, no keys, no other processes. It has no network unless the settings
allow it. It still runs as the server's user, with that user's share of processor and disk.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from attrs import frozen

from hermes_trio.agent.interface import SandboxConfig
from hermes_trio.core.errors import ConfigurationError

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/nix/store")
# Readable in the sandbox if the server runs as root.
_MASKED = ("/etc/shadow", "/etc/gshadow", "/etc/sudoers")
_PROBE_SECONDS = 10.0
# Per program, except for the number of processes, which is that of the sandbox.
_LIMITS = ("--core=0", "--data=8589934592", "--fsize=4294967296", "--nofile=4096", "--nproc=1024")


@frozen
class Sandbox:
    """Starts programs with bubblewrap."""

    program: str
    network: bool = False
    readable: tuple[Path, ...] = ()  # in addition to the system

    def wrap(
        self,
        command: Sequence[str],
        workspace: Path,
        directory: Path,
        writable: Iterable[Path] = (),
    ) -> list[str]:
        """Return the command that runs another one in the sandbox.

        Args:
            command: the program and its arguments.
            workspace: the folder that it may change.
            directory: where it starts, in the workspace.
            writable: other folders that it may change.
        """
        arguments = [self.program, *self._view(), "--die-with-parent"]
        for path in (workspace, *writable):
            arguments += ["--bind", str(path), str(path)]
        arguments += ["--setenv", "HOME", str(workspace), "--setenv", "TMPDIR", "/tmp"]  # noqa: S108 - its own
        return [*arguments, "--chdir", str(directory), "--", *_limits(), *command]

    def _view(self) -> Iterator[str]:
        """Yield the options for what is visible."""
        yield from ("--unshare-user-try", "--unshare-pid", "--unshare-ipc", "--unshare-uts")
        yield from ("--unshare-cgroup-try", "--cap-drop", "ALL")
        if not self.network:
            yield "--unshare-net"
        for path in _SYSTEM:
            yield from ("--ro-bind-try", path, path)
        for path in _MASKED:
            if Path(path).exists():
                yield from ("--ro-bind", "/dev/null", path)
        if self.network:
            # Often a link to a file below /run.
            name = str(Path("/etc/resolv.conf").resolve())
            yield from ("--ro-bind-try", name, name)
        yield from ("--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--dir", "/var/tmp")  # noqa: S108
        for each in self.readable:
            yield from ("--ro-bind-try", str(each), str(each))


def _limits() -> list[str]:
    program = shutil.which("prlimit")
    return [program, *_LIMITS, "--"] if program else []


def python_paths() -> tuple[Path, ...]:
    """Return the folders that this Python needs, wherever it is installed."""
    found = (Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parent)
    return tuple(dict.fromkeys(path.resolve() for path in found))


def open_sandbox(config: SandboxConfig) -> Sandbox | None:
    """Return the sandbox for the tools of an agent, or None if they run without. Blocks once.

    Raises:
        ConfigurationError: a sandbox is required and there is none.
    """
    if config.mode == "off":
        return None
    program = shutil.which("bwrap") or ""
    problem = find_problem(program)
    if not problem:
        return Sandbox(program, config.network, config.readable)
    if config.mode == "require":
        raise ConfigurationError(f"sandbox: required, but {problem}")
    return None


@cache
def find_problem(program: str) -> str:
    """Return why bubblewrap cannot be used; empty if it can. Blocks."""
    if not program:
        return "bubblewrap (bwrap) is not installed"
    command = Sandbox(program).wrap(["/bin/sh", "-c", ":"], Path("/tmp"), Path("/"))  # noqa: S108
    try:
        ended = subprocess.run(  # noqa: S603
            command, capture_output=True, timeout=_PROBE_SECONDS, check=False, env={}
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not start: {error}"
    said = ended.stderr.decode("utf-8", "replace").strip().splitlines()
    return "" if ended.returncode == 0 else f"bubblewrap fails: {said[-1] if said else '?'}"
