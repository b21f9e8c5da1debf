"""A client on the same machine finds the server and its key as the server does, and sends the key nowhere else."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from hermes_trio.cli import chat as chat_cli
from hermes_trio.cli.chat import MAX_INPUT_BYTES, ChatFlags, join_prompt, read_text
from hermes_trio.cli.target import KEY_VARIABLE, find_target, server_url
from hermes_trio.client import chat
from hermes_trio.client.turn import TurnResult
from hermes_trio.client.view import EMPTY_VIEW
from hermes_trio.core.errors import ConfigurationError
from hermes_trio.keys import LOCAL_FILE
from hermes_trio.settings import Settings

KEY = "a-key-that-is-long-enough"


def key_file(path: Path, text: str = KEY) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8642"),
        ("0.0.0.0", "http://127.0.0.1:8642"),
        ("::", "http://[::1]:8642"),
        ("example.org", "http://example.org:8642"),
    ],
)
def test_the_address_is_that_of_the_settings(host: str, url: str) -> None:
    assert server_url(Settings(host=host)) == url


def test_a_port_that_the_system_chooses() -> None:
    with pytest.raises(ConfigurationError, match="pass --url"):
        server_url(Settings(port=0))


def test_the_generated_key_is_found(tmp_path: Path) -> None:
    key_file(tmp_path / LOCAL_FILE)
    target = find_target(Settings(data_dir=tmp_path))
    assert (target.url, target.key, target.is_local) == ("http://127.0.0.1:8642", KEY, True)


FOREIGN = (
    "https://example.org",
    "http://example.org:8642",  # not https
    "https://example.org:8643",
    "https://agents.example.org:8642",
    "https://127.0.0.1.example.org:8642",
    "https://[2001:db8::1]:8642",
)


@pytest.mark.parametrize("url", FOREIGN)
@pytest.mark.parametrize("source", ["generated", "api_key", "api_key_file"])
def test_the_keys_of_the_settings_are_sent_to_no_other_server(
    url: str, source: str, tmp_path: Path
) -> None:
    stored = key_file(tmp_path / LOCAL_FILE)
    settings = Settings(
        data_dir=tmp_path,
        host="agents.test",
        api_key=KEY if source == "api_key" else "",
        api_key_file=stored if source == "api_key_file" else None,
    )
    with pytest.raises(ConfigurationError, match="not sent to another") as caught:
        find_target(settings, url, environ={})
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["http://agents.test/v1", "http://Agents.test:80", "http://127.0.0.1:9", "http://localhost:9"],
)
def test_the_keys_of_the_settings_are_sent_to_their_own_server(url: str, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, host="agents.test", port=80, api_key=KEY)
    assert find_target(settings, url, environ={}).key == KEY


def test_the_key_of_another_server_is_given_for_it(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, api_key=KEY)
    environ = {KEY_VARIABLE: "the-key-of-the-other"}
    own = key_file(tmp_path / "own", "own-own-own-own-own")
    for url in (*FOREIGN, "http://127.0.0.1:9"):
        assert find_target(settings, url, environ=environ).key == "the-key-of-the-other"
        assert find_target(settings, url, own, environ).key == "own-own-own-own-own"
    assert find_target(settings, environ=environ).key == KEY  # the server of the settings


def test_there_is_no_key_yet(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="has the server been started"):
        find_target(Settings(data_dir=tmp_path))


def test_the_order_of_keys(tmp_path: Path) -> None:
    key_file(tmp_path / LOCAL_FILE, "generated-generated")
    of_settings = key_file(
        tmp_path / "keys.toml",
        '[keys]\nother = "other-other-other-1"\ndefault = "mine-mine-mine-mine"',
    )
    own = key_file(tmp_path / "own", "own-own-own-own-own")
    settings = Settings(data_dir=tmp_path, api_key_file=of_settings)
    assert find_target(settings).key == "mine-mine-mine-mine"
    assert find_target(settings, key_file=own).key == "own-own-own-own-own"
    assert find_target(Settings(data_dir=tmp_path, api_key=KEY)).key == KEY


def test_several_keys_and_none_is_ours(tmp_path: Path) -> None:
    names = key_file(
        tmp_path / "keys", '[keys]\na = "aaaaaaaaaaaaaaaaaa"\nb = "bbbbbbbbbbbbbbbbbb"'
    )
    with pytest.raises(ConfigurationError, match=r"several keys \(a, b\)") as caught:
        find_target(Settings(data_dir=tmp_path, api_key_file=names))
    assert "aaaa" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["nowhere", "http://", "ftp://a", "http://u:p@a", "http://a/?q", "http://a:x", "http://a:0"],
)
def test_what_is_no_address(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="url: the value is not an address"):
        find_target(Settings(data_dir=tmp_path, api_key=KEY), url)


@pytest.mark.parametrize(
    "url", ["http://a/p/x", "http://a/p/x/", "http://a/p/x/v1", "http://a/p/x/v1/"]
)
def test_an_address_may_be_that_of_a_profile(url: str) -> None:
    assert find_target(Settings(api_key=KEY, host="a", port=80), url).url == "http://a/p/x"


# What is asked


class Piped(io.StringIO):
    """Standard input that is no terminal."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self._content = io.BytesIO(content)

    @property
    def buffer(self) -> io.BytesIO:
        return self._content


