from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from attrs import define, field

from hermes_trio.agents.hermes.isolation import separate_logs


class RecordingHandler(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@define
class Root:
    """The root logger with our handler, and one that Hermes hangs on it."""

    ours: RecordingHandler = field(factory=RecordingHandler)
    theirs: RecordingHandler = field(factory=RecordingHandler)

    def hermes_sets_up(self) -> None:
        logging.getLogger().addHandler(self.theirs)
        logging.getLogger().setLevel(logging.INFO)


@pytest.fixture
def root() -> Iterator[Root]:
    root, logger = Root(), logging.getLogger()
    handlers, level = logger.handlers, logger.level
    logger.handlers = [root.ours]
    logger.setLevel(logging.INFO)
    yield root
    logger.handlers = handlers
    logger.setLevel(level)


def chatter() -> None:
    for name in ("hermes_trio.web", "run_agent", "tools.registry", "somebody.else"):
        logger = logging.getLogger(name)
        logger.debug("%s debug", name)
        logger.info("%s info", name)
        logger.warning("%s warning", name)
        logger.error("%s error", name)


def test_each_log_has_its_own_lines(root: Root) -> None:
    with separate_logs() as settle:
        root.hermes_sets_up()
        settle()
        chatter()
    assert [line for line in root.ours.lines if "run_agent" in line] == [
        "run_agent warning",
        "run_agent error",
    ]
    assert "hermes_trio.web info" in root.ours.lines
    assert "somebody.else info" in root.ours.lines
    assert not any("hermes_trio" in line for line in root.theirs.lines)
    assert "tools.registry info" in root.theirs.lines


def test_warnings_at_the_start_are_for_its_own_files(root: Root) -> None:
    with separate_logs():
        chatter()
    assert [line for line in root.ours.lines if "tools" in line] == ["tools.registry error"]


def test_a_level_that_hermes_lowers_still_holds_for_us(root: Root) -> None:
    logging.getLogger().setLevel(logging.ERROR)
    with separate_logs() as settle:
        root.hermes_sets_up()
        settle()
        chatter()
    assert all(line.endswith("error") for line in root.ours.lines)
    assert logging.getLogger().level == logging.ERROR


def test_debug_level_shows_everything(root: Root) -> None:
    logging.getLogger().setLevel(logging.DEBUG)
    with separate_logs() as settle:
        settle()
        chatter()
    assert "run_agent debug" in root.ours.lines


def test_two_profiles_share_the_files_of_hermes(root: Root) -> None:
    with separate_logs() as settle:
        root.hermes_sets_up()
        settle()
        with separate_logs() as settle_again:
            settle_again()
            chatter()
    assert "run_agent info" in root.theirs.lines
    assert root.ours.filters == []
