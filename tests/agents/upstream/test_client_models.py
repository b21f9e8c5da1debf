"""Which model is asked when the settings name none."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from hermes_trio.agents.upstream.client import MODELS_FRESH_SECONDS, _model_ids
from tests.support.scripted_upstream import says
from tests.support.upstream_agent import open_upstream_harness


@pytest.mark.parametrize(
    ("served", "wanted", "asked"),
    [
        (("llama", "qwen"), "hermes-agent", "llama"),
        (("llama", "qwen"), "qwen", "qwen"),
        ((), "hermes-agent", "hermes-agent"),
    ],
)
async def test_a_name_that_the_server_knows(
    served: tuple[str, ...], wanted: str, asked: str
) -> None:
    async with open_upstream_harness(says("Hi"), model="") as harness:
        harness.upstream.models = served
        await harness.turn(model=wanted)
        assert harness.sent[0]["model"] == asked


async def test_the_settings_count(mock_clock: MockClock) -> None:
    async with open_upstream_harness(says("Hi"), model="mine") as harness:
        harness.upstream.models = ("other",)
        await harness.turn(model="qwen")
        assert harness.sent[0]["model"] == "mine"


async def test_it_is_asked_again_after_a_while(mock_clock: MockClock) -> None:
    async with open_upstream_harness(says("a"), says("b"), says("c"), model="") as harness:
        for served, seconds in (
            (("old",), 0.0),
            (("new",), MODELS_FRESH_SECONDS - 1),
            (("new",), 2.0),
        ):
            harness.upstream.models = served
            mock_clock.jump(seconds)
            await harness.turn()
        assert [body["model"] for body in harness.sent] == ["old", "old", "new"]


@pytest.mark.parametrize(
    "odd", [None, [], {}, {"data": 1}, {"data": [1, {}, {"id": 2}, {"id": ""}]}]
)
def test_other_forms_are_no_list(odd: object) -> None:
    assert _model_ids(odd) == ()
