"""Which model is asked when the settings name none."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from hermes_trio.agents.upstream.names import FRESH_SECONDS, _ids
from tests.support.scripted_upstream import says
from tests.support.upstream_agent import playing


@pytest.mark.parametrize(
    ("served", "wanted", "asked"),
    [
        (("llama", "qwen"), "hermes-agent", "llama"),
        (("llama", "qwen"), "qwen", "qwen"),
        ((), "hermes-agent", "hermes-agent"),
    ],
)
async def test_a_name_that_the_server_knows(served: tuple[str, ...], wanted: str, asked: str) -> None:
    async with playing(says("Hi"), model="") as stage:
        stage.upstream.models = served
        await stage.turn(model=wanted)
        assert stage.sent[0]["model"] == asked


async def test_the_settings_count(mock_clock: MockClock) -> None:
    async with playing(says("Hi"), model="mine") as stage:
        stage.upstream.models = ("other",)
        await stage.turn(model="qwen")
        assert stage.sent[0]["model"] == "mine"


async def test_it_is_asked_again_after_a_while(mock_clock: MockClock) -> None:
    async with playing(says("a"), says("b"), says("c"), model="") as stage:
        for served, seconds in ((("old",), 0.0), (("new",), FRESH_SECONDS - 1), (("new",), 2.0)):
            stage.upstream.models = served
            mock_clock.jump(seconds)
            await stage.turn()
        assert [body["model"] for body in stage.sent] == ["old", "old", "new"]


@pytest.mark.parametrize("odd", [None, [], {}, {"data": 1}, {"data": [1, {}, {"id": 2}, {"id": ""}]}])
def test_other_forms_are_no_list(odd: object) -> None:
    assert _ids(odd) == ()
