"""Searching by name and content: bounded in results and time, and confined to the workspace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes_trio.tools import search
from hermes_trio.tools.base import ToolError, ToolUse
from hermes_trio.tools.search import search_files
from tests.support.processes import TIMEOUT, children


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    processes = children()
    yield
    assert not children() - processes


@pytest.fixture
def use(tmp_path: Path) -> ToolUse:
    work = tmp_path / "work"
    for path, text in {
        "a.py": "import os\nx = 1\n", "src/b.py": "import re\n", "src/c.txt": "import nothing\n",
        ".git/config": "import git\n", "node_modules/x.py": "import node\n", "long.txt": "y" * 1000,
    }.items():  # fmt: skip
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(text)
    (work / "binary").write_bytes(b"import\0")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/s.py").write_text("import secret\n")
    (work / "link.py").symlink_to("../secret/s.py")
    (work / "folder").symlink_to("../secret")
    (work / "inner.py").symlink_to("src/b.py")
    return ToolUse("call_1", work)


async def found(use: ToolUse, **arguments: Any) -> list[str]:
    return (await search_files.run(arguments, use)).splitlines()


async def test_by_content(use: ToolUse) -> None:
    assert await found(use, pattern=r"^import \w+") == [
        "a.py:1: import os", "inner.py:1: import re", "src/b.py:1: import re", "src/c.txt:1: import nothing",
    ]  # fmt: skip
    assert await found(use, pattern="import", path="src", names="*.txt") == [
        "src/c.txt:1: import nothing"
    ]
    assert await found(use, pattern="import", path="a.py") == ["a.py:1: import os"]
    assert await found(use, pattern="nowhere") == ["no matches"]


async def test_by_name(use: ToolUse) -> None:
    assert await found(use, pattern="*.py", target="name") == ["a.py", "inner.py", "src/b.py"]
    assert await found(use, pattern="src/*", target="name") == ["src/b.py", "src/c.txt"]
    assert await found(use, pattern="**/b.py", target="name") == ["src/b.py"]
    assert await found(use, pattern="rc/c", target="name") == ["src/c.txt"]


async def test_results_are_bounded(use: ToolUse) -> None:
    assert await found(use, pattern="import", limit=2) == [
        "a.py:1: import os", "inner.py:1: import re", "[more than 2 results]",
    ]  # fmt: skip
    [line] = await found(use, pattern="yy")
    assert line == f"long.txt:1: {'y' * 300}…"


@pytest.mark.parametrize("path", ["..", "/etc", "folder", "../secret/s.py"])
async def test_nothing_outside_is_searched(use: ToolUse, path: str) -> None:
    with pytest.raises(ToolError, match="outside the workspace"):
        await found(use, pattern="import", path=path)


async def test_invalid_patterns(use: ToolUse) -> None:
    with pytest.raises(ToolError, match=r"argument 'pattern': .*unterminated"):
        await found(use, pattern="(a")
    with pytest.raises(ToolError, match="No such file"):
        await found(use, pattern="a", path="none")


async def test_a_slow_pattern_is_stopped(use: ToolUse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SEARCH_SECONDS", 0.5)
    (use.workspace / "z").write_text("a" * 5000 + "b")
    with trio.fail_after(TIMEOUT), pytest.raises(ToolError, match="simpler pattern"):
        await found(use, pattern="(a+)+$", path="z")


async def test_a_cancelled_search_leaves_nothing(use: ToolUse) -> None:
    (use.workspace / "z").write_text("a" * 5000 + "b")
    with trio.move_on_after(0.2) as scope:
        await found(use, pattern="(a+)+$", path="z")
    assert scope.cancelled_caught
