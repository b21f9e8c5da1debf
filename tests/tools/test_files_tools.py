"""read_file, write_file and patch as tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes_trio.tools.base import Tool, ToolError, ToolUse
from hermes_trio.tools.files import patch, read_file, write_file


@pytest.fixture
def use(tmp_path: Path) -> ToolUse:
    (tmp_path / "work").mkdir()
    (tmp_path / "secret").write_text("secret")
    return ToolUse("call_1", tmp_path / "work")


async def problem(tool: Tool, use: ToolUse, **arguments: Any) -> str:
    with pytest.raises(ToolError) as caught:
        await tool.run(arguments, use)
    return str(caught.value)


async def test_write_read_and_change(use: ToolUse) -> None:
    assert (
        await write_file.run({"path": "a/b.txt", "content": "one\ntwo\n"}, use)
        == "wrote 8 bytes to a/b.txt"
    )
    changed = await patch.run({"path": "a/b.txt", "old_text": "two", "new_text": "2"}, use)
    assert changed == "replaced 1 occurrence in a/b.txt"
    assert await read_file.run({"path": "a/b.txt", "offset": 2}, use) == "2\n"


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "link", "folder/../../secret"])
async def test_nothing_outside_is_touched(use: ToolUse, path: str) -> None:
    (use.workspace / "link").symlink_to("../secret")
    said = f"{path}: outside the workspace"
    assert await problem(read_file, use, path=path) == said
    assert await problem(write_file, use, path=path, content="x") == said
    assert (
        await problem(patch, use, path=path, old_text="s", new_text="x", replace_all=True) == said
    )
    assert (use.workspace.parent / "secret").read_text() == "secret"


class TestPatch:
    async def test_all_occurrences(self, use: ToolUse) -> None:
        (use.workspace / "a").write_text("x y x")
        assert "occurs 2 times" in await problem(patch, use, path="a", old_text="x", new_text="z")
        assert (use.workspace / "a").read_text() == "x y x"
        arguments = {"path": "a", "old_text": "x", "new_text": "z", "replace_all": True}
        assert await patch.run(arguments, use) == "replaced 2 occurrences in a"
        assert (use.workspace / "a").read_text() == "z y z"

    async def test_what_does_not_occur(self, use: ToolUse) -> None:
        (use.workspace / "a").write_text("if x:\n    return  1\n")
        said = await problem(patch, use, path="a", old_text="return 1", new_text="")
        assert (
            said
            == "a: old_text does not occur in the file; line 2 matches if whitespace is ignored"
        )
        assert (
            await problem(patch, use, path="a", old_text="y", new_text="")
            == "a: old_text does not occur in the file"
        )

    async def test_line_ends_and_rights_stay(self, use: ToolUse) -> None:
        path = use.workspace / "a"
        path.write_bytes(b"one\r\ntwo\r\nthree\r\n")
        path.chmod(0o750)
        await patch.run({"path": "a", "old_text": "one\ntwo", "new_text": "1\n2"}, use)
        assert path.read_bytes() == b"1\r\n2\r\nthree\r\n"
        assert path.stat().st_mode & 0o777 == 0o750

    async def test_files_that_are_not_text(self, use: ToolUse) -> None:
        (use.workspace / "a").write_bytes(b"\xff\xfex")
        (use.workspace / "b").write_bytes(b"a\0b")
        (use.workspace / "c").write_bytes(b"x" * 10_000_001)
        wanted = {"old_text": "x", "new_text": "y"}
        assert "can't decode" in await problem(patch, use, path="a", **wanted)
        assert "binary file" in await problem(patch, use, path="b", **wanted)
        assert "larger than" in await problem(patch, use, path="c", **wanted)
        assert "No such file" in await problem(patch, use, path="d", **wanted)
        assert "Is a directory" in await problem(patch, use, path="", **wanted)

    async def test_nothing_to_find(self, use: ToolUse) -> None:
        (use.workspace / "a").write_text("x")
        said = await problem(patch, use, path="a", old_text="", new_text="y")
        assert said == "old_text is empty: use write_file to create a file"
