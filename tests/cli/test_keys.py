"""``hermes-trio keys``: a key is printed once, and the file says what it allows."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hermes_trio.cli import commands as cli
from hermes_trio.cli.keys import parse_expiry
from hermes_trio.core.access import Access, Principal, Quota
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.keys import Keyring, read_key_file

NOW = datetime(2026, 11, 19, 12, 30, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.toml"


def keys(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.program, ["keys", *map(str, arguments)])


def test_a_key_is_printed_once(path: Path) -> None:
    result = keys("add", "ada", "--file", path)
    assert result.exit_code == 0
    key = result.stdout.removesuffix("\n")
    assert Keyring(read_key_file(path)).identify(key) == Principal("ada")
    assert "kill -HUP" in result.stderr
    assert key not in result.stderr
    assert key not in path.read_text()
    assert key not in keys("list", "--file", path).output
    assert key not in keys("list", "--json", "--file", path).output
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_every_flag_is_an_option_of_the_entry(path: Path) -> None:
    flags = (
        "--principal ada --route chat --route runs:read --profile default --tool read_file --admin"
    )
    limits = "--max-runs 1 --max-runs-per-minute 2 --max-requests 3 --max-stored-bytes 4 --expires 2999-01-31"
    assert keys("add", "phone", "--file", path, *flags.split(), *limits.split()).exit_code == 0
    [named] = read_key_file(path)
    assert (named.name, named.principal) == ("phone", "ada")
    assert named.access == Access(
        frozenset({"chat", "runs:read"}),
        frozenset({"default"}),
        frozenset({"read_file"}),
        True,
        datetime(2999, 1, 31, tzinfo=UTC).timestamp(),
        Quota(1, 2, 3, 4),
    )


def test_list(path: Path) -> None:
    keys("add", "ada", "--file", path, "--no-tools", "--max-runs", "2", "--route", "chat")
    keys("add", "eve", "--file", path, "--admin")
    with path.open("a") as file:
        file.write(f'[keys.old]\nhash = "sha256:{"1" * 64}"\nexpires = 2026-01-31\n')
    lines = [line.split() for line in keys("list", "--file", path).output.splitlines()]
    assert lines == [
        ["name", "principal", "expires", "routes", "profiles", "tools", "limits"],
        ["ada", "ada", "never", "chat", "all", "none", "runs=2"],
        ["eve", "eve", "(admin)", "never", "all", "all", "all", "none"],
        ["old", "old", "2026-01-31T00:00Z", "(expired)", "all", "all", "all", "none"],
    ]
    ada, _, old = json.loads(keys("list", "--json", "--file", path).output)
    assert (ada["tools"], ada["profiles"], ada["limits"]) == ([], None, {"runs": 2})
    assert (old["expires"], old["expired"], old["stored"]) == ("2026-01-31T00:00Z", True, "hash")


def test_revoke(path: Path) -> None:
    keys("add", "ada", "--file", path)
    keys("add", "eve", "--file", path)
    result = keys("revoke", "ada", "--file", path)
    assert (result.exit_code, result.stdout) == (0, "")
    assert [named.name for named in read_key_file(path)] == ["eve"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["add", "a b"], "'a b' is not a name"),
        (["add", "ada", "--route", "chats"], "has 'chats'; known:"),
        (["add", "ada", "--no-tools", "--tool", "x"], "exclude each other"),
        (["add", "ada", "--expires", "soon"], "'soon' is neither a time such as 12h"),
        (["add", "ada", "--expires", "2020-01-01"], "'2020-01-01' is not in the future"),
        (["add", "ada", "--max-runs", "0"], "0 is not in the range"),
        (["revoke", "ada"], "No such file or directory"),
        (["list"], "No such file or directory"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], complaint: str
) -> None:
    assert cli.run(["keys", *arguments, "--file", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert complaint in err
    assert not path.exists()


def test_the_file_of_the_settings(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "api_key_file is not set: pass --file" in keys("list").output
    keys("add", "ada", "--file", path)
    monkeypatch.setenv("HERMES_TRIO_API_KEY_FILE", str(path))
    assert keys("add", "eve").exit_code == 0
    assert [named.name for named in read_key_file(path)] == ["ada", "eve"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12h", NOW + timedelta(hours=12)),
        ("30d", NOW + timedelta(days=30)),
        ("8w", NOW + timedelta(weeks=8)),
        ("2027-01-31", datetime(2027, 1, 31, tzinfo=UTC)),
        ("2027-01-31T12:00:00Z", datetime(2027, 1, 31, 12, tzinfo=UTC)),
    ],
)
def test_expiries(text: str, expected: datetime) -> None:
    assert parse_expiry(text, NOW) == expected


@pytest.mark.parametrize("text", ["0d", "d", "1y", "-1d", "2026-11-19", "2027-13-01"])
def test_what_is_no_expiry(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^expires: "):
        parse_expiry(text, NOW)
