"""Finding tools by name, and the messages for invalid names and options."""

from __future__ import annotations

import pytest

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.tools.base import tool
from hermes_trio.tools.registry import SHIPPED, find_tools

HERE = __name__


@tool
def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


@tool
def read_file(path: str) -> str:
    """Another one of this name."""
    return path


def not_decorated(text: str) -> str:
    return text


def test_all_that_are_shipped() -> None:
    tools = find_tools(())
    assert [each.name for each in tools] == list(SHIPPED)
    assert all(each.description and each.parameters["type"] == "object" for each in tools)


def test_no_tools() -> None:
    assert find_tools(["none"]) == ()


def test_tools_by_name() -> None:
    first, second = find_tools(["read_file", f"{HERE}:shout"])
    assert (first.name, second) == ("read_file", shout)


def test_each_finder_has_a_terminal_of_its_own() -> None:
    assert find_tools(["terminal"]) != find_tools(["terminal"])


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["nope"], f"no tool 'nope': expected {', '.join(SHIPPED)}, or module:attribute"),
        (["nope:"], f"no tool 'nope:': expected {', '.join(SHIPPED)}, or module:attribute"),
        (["no_such_module:x"], "tool 'no_such_module:x': there is no module 'no_such_module'"),
        ([f"{HERE}:x"], f"tool '{HERE}:x': {HERE}:x: module '{HERE}' has no attribute 'x'"),
        (
            [f"{HERE}:not_decorated"],
            f"{HERE}:not_decorated is function 'not_decorated', not a tool: decorate the function with @tool",
        ),
        (["read_file", f"{HERE}:read_file"], "tools: two tools are named 'read_file'"),
    ],
)
def test_wrong_names(names: list[str], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        find_tools(names)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (5, "options of terminal: expected a table, not an object of type 'int'"),
        ({"speed": 1}, "options of terminal: unknown option 'speed'"),
        ({"seconds": "long"}, "options of terminal: option 'seconds': expected `float`, got `str`"),
    ],
)
def test_wrong_options(table: object, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        find_tools(["terminal"], {"terminal": table, "something": "else"})
    assert str(caught.value) == said
