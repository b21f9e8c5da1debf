"""Settings and hooks of the whole suite."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import TextIO

import pytest
import structlog
from hypothesis import HealthCheck, settings
from structlog.typing import EventDict, ExcInfo

from tests.support.caches import make_once
from tests.support.postgres import PostgresServer, run_postgres

# Helpers of the store tests that assert, and that other tests import, too.
pytest.register_assert_rewrite("tests.stores")

# Time limits of single examples say more about a busy machine than about the code.
settings.register_profile(
    "default-without-deadlines", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("default-without-deadlines")


def _drop_info(_logger: object, method: str, event: EventDict) -> EventDict:
    """Drop the lines of every request and every run.

    Tests of log lines capture them before this.
    """
    if method in {"debug", "info"}:
        raise structlog.DropEvent
    return event


def _write_last_line(out: TextIO, error: ExcInfo) -> None:
    """Write what was raised without its traceback.

    Some suites make agents fail many thousand times, and would spend most of their time on
    tracebacks that nobody reads.
    """
    out.writelines(traceback.format_exception_only(error[1]))


_brief = structlog.dev.ConsoleRenderer(exception_formatter=_write_last_line)
structlog.configure(processors=[_drop_info, *structlog.get_config()["processors"][:-1], _brief])
make_once()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full", action="store_true", help="the full counts and times of the long suites"
    )


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether the full counts are wanted."""
    return bool(request.config.getoption("--full"))


@pytest.hookimpl(trylast=True)  # when all marks are there
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with long tests come first.

    At the end there are only quick ones, which workers share out evenly.
    """
    long = {
        item.path for item in items if any(map(item.get_closest_marker, ("slow", "robustness")))
    }
    items.sort(key=lambda item: item.path not in long)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server for all tests of this process."""
    with run_postgres() as server:
        yield server
