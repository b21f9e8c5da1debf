"""Names of agents, and what is said of the wrong ones."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_trio.agents import demo, synthetic
from hermes_trio.agents.lookup import SHIPPED, AgentNotFound, find_agent, is_provider

NAMES = ", ".join(SHIPPED)
MODULES = {
    "lookup_good.py": "class Box:\n    class Inner:\n        def make(context):\n            return context\n\nnumber = 5\n",
    "lookup_broken.py": "raise OSError('first line\\nsecond line')\n",
    "lookup_silent.py": "raise KeyError\n",
    "lookup_exits.py": "import sys\nsys.exit('bye')\n",
    "lookup_needy.py": "import lookup_no_such_library\n",
    "lookup_syntax.py": "def (:\n",
    "lookup_open.py": "class Shared:\n    def open(self, config, workspace):\n        raise NotImplementedError\n\nprovider = Shared()\n",
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
        ("nobody", f"no agent 'nobody': there are {NAMES}, or give module:factory"),
        ("", f"no agent '': there are {NAMES}, or give module:factory"),
        (":factory", f"no agent ':factory': there are {NAMES}, or give module:factory"),
        ("lookup_good:", f"no agent 'lookup_good:': there are {NAMES}, or give module:factory"),
        ("lookup_none:factory", "there is no module 'lookup_none'"),
        ("lookup_pack.none:factory", "there is no module 'lookup_pack.none'"),
        ("lookup_none.inner:factory", "there is no module 'lookup_none'"),
        ("lookup_good:none", "lookup_good:none: module 'lookup_good' has no attribute 'none'"),
        ("lookup_good:Box.none", "lookup_good:Box.none: class 'Box' has no attribute 'none'"),
        (
            "lookup_good:number",
            "lookup_good:number: number is an object of type 'int', not something to call",
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
def test_what_is_missing_is_named(name: str, said: str) -> None:
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


def test_a_deleted_working_directory_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert find_agent("demo") is demo.factory
    with pytest.raises(AgentNotFound, match="no module 'lookup_none'"):
        find_agent("lookup_none:factory")


def test_shipped_agents_are_imported_when_asked_for() -> None:
    root = Path(demo.__file__).parents[2]
    code = "import sys, hermes_trio.agents.lookup; print([name for name in sys.modules if name.endswith(('demo', 'synthetic'))])"
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
