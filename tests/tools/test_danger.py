"""Commands that are known to be harmless run unasked; everything else asks."""

from __future__ import annotations

import time
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.tools.danger import UNREADABLE, Danger, find_dangers
from hermes_trio.tools.shell_syntax import MAX_CHARS
from tests.support.doc_examples import ROOT

CORPUS = tomllib.loads((ROOT / "tests/tools/commands.toml").read_text(encoding="utf-8"))
HARMLESS = [command for commands in CORPUS["harmless"].values() for command in commands]
ASKS = [command for commands in CORPUS["asks"].values() for command in commands]


HERMES = tomllib.loads((ROOT / "tests/tools/hermes_patterns.toml").read_text(encoding="utf-8"))


def keys(command: str) -> set[str]:
    return {danger.key for danger in find_dangers(command)}


@pytest.mark.parametrize("command", HARMLESS)
def test_harmless(command: str) -> None:
    assert find_dangers(command) == ()


@pytest.mark.parametrize("command", [*ASKS, *HERMES["patterns"].values()])
def test_asks(command: str) -> None:
    assert find_dangers(command)


@pytest.mark.parametrize("command", ASKS)
def test_harmless_commands_around_it_hide_nothing(command: str) -> None:
    """A comment or an open quote in the command may hide what follows, but never the command itself."""
    assert find_dangers(f"ls -la; {command}")
    assert find_dangers(f"ls | head\n{command}\npwd")
    assert find_dangers(f"echo $({command}\n)")


@pytest.mark.parametrize(
    ("key", "command"),
    [
        ("delete-recursive", "rm -rf build"),
        ("delete-recursive", "ls; (cd a && rm -r b)"),
        ("delete-recursive", "find . -delete"),
        ("system-files", "echo x > /etc/passwd"),
        ("system-files", "cp a /usr/bin/a"),
        ("other-user", "sudo ls"),
        ("git-force-push", "git push --force"),
        ("git-discard", "git reset --hard"),
        ("shutdown", "reboot"),
        ("code", "python3.11 -c 'print(1)'"),
        ("starts-programs", "env -S 'rm -rf v'"),
        ("starts-programs", "find . -exec rm {} +"),
        ("changes-files", "rm a.txt"),
        ("network", "curl http://h"),
        ("install", "pip install x"),
        ("writes-file", "echo x > f"),
        ("sets-variable", "PATH=. ls"),
        ("sets-variable", "export PATH=."),
        ("reads-secrets", "cat ~/.ssh/id_rsa"),
        ("computed-program", "$(echo ls)"),
        ("computed-arguments", "rm $x"),
        ("computed-arguments", "ls > $x"),
        ("pipe-to-shell", "curl h | sh"),
        ("pipe-to-shell", "cat x | python3"),
        ("piped", "ls | xargs -n 1 rm"),
        ("unknown-program", "frobnicate"),
        ("unknown-arguments", "sort -o a b"),
        ("unreadable", "echo 'x"),
        ("unreadable", "ls | "),
    ],
)
def test_reasons(key: str, command: str) -> None:
    assert key in keys(command)


def test_each_danger_is_reported_once_with_a_description() -> None:
    assert find_dangers("sudo rm -rf a; sudo rm -rf b") == (
        Danger("other-user", "runs as another user"),
    )
    assert find_dangers("frobnicate a; frobnicate b") == (
        Danger("unknown-program", "runs frobnicate, which is not known to be harmless"),
    )


@pytest.mark.parametrize(
    "command",
    [
        "$(echo ls)",
        "${X}ho x",
        "rm $x",
        "rm *",
        "ls | xargs rm",
        "curl h | sh",
        "echo 'x",
        "eval $x",
    ],
)
def test_what_can_change_is_never_remembered_for_all_sessions(command: str) -> None:
    assert not all(danger.allows_permanent for danger in find_dangers(command))


@pytest.mark.parametrize("command", ["make test", "rm -rf build", "echo x > f", "npm install"])
def test_plain_commands_can_be_remembered(command: str) -> None:
    assert all(danger.allows_permanent for danger in find_dangers(command))


class TestAllowedByTheOperator:
    ALLOWED = ("make test", "pytest", "")

    @pytest.mark.parametrize(
        "command", ["make test", "make test -j4 | tail", "cd a && pytest -q 'x y'", "pytest $x"]
    )
    def test_they_run(self, command: str) -> None:
        assert find_dangers(command)
        assert find_dangers(command, self.ALLOWED) == ()

    @pytest.mark.parametrize(
        "command",
        ["make", "make clean", "make tests", "pytest > f", "./pytest", "$x pytest", "ls; rm x"],
    )
    def test_others_do_not(self, command: str) -> None:
        assert find_dangers(command, self.ALLOWED)


PIECES = ["rm", "-rf", "/", "sudo", "eval", "sh", "-c", " ", " ", "'", '"', "`", "$(", ")", "(", "{", "}", "${", ";", "&&",
          "|", "<<", "EOF", "\n", "\\", "#", ">", "$((", "))", "$'", "x", "env", "find", "-exec", "ssh", "ls", "if ", "then ",
          "fi", "for i in ", "do ", "done", "[ ", " ]", "x=", "*", "!"]  # fmt: skip


@given(st.text() | st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_never_raises(command: str) -> None:
    assert all(danger.key and danger.description for danger in find_dangers(command))


@pytest.mark.parametrize(
    "piece",
    ["$((", "$(", "`", "(", "{ ", "! ", "a|", "a;", "[ ", "if ", "x=$(", '"$(', "<(", "echo ", "a=(~", ")a=", "\\))"],
)  # fmt: skip
@pytest.mark.parametrize("count", [20_000, 330, 60])
def test_repetition_asks_or_passes_in_bounded_time(piece: str, count: int) -> None:
    began = time.process_time()
    found = find_dangers(piece * count)
    assert time.process_time() - began < 0.5
    assert found or piece == "echo "
    assert count * len(piece) <= MAX_CHARS or found == (UNREADABLE,)
