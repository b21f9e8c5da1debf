"""Finding agents by name, and opening what their turns share."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import define, field
from structlog.testing import capture_logs
from trio.testing import MockClock

from hermes_trio.agent.interface import AgentConfig, AgentFactory
from hermes_trio.agents import demo, synthetic
from hermes_trio.agents.demo import factory
from hermes_trio.agents.registry import (
    CLOSE_SECONDS,
    SHIPPED,
    AgentNotFound,
    find_agent,
    is_provider,
    open_agent,
)
from hermes_trio.core.errors import ConfigurationError

CONFIG = AgentConfig(profile="tester", model="m")
HERE = Path("/nonexistent")
NAMES = ", ".join(SHIPPED)
MODULES = {
    "lookup_good.py": "class Box:\n    def __init__(self, context):\n        pass\n\n    def run(self, turn, emitter):\n        pass\n\n    class Inner:\n        def make(context):\n            return context\n\nnumber = 5\n",
    "lookup_empty.py": "class Empty:\n    def __init__(self, context=None):\n        pass\n\ndef factory(context) -> Empty:\n    return Empty()\n\nclass Bare:\n    def run(self, turn, emitter):\n        pass\n\ndef needy(context, more):\n    return Bare()\n",
    "lookup_broken.py": "raise OSError('first line\\nsecond line')\n",
    "lookup_silent.py": "raise KeyError\n",
    "lookup_exits.py": "import sys\nsys.exit('bye')\n",
    "lookup_needy.py": "import lookup_no_such_library\n",
    "lookup_syntax.py": "def (:\n",
    "lookup_open.py": "class Shared:\n    def __init__(self, context=None):\n        pass\n\n    def run(self, turn, emitter):\n        pass\n\n    def open(self, config, workspace):\n        raise NotImplementedError\n\nprovider = Shared()\n",
    "lookup_pack/__init__.py": "",
    "lookup_pack/inner.py": "factory = print\n",
}


@pytest.fixture(autouse=True)
def _working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "lookup_pack").mkdir()
    for name, source in MODULES.items():
        (tmp_path / name).write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    importlib.invalidate_caches()
    yield
    for name in [name for name in sys.modules if name.startswith("lookup_")]:
        del sys.modules[name]


def test_shipped_agents() -> None:
    assert find_agent("demo") is demo.factory
    assert find_agent("synthetic") is synthetic.factory
    assert is_provider(find_agent("hermes"))


def test_modules_of_the_working_directory() -> None:
    assert getattr(find_agent("lookup_pack.inner:factory"), "__name__", "") == "print"
    assert getattr(find_agent("lookup_good:Box.Inner.make"), "__name__", "") == "make"
    find_agent("lookup_good:Box")
    assert sys.path.count(str(Path.cwd())) == 1


def test_providers_are_found_too() -> None:
    found = find_agent("lookup_open:provider")
    assert is_provider(found)


def test_a_class_is_called_and_never_opened() -> None:
    """It may be an agent that happens to have a method of that name."""
    found = find_agent("lookup_open:Shared")
    assert callable(found)
    assert not is_provider(found)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nobody", f"no agent 'nobody': expected {NAMES}, or module:factory"),
        ("", f"no agent '': expected {NAMES}, or module:factory"),
        (":factory", f"no agent ':factory': expected {NAMES}, or module:factory"),
        ("lookup_good:", f"no agent 'lookup_good:': expected {NAMES}, or module:factory"),
        ("lookup_none:factory", "there is no module 'lookup_none'"),
        ("lookup_pack.none:factory", "there is no module 'lookup_pack.none'"),
        ("lookup_none.inner:factory", "there is no module 'lookup_none'"),
        ("lookup_good:none", "lookup_good:none: module 'lookup_good' has no attribute 'none'"),
        ("lookup_good:Box.none", "lookup_good:Box.none: class 'Box' has no attribute 'none'"),
        (
            "lookup_good:number",
            "lookup_good:number: number is an object of type 'int', which is not callable",
        ),
        (
            "lookup_empty:Bare",
            "lookup_empty:Bare: class 'Bare' cannot be called with the context as its only argument",
        ),
        (
            "lookup_empty:needy",
            "lookup_empty:needy: function 'needy' cannot be called with the context as its only argument",
        ),
        ("lookup_empty:Empty", "lookup_empty:Empty: the agent class 'Empty' has no method 'run'"),
        (
            "lookup_empty:factory",
            "lookup_empty:factory: the agent class 'Empty' has no method 'run'",
        ),
        (
            "lookup_broken:factory",
            "module 'lookup_broken' cannot be imported: OSError: first line second line",
        ),
        ("lookup_silent:factory", "module 'lookup_silent' cannot be imported: KeyError"),
        ("lookup_exits:factory", "module 'lookup_exits' cannot be imported: SystemExit: bye"),
        (
            "lookup_needy:factory",
            "module 'lookup_needy' cannot be imported: ModuleNotFoundError: No module named 'lookup_no_such_library'",
        ),
    ],
)
def test_the_message_names_what_is_missing(name: str, said: str) -> None:
    with pytest.raises(AgentNotFound) as caught:
        find_agent(name)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("name", "cause"), [("broken", OSError), ("syntax", SyntaxError), ("exits", SystemExit)]
)
def test_the_cause_is_kept(name: str, cause: type[BaseException]) -> None:
    with pytest.raises(AgentNotFound) as caught:
        find_agent(f"lookup_{name}:factory")
    assert isinstance(caught.value.__cause__, cause)
    assert "\n" not in str(caught.value)


def test_a_deleted_working_directory_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert find_agent("demo") is demo.factory
    with pytest.raises(AgentNotFound, match="no module 'lookup_none'"):
        find_agent("lookup_none:factory")


def test_shipped_agents_are_imported_when_asked_for() -> None:
    root = Path(demo.__file__).parents[2]
    code = "import sys, hermes_trio.agents.registry; print([name for name in sys.modules if name.endswith(('demo', 'synthetic'))])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@define(eq=False)
class Shared:
    """A provider that records how it is used."""

    refuses: str = ""
    close_seconds: float = 0.0
    notes: list[Any] = field(factory=list)

    @asynccontextmanager
    async def open(self, config: AgentConfig, workspace: Path) -> AsyncIterator[AgentFactory]:
        if self.refuses:
            raise ConfigurationError(self.refuses)
        self.notes.append((config, workspace))
        try:
            yield factory
        finally:
            await trio.sleep(self.close_seconds)  # noqa: ASYNC102 - to see who bounds it
            self.notes.append("closed")


async def test_a_factory_needs_no_opening() -> None:
    async with open_agent(factory, CONFIG, HERE) as opened:
        assert opened is factory


async def test_a_provider_gets_its_settings_and_is_closed_once() -> None:
    shared = Shared()
    async with open_agent(shared, CONFIG, HERE) as opened:
        assert opened is factory
        assert shared.notes == [(CONFIG, HERE)]
    assert shared.notes == [(CONFIG, HERE), "closed"]


async def test_a_provider_may_refuse() -> None:
    with pytest.raises(ConfigurationError, match="no model"):
        async with open_agent(Shared(refuses="no model"), CONFIG, HERE):
            pytest.fail("it was opened")


async def test_what_the_block_raises_comes_out_and_the_provider_is_closed() -> None:
    shared = Shared()
    with pytest.raises(KeyError):
        async with open_agent(shared, CONFIG, HERE):
            raise KeyError
    assert shared.notes[-1] == "closed"


async def test_a_provider_that_does_not_close_is_left(autojump_clock: MockClock) -> None:
    shared = Shared(close_seconds=1000.0)
    begun = trio.current_time()
    with capture_logs() as logs:
        async with open_agent(shared, CONFIG, HERE):
            await trio.sleep(100.0)
    assert trio.current_time() - begun == 100.0 + CLOSE_SECONDS
    assert [(line["event"], line["profile"]) for line in logs] == [
        ("agent did not close in time", "tester")
    ]


async def test_a_provider_that_closes_slowly_but_in_time(autojump_clock: MockClock) -> None:
    shared = Shared(close_seconds=CLOSE_SECONDS / 2)
    async with open_agent(shared, CONFIG, HERE):
        pass
    assert shared.notes[-1] == "closed"
