"""The configuration of MCP servers."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.tools.mcp import HttpServer, ProcessServer, open_servers, read_server, tool_name


def test_both_kinds_of_servers() -> None:
    assert read_server("a", {"command": "x", "args": ["-y"]}) == ProcessServer("x", ("-y",))
    assert read_server("a", {"url": "http://h", "seconds": 5}) == HttpServer(
        "http://h", seconds=5.0
    )


@pytest.mark.parametrize(
    ("name", "table", "said"),
    [
        ("a", {}, "mcp server 'a': give either command or url"),
        ("a", {"command": "x", "url": "y"}, "mcp server 'a': give either command or url"),
        ("a", {"command": 5}, "mcp server 'a': Expected `str`, got `int` - at `$.command`"),
        ("a", {"url": "x", "args": []}, "mcp server 'a': Object contains unknown field `args`"),
        (
            "_a",
            {"url": "x"},
            "mcp: invalid server name '_a': use up to 32 letters, digits, - and _",
        ),
    ],
)
async def test_wrong_tables(name: str, table: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        async with open_servers({name: table}, tmp_path):
            pytest.fail("it opened")
    assert str(caught.value) == said


async def test_no_servers_need_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    async with open_servers({}, tmp_path) as tools:
        assert tools == ()


async def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(
        ConfigurationError,
        match=r"^mcp: the package is missing: pip install '\.\[mcp\]' in a clone",
    ):
        async with open_servers({"a": {"url": "http://h"}}, tmp_path):
            pytest.fail("it opened")


def test_names() -> None:
    assert tool_name("github", "list_issues") == "github__list_issues"
    assert tool_name("a", "b.c") != tool_name("a", "b_c")


@given(st.text(), st.text())
def test_names_are_valid_and_apart(one: str, other: str) -> None:
    first, second = tool_name("server", one), tool_name("server", other)
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", first)
    assert (first == second) == (one == other)
