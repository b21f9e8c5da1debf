from __future__ import annotations

import io
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout

import pytest

from hermes_trio.agents.hermes.isolation import MAX_LINE_CHARS, guard_prints, hide_settings


def in_thread(function: Callable[[], object]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


@contextmanager
def guarded_screen() -> Iterator[io.StringIO]:
    """What a person at the terminal sees while prints are guarded."""
    screen = io.StringIO()
    with redirect_stdout(screen):
        with guard_prints():
            yield screen
        assert sys.stdout is screen


def say(text: str) -> None:
    """As ``print`` does it."""
    sys.stdout.write(text)
    sys.stdout.write("\n")
    sys.stdout.flush()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.INFO)
    return lambda: [
        record.getMessage().removeprefix("hermes-agent printed: ") for record in caplog.records
    ]


def test_prints_of_other_threads_become_lines_of_the_log(lines: Callable[[], list[str]]) -> None:
    def talk() -> None:
        sys.stdout.write("one ")
        say("line")
        say("\n\rspin\rspun")
        sys.stdout.write("never ended")
        assert not sys.stdout.isatty()

    with guarded_screen() as screen:
        in_thread(talk)
        say("greeting")
    assert lines() == ["one line", "spin", "spun"]
    assert screen.getvalue() == "greeting\n"


def test_a_line_without_an_end_is_bounded(lines: Callable[[], list[str]]) -> None:
    with guarded_screen():
        in_thread(lambda: [sys.stdout.write("x" * 1000) for _ in range(10)])
    assert [len(line) for line in lines()] == [MAX_LINE_CHARS, MAX_LINE_CHARS]


def test_threads_do_not_mix_their_lines(lines: Callable[[], list[str]]) -> None:
    with guarded_screen():
        in_thread(lambda: sys.stdout.write("half"))
        in_thread(lambda: say("whole"))
    assert lines() == ["whole"]


def test_a_log_that_prints_does_not_log_what_it_prints() -> None:
    with guarded_screen() as screen:
        handler = logging.StreamHandler(sys.stdout)
        logger = logging.getLogger("hermes_trio.agents.hermes.isolation")
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            in_thread(lambda: say("hello"))
        finally:
            logger.removeHandler(handler)
            logger.setLevel(logging.NOTSET)
    assert screen.getvalue() == "hermes-agent printed: hello\n"


def test_a_stream_replaced_by_others_stays() -> None:
    screen, other = io.StringIO(), io.StringIO()
    with redirect_stdout(screen):
        with guard_prints():
            assert sys.stdout.getvalue() == ""  # type: ignore[union-attr]
            sys.stdout = other
        assert sys.stdout is other


def test_our_settings_are_not_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_TRIO_API_KEY", "canary-1")
    monkeypatch.setenv("API_SERVER_KEY", "canary-2")
    monkeypatch.setenv("DATABASE_URL", "canary-3")
    monkeypatch.setenv("HERMES_HOME", "/theirs")
    with hide_settings():
        assert not any("canary" in value for value in os.environ.values())
        assert os.environ["HERMES_HOME"] == "/theirs"
    assert os.environ["HERMES_TRIO_API_KEY"] == "canary-1"
