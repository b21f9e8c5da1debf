"""Settings and hooks of the whole suite."""

from __future__ import annotations

import pytest
import structlog
from hypothesis import HealthCheck, settings
from structlog.typing import EventDict

from tests.support.caches import make_once

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


# Unless configured, structlog draws a traceback with all local values: that takes seconds, and the
# time limits of tests would count them.
_plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
structlog.configure(processors=[_drop_info, *structlog.get_config()["processors"][:-1], _plain])
make_once()


@pytest.hookimpl(trylast=True)  # when all marks are there
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with long tests come first.

    At the end there are only quick ones, which workers share out evenly.
    """
    long = {
        item.path for item in items if any(map(item.get_closest_marker, ("slow", "robustness")))
    }
    items.sort(key=lambda item: item.path not in long)
