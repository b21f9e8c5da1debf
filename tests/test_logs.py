"""Logs: one chain for all loggers, two formats, and nothing secret or forged on any line."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
import trio.testing

from hermes_trio import logs
from hermes_trio.log_tail import LogTail


def mask(text: str) -> str:
    """A redaction that is easy to see."""
    return text.replace("hunter2", "***")


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Leave the process-wide logging as it was."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was written to stderr; nothing may go to stdout."""
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


def entry(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The one JSON line that was written."""
    (line,) = lines(capsys)
    found: dict[str, Any] = json.loads(line)
    return found


def test_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json", mask)
    structlog.get_logger("hermes").info(
        "run ended", run_id="r1", seconds=1.5, tools=3, ok=True, why=None
    )
    found = entry(capsys)
    assert found.pop("timestamp").endswith("Z")
    assert found == {
        "message": "run ended", "level": "info", "logger": "hermes", "run_id": "r1", "seconds": 1.5, "tools": 3,
        "ok": True, "why": None,
    }  # fmt: skip


def test_text_lines_have_no_colours_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "text", mask)
    structlog.get_logger("hermes").warning("slow store", seconds=2)
    (line,) = lines(capsys)
    assert "\x1b" not in line
    for part in ("warning", "slow store", "[hermes]", "seconds=2"):
        assert part in line


@pytest.mark.parametrize("fmt", ["text", "json"])
@pytest.mark.parametrize("name", ["hypercorn.error", "hypercorn.access", "quart.app", "anything"])
def test_standard_loggers_take_the_same_way(
    capsys: pytest.CaptureFixture[str], fmt: str, name: str
) -> None:
    logger = logging.getLogger(name)
    logger.addHandler(logging.StreamHandler())
    try:
        logs.configure("info", fmt, mask)
        if name == "anything":
            logger.handlers.clear()
        logger.info("listening on %s with %s", "127.0.0.1", "hunter2", extra={"port": 8642})
    finally:
        logger.handlers.clear()
    (line,) = lines(capsys)
    for part in ("listening on 127.0.0.1 with ***", name, "info", "8642"):
        assert part in line


@pytest.mark.parametrize("fmt", ["text", "json"])
def test_the_level_holds_for_both(capsys: pytest.CaptureFixture[str], fmt: str) -> None:
    logs.configure("warning", fmt, mask)
    structlog.get_logger("hermes").info("no")
    logging.getLogger("hypercorn.error").info("no")
    structlog.get_logger("hermes").warning("yes")
    logging.getLogger("hypercorn.error").warning("yes")
    assert len(lines(capsys)) == 2


def test_a_second_call_replaces_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    early = structlog.get_logger("hermes")
    logs.configure("info", "text", mask)
    early.info("first")
    logs.configure("debug", "json", mask)
    early.debug("second")
    first, second = lines(capsys)
    assert "first" in first
    assert json.loads(second)["message"] == "second"


def test_handlers_of_others_stay(capsys: pytest.CaptureFixture[str]) -> None:
    theirs = logging.NullHandler()
    logging.getLogger().addHandler(theirs)
    logs.configure("info", "json", mask)
    assert theirs in logging.getLogger().handlers


async def test_context_follows_the_task(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json", mask)

    async def work(run_id: str) -> None:
        structlog.contextvars.bind_contextvars(run_id=run_id)
        await trio.testing.wait_all_tasks_blocked()
        await trio.to_thread.run_sync(logging.getLogger("quart").info, run_id)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work, "one")
        nursery.start_soon(work, "two")
    entries = [json.loads(line) for line in lines(capsys)]
    assert {found["run_id"] for found in entries} == {"one", "two"}
    assert all(found["run_id"] == found["message"] for found in entries)


def test_an_exception_is_one_json_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json", mask)
    try:
        raise ValueError("password hunter2")
    except ValueError:
        structlog.get_logger("hermes").exception("failed")
    found = entry(capsys)
    assert found["level"] == "error"
    assert found["exception"].startswith("Traceback")
    assert found["exception"].endswith("ValueError: password ***")


@pytest.mark.parametrize("fmt", ["text", "json"])
def test_exceptions_of_the_standard_library_are_redacted_too(
    capsys: pytest.CaptureFixture[str], fmt: str
) -> None:
    logs.configure("info", fmt, mask)
    try:
        raise ExceptionGroup("several", [ValueError("password hunter2\x1b[31m")])
    except ExceptionGroup:
        logging.getLogger("hypercorn.error").exception("failed")
    text = "\n".join(lines(capsys))
    assert "password ***" in text
    assert "hunter2" not in text
    assert "\x1b" not in text


@pytest.mark.parametrize("fmt", ["text", "json"])
def test_everything_is_redacted(capsys: pytest.CaptureFixture[str], fmt: str) -> None:
    logs.configure("info", fmt, mask)
    structlog.contextvars.bind_contextvars(bound="hunter2")
    structlog.get_logger("hermes").info(
        "hunter2", text="hunter2", raw=b"hunter2", path=Path("hunter2"), error=ValueError("hunter2"),
        nested={"hunter2": ["hunter2", ("hunter2", {"hunter2"})]},
    )  # fmt: skip
    (line,) = lines(capsys)
    assert line.count("***") == 10
    assert "hunter2" not in line


def test_a_client_cannot_forge_a_text_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "text", mask)
    logging.getLogger("hypercorn.access").info("GET /\r\n2026 [critical] all is lost\x1b[2J\x9b")
    structlog.get_logger("hermes").info("asked", path="/\nfake", nested=["\nfake"])
    first, second = lines(capsys)
    assert r"GET /\r\n2026 [critical] all is lost\x1b[2J\x9b" in first
    assert r"path=/\nfake" in second


def test_a_redaction_that_does_not_work_fails_at_once() -> None:
    def broken(text: str) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        logs.configure("info", "json", broken)


def test_the_redaction_of_the_core_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("hermes_trio.core.redact")
    logs.configure("info", "json")
    structlog.get_logger("hermes").info(
        "called with Authorization: Bearer sk-0123456789abcdef0123456789abcdef"
    )
    assert "0123456789abcdef" not in entry(capsys)["message"]


def test_lines_of_a_worker_have_its_number(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json", worker=3)
    structlog.get_logger("hermes").info("from structlog")
    logging.getLogger("other").warning("from the standard library")
    assert [json.loads(line)["worker"] for line in lines(capsys)] == [3, 3]


def test_lines_of_a_server_without_workers_have_none(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    structlog.get_logger("hermes").info("alone")
    assert "worker" not in json.loads(lines(capsys)[0])


def test_what_is_written_is_the_tail(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tail = LogTail()
    monkeypatch.setattr(logs, "PROCESS_TAIL", tail)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)  # a terminal has colours
    logs.configure("info", "text", mask)
    structlog.get_logger("hermes").warning("the password is hunter2")
    (line,) = tail.read(0)
    assert line.level == "warning"
    assert "the password is ***" in line.text
    assert "\x1b" in lines(capsys)[0]
    assert "\x1b" not in line.text
