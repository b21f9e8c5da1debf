"""How a command starts: with which environment, and what happens when it cannot."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_trio.tools.base import safe_environment
from hermes_trio.tools.terminal import CommandResult, Terminal
from tests.support.processes import descriptors, nothing_left


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    with nothing_left():
        yield


SECRETS = {
    "API_SERVER_KEY": "h", "HERMES_TRIO_PORT": "1", "OPENAI_BASE_URL": "u", "DATABASE_URL": "d", "GH_TOKEN": "t",
    "AWS_SECRET_ACCESS_KEY": "k", "PGPASSWORD": "p", "REDIS": "redis://:secret@host/0", "LD_PRELOAD": "x",
    "https_proxy": "http://me:secret@proxy:3128", "path": "p", "HOMEPAGE": "h", "A_LC_B": "c",
}  # fmt: skip
PLAIN = {
    "PATH": "/bin:/usr/bin",
    "HOME": "/nowhere",
    "LANG": "C",
    "LC_TIME": "C",
    "TZ": "UTC",
    "TMPDIR": "/tmp",
}


class TestEnvironment:
    def test_only_plain_names_pass(self) -> None:
        assert safe_environment(SECRETS | PLAIN) == PLAIN

    def test_names_may_be_added(self) -> None:
        assert safe_environment(SECRETS | PLAIN, ["GH_TOKEN", "NONE"]) == PLAIN | {"GH_TOKEN": "t"}

    def test_a_command_sees_no_secret(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in SECRETS:
            monkeypatch.setenv(name, "canary")
        output = Terminal(tmp_path).run("env; cat /proc/self/environ").output
        assert "PATH=" in output
        assert "PAGER=cat\n" in output
        assert "canary" not in output

    def test_an_environment_that_is_given_is_the_whole(self, tmp_path: Path) -> None:
        assert (
            Terminal(tmp_path, environ={"COLOUR": "green"}).run("echo $COLOUR$HOME").output
            == "green\n"
        )


class TestNotStarting:
    @pytest.mark.parametrize(
        ("command", "code", "why"),
        [
            ("a\0b", 126, "null byte"),
            ("\udcff\ud800", 126, "surrogates"),
            ("x" * 1_000_000, 126, "Argument list too long"),
        ],
    )
    def test_is_a_result(self, tmp_path: Path, command: str, code: int, why: str) -> None:
        result = Terminal(tmp_path).run(command)
        assert result.exit_code == code
        assert why in result.output

    def test_without_a_folder(self, tmp_path: Path) -> None:
        result = Terminal(tmp_path / "none").run("echo x")
        assert result.exit_code == 127
        assert "No such file" in result.output

    def test_on_a_kernel_that_cannot_watch(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(_pid: int) -> int:
            raise OSError(errno.ENOSYS, "no such call")

        monkeypatch.setattr(os, "pidfd_open", refuse)
        result = Terminal(tmp_path).run("sleep 60")
        assert (result.exit_code, result.output.split("] ")[1]) == (126, "no such call")

    def test_with_few_descriptors(self, tmp_path: Path) -> None:
        codes = [
            with_descriptors(spare, lambda: Terminal(tmp_path).run("exit 0")).exit_code
            for spare in range(12)
        ]
        assert codes[0] == 126
        assert codes[-1] == 0
        assert set(codes) <= {0, 126, 127}


def with_descriptors(spare: int, work: Callable[[], CommandResult]) -> CommandResult:
    """Run something that may open only so many more files."""
    taken = {int(line.split()[0]) for line in descriptors()}
    limit = [number for number in range(len(taken) + spare + 64) if number not in taken][spare]
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        return work()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
