"""Servers for tests: one that modules share, or one with settings of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.server_process import LaunchOptions, ServerProcess, serving

AGENTS = "tests.e2e.interruptible_agent:factory"
Launch = Callable[..., ServerProcess]
Measured = Callable[[str, object], None]


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> Measured:
    """Record a figure of a test; ``--junit-xml`` shows them all."""

    def note(name: str, value: object) -> None:
        request.node.user_properties.append((name, value))

    return note


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The demo agent, and some for tests, behind the defaults.

    Tests that use it belong to the group e2e-shared.
    """
    plan = LaunchOptions(
        tmp_path_factory.mktemp("server"), ("--agent", AGENTS), {"drain_seconds": 1}
    )
    with serving(plan, expected="refused a key") as running:
        yield running


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Starts a server with flags and settings; it ends, and must end well, after the test."""
    with ExitStack() as stack:

        def start(*flags: str, expected: str = "", **settings: object) -> ServerProcess:
            return stack.enter_context(
                serving(LaunchOptions(tmp_path, flags, settings), expected=expected)
            )

        yield start