class Typed(Piped):
    """One that is."""

    def isatty(self) -> bool:
        return True


def test_the_question_comes_before_what_it_is_about() -> None:
    assert join_prompt("explain", "text\n") == "explain\n\ntext"
    assert join_prompt("", "text\n") == "text"
    assert join_prompt("explain", "") == "explain"


def test_too_much_to_read() -> None:
    with pytest.raises(ConfigurationError, match="more than"):
        read_text(io.BytesIO(b"x" * (MAX_INPUT_BYTES + 1)))
    assert read_text(io.BytesIO(b"\xff")) == "\ufffd"


@pytest.mark.parametrize(
    ("flags", "stdin", "complaint"),
    [
        (ChatFlags(as_json=True), Typed(b""), "there is nothing to ask"),
        (ChatFlags(), Piped(b" \n"), "there is nothing to ask"),
        (ChatFlags("x", as_json=True, plain=True), Piped(b""), "--json and --plain"),
        (ChatFlags("x", url="nowhere"), Piped(b""), "url: the value"),
        (ChatFlags("x", key_file="/no/such"), Piped(b""), "/no/such: No such file"),
    ],
)
def test_misuse(
    flags: ChatFlags, stdin: Piped, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", stdin)
    with pytest.raises(ConfigurationError, match=complaint):
        chat_cli.main(Settings(api_key=KEY), flags)


# Typing


def typing(
    monkeypatch: pytest.MonkeyPatch, *lines: str | type[BaseException], quits: bool = False
) -> tuple[int, list[str]]:
    """What comes of somebody who types these lines: the exit code, and what was asked."""
    asked: list[str] = []
    waiting = iter(lines)

    def read(_prompt: str) -> str:
        line = next(waiting)
        if not isinstance(line, str):
            raise line
        return line

    async def open_session(*_arguments: object) -> chat._OpenedSession:
        return chat._OpenedSession("s", ["said before"])

    def turn(_target: object, wanted: chat.ChatSettings) -> TurnResult:
        asked.append(f"{wanted.session}: {wanted.prompt}")
        return TurnResult(EMPTY_VIEW, 130, quit=quits)

    monkeypatch.setattr("builtins.input", read)
    monkeypatch.setattr(chat, "_open", open_session)
    monkeypatch.setattr(chat, "_one_turn", turn)
    wanted = chat.ChatSettings(output=chat.OutputMode.PLAIN)
    return chat.chat(find_target(Settings(api_key=KEY)), wanted), asked


def test_typing_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    # A run that was stopped does not end the conversation.
    assert typing(monkeypatch, "one", " ", "two ", EOFError) == (0, ["s: one", "s: two"])


def test_leaving_while_typing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert typing(monkeypatch, "one", KeyboardInterrupt) == (130, ["s: one"])


def test_leaving_during_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    assert typing(monkeypatch, "one", "two", quits=True) == (130, ["s: one"])
