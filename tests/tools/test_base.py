"""Functions as tools: their schema, and how arguments are validated."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Literal

import pytest
import trio
import trio.testing
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_trio.tools.base import (
    InvalidArguments,
    Tool,
    ToolError,
    ToolUse,
    approval_pattern,
    read_signature,
    tool,
)

USE = ToolUse("call_1", Path("/nowhere"))


@frozen
class Point:
    x: int
    y: int = 0


@tool
async def weather(city: str, days: int = 1, unit: Literal["C", "F"] = "C", *, use: ToolUse) -> str:
    """Tell the weather of a city.

    It is always the same.

    Args:
        city: where. With the country,
            if need be.
        days: how many to look ahead.

    Raises:
        ToolError: it is on the moon.
    """
    if city == "moon":
        raise ToolError("there is no weather on the moon")
    await use.output(f"{use.call_id} looks")
    return f"{city}: rain, {days} days, 20 {unit}"


@tool
def where(points: list[Point], scale: float = 1.0, label: str | None = None) -> dict[str, object]:
    return {"sum": sum(point.x + point.y for point in points) * scale, "label": label}


def test_schema_and_description() -> None:
    assert (weather.name, weather.description) == (
        "weather",
        "Tell the weather of a city.\n\nIt is always the same.",
    )
    assert weather.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "where. With the country, if need be."},
            "days": {"type": "integer", "description": "how many to look ahead.", "default": 1},
            "unit": {"enum": ["C", "F"], "default": "C"},
        },
        "required": ["city"],
        "additionalProperties": False,
    }


def test_schemas_of_nested_types() -> None:
    assert where.description == ""
    assert where.parameters["properties"]["points"] == {
        "type": "array",
        "items": {"$ref": "#/$defs/Point"},
    }
    assert where.parameters["$defs"]["Point"]["required"] == ["x"]


async def test_a_call() -> None:
    heard: list[str] = []

    async def listen(text: str) -> None:
        heard.append(text)

    use = ToolUse("call_7", Path("/nowhere"), output=listen)
    assert await weather.run({"city": "Ghent", "days": "3"}, use) == "Ghent: rain, 3 days, 20 C"
    assert heard == ["call_7 looks"]


async def test_results_that_are_no_text_become_json() -> None:
    assert (
        await where.run({"points": [{"x": 1}, {"x": 2, "y": 3}]}, USE) == '{"sum":6.0,"label":null}'
    )
    assert await tool(nothing).run({}, USE) == ""
    assert await tool(path).run({}, USE) == '["/a"]'


def nothing() -> None:
    """Do nothing."""


def path() -> list[Path]:
    """Name a path."""
    return [Path("/a")]


@pytest.mark.parametrize(
    ("called", "sent", "said"),
    [
        (weather, {}, "missing argument 'city'"),
        (weather, {"city": "A", "country": "B"}, "unknown argument 'country'"),
        (weather, {"city": "A", "use": "x"}, "unknown argument 'use'"),
        (weather, {"city": 5}, "argument 'city': expected `str`, got `int`"),
        (weather, {"city": "A", "days": "many"}, "argument 'days': expected `int`, got `str`"),
        (weather, {"city": "A", "unit": "K"}, "argument 'unit': invalid enum value 'K'"),
        (
            where,
            {"points": [{"x": 1}, {"y": 1}]},
            "argument 'points[1]': object missing required field `x`",
        ),
        (where, {"points": None}, "argument 'points': expected `array`, got `null`"),
        (weather, {"city": "moon"}, "there is no weather on the moon"),
    ],
)
async def test_invalid_arguments_are_named(called: Tool, sent: dict[str, Any], said: str) -> None:
    with pytest.raises(ToolError) as caught:
        await called.run(sent, USE)
    assert str(caught.value) == said


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


def sample(city: str, days: int = 1, points: list[Point] | None = None) -> None:
    """Take some things."""


SAMPLE = read_signature(sample, ToolUse)


@settings(max_examples=50)
@given(
    sent=st.dictionaries(st.sampled_from(["city", "days", "points"]) | st.text(max_size=3), JSON)
)
def test_what_is_sent_fits_or_is_explained(sent: dict[str, Any]) -> None:
    try:
        assert SAMPLE.arguments(sent).keys() == {"city", "days", "points"}
    except InvalidArguments as error:
        assert "argument" in str(error)


async def test_plain_functions_run_in_threads_and_may_speak() -> None:
    heard: list[str] = []

    async def listen(text: str) -> None:
        heard.append(text)

    def look(use: ToolUse) -> str:
        trio.from_thread.run(use.output, "looking")
        return threading.current_thread().name

    use = ToolUse("call_1", Path("/nowhere"), output=listen)
    assert (
        await Tool("look", "", {}, tool(look).run).run({}, use) != threading.current_thread().name
    )
    assert heard == ["looking"]


async def test_a_cancelled_call_leaves_its_thread() -> None:
    began, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        may_end.wait()
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tool(hang).run, {}, USE)
        await trio.to_thread.run_sync(began.wait)
        nursery.cancel_scope.cancel()
    assert not ended.is_set()
    may_end.set()
    await trio.to_thread.run_sync(ended.wait)


async def test_without_a_user_approval_is_denied() -> None:
    assert not await USE.ask("rm -rf /")
    await USE.output("nobody listens")


async def test_questions_reach_the_judge() -> None:
    async def judge(
        command: str, description: str, patterns: tuple[str, ...], allow_permanent: bool
    ) -> bool:
        asked = (command, description, patterns, allow_permanent)
        return asked == ("rm x", "deletes", ("delete",), False)

    use = ToolUse("call_1", Path("/nowhere"), ask=judge)
    assert await use.ask("rm x", "deletes", ("delete",), allow_permanent=False)
    assert not await use.ask("rm x")


def test_approvals_are_remembered_by_one_action() -> None:
    assert approval_pattern("terminal", "make test") == "terminal: make test"
    long = [approval_pattern("terminal", "x" * 1000 + end) for end in "ab"]
    assert long[0] != long[1]
    assert all(len(each) < 200 for each in long)
    secret = approval_pattern(
        "terminal", "curl -H 'Authorization: Bearer sk-abcdefghijklmnopqrstuv'"
    )
    assert "abcdefghijklmnop" not in secret
    assert approval_pattern("terminal", "\ud800" * 300)


def test_functions_that_cannot_be_tools() -> None:
    def untyped(city) -> str:  # type: ignore[no-untyped-def]
        return str(city)

    def starred(*cities: str) -> str:
        return str(cities)

    def strange(city: threading.Event) -> str:
        return str(city)

    for function, said in (
        (untyped, "'city' needs a type"),
        (starred, "named parameters"),
        (strange, "Event"),
    ):
        with pytest.raises(TypeError, match=said):
            tool(function)
