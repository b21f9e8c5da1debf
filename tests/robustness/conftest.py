"""The options of the robustness suite, its marks, and its report.

``pytest`` alone runs the short part. ``nox -s robustness`` runs all of it: ``pytest
tests/robustness --full``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.robustness.report import PROPERTY, VIOLATIONS_PROPERTY, CaseCounter, Summary, as_property
from tests.robustness.violations import VIOLATIONS
from tests.support.write_through import offered


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("robustness")
    group.addoption(
        "--robustness-report", default="", help="write the summary to this Markdown file"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("robustness")
    if config.getoption("--full"):
        items.sort(key=_place)
        return
    for item in items:
        if item.get_closest_marker("long_session") is not None:
            item.add_marker(pytest.mark.skip(reason="in the full session only"))


# Tests that take minutes run first, so that no worker ends with one. Each worker gets two tests at the
# beginning; the second test of the first worker should be short, because it waits for a whole soak.
LONGEST_FIRST = (
    "test_clients_that_leave_at_random",
    "test_a_clock_that_jumps",
    "test_kills",
    "test_asked_to_stop_at_random_moments",
    "test_cut_after_every_byte",
    "test_garbage_in_between",
    "test_the_model",
)


def _place(item: pytest.Item) -> int:
    name = getattr(item, "originalname", "") or item.name
    if name in LONGEST_FIRST:
        return LONGEST_FIRST.index(name)
    return len(LONGEST_FIRST) + (
        "test_real" not in item.path.name
    )  # those that wait before those that only work


@pytest.fixture(params=[False, True], ids=["channel", "write-through"])
def write_through(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test twice: with every token on the channel path, and with write-through."""
    with offered(request.param):
        yield


@pytest.fixture
def cases(request: pytest.FixtureRequest) -> Iterator[CaseCounter]:
    """Counts what a test tries, for the report."""
    counts = CaseCounter()
    yield counts
    request.node.user_properties.append(as_property(counts))


@pytest.fixture(autouse=True)
def _book(request: pytest.FixtureRequest) -> Iterator[None]:
    """Pass the counts of the shared checks to the report."""
    VIOLATIONS.take()
    yield
    request.node.user_properties.append((VIOLATIONS_PROPERTY, VIOLATIONS.take()))


_BEGUN = time.monotonic()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    summary = _summary(terminalreporter.stats)
    if not summary.tried:
        return
    summary.seconds = time.monotonic() - _BEGUN
    terminalreporter.section("robustness")
    terminalreporter.write_line("\n".join(summary.lines()))
    if path := config.getoption("--robustness-report", default=""):
        Path(path).write_text(summary.markdown(), "utf-8")


def _summary(stats: dict[str, list[Any]]) -> Summary:
    summary = Summary()
    for outcome, reports in stats.items():
        for report in reports:
            if getattr(report, "nodeid", "").startswith("tests/robustness/"):
                _take(summary, outcome, report)
    return summary


def _take(summary: Summary, outcome: str, report: Any) -> None:
    if outcome in {"passed", "failed", "error"}:
        summary.take(report.nodeid, outcome != "passed")
    if (
        getattr(report, "when", "") == "teardown"
    ):  # the counts are there once the fixture is torn down
        for key, value in report.user_properties:
            if key == PROPERTY:
                summary.take_counts(value)
            if key == VIOLATIONS_PROPERTY:
                summary.take_book(value)
