"""A Hermes home, created before any of its modules is imported, and a scripted model server.

These tests need the package: run them with ``nox -s hermes``.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.hermes.scripted_model import ScriptedAnswer, Upstream, upstream

IS_INSTALLED = importlib.util.find_spec("run_agent") is not None
collect_ignore_glob = [] if IS_INSTALLED else ["test_*.py"]

# Nothing is downloaded, and nobody but the test decides about a command.
CONFIGURATION = """\
security:
  tirith_enabled: false
approvals:
  mode: manual
  timeout: 20
agent:
  max_turns: 12
platform_toolsets:
  api_server: [terminal, file]
"""

if IS_INSTALLED:
    HOME = Path(tempfile.mkdtemp(prefix="hermes-home-"))
    atexit.register(shutil.rmtree, HOME, ignore_errors=True)
    (HOME / "config.yaml").write_text(CONFIGURATION)
    os.environ["HERMES_HOME"] = str(HOME)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Warnings of the package are not ours to repair."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture(scope="session")
def server() -> Iterator[Upstream]:
    """The model server, after a first turn, which imports hundreds of modules."""
    from tests.hermes.harness import one_turn  # noqa: PLC0415 - imports what may not be there

    with upstream() as server:
        server.play(ScriptedAnswer(["warm"]))
        trio.run(one_turn, server)
        yield server


@pytest.fixture
def model(server: Upstream) -> Upstream:
    """The same with an empty script."""
    server.play()
    return server


@pytest.fixture
def home() -> Path:
    """The home of Hermes."""
    return HOME
