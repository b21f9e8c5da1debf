"""What a model server cannot do is learned for one model, and forgotten after a while."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hermes_trio.agents.upstream.client import (
    MAX_QUIRKY_MODELS,
    QUIRKS_FRESH_SECONDS,
    LearnedQuirks,
)
from hermes_trio.agents.upstream.wire import ServerQuirks
from hermes_trio.core.events import Verdict
from tests.support.scripted_upstream import (
    ReceivedRequest,
    Reply,
    Script,
    Stall,
    Step,
    refusal,
    says,
    whole,
)
from tests.support.upstream_agent import UpstreamHarness, open_upstream_harness

NO_STREAM = [refusal(400, "Streaming is not supported")]
INITIAL = ServerQuirks()
UNSTREAMED = ServerQuirks(supports_streaming=False)


async def ask(harness: UpstreamHarness, *models: str, **options: Any) -> None:
    """A turn with each of these models, which all succeed."""
    harness.upstream.models = ("a", "b")
    for model in models:
        result = await harness.turn(model=model, options=options)
        assert result.verdict is Verdict.COMPLETED, result.error


def asked(harness: UpstreamHarness, name: str) -> list[tuple[str, Any]]:
    """The model of each request, and one field of it."""
    return [(body["model"], body.get(name)) for body in harness.sent]


@pytest.mark.parametrize(
    "first", [[NO_STREAM, [whole("A")]], [[whole("A")]]], ids=["refused", "answered as a whole"]
)
async def test_one_model_that_cannot_stream_says_nothing_about_another(
    first: list[Script],
) -> None:
    scripts = [*first, says("B"), [whole("A")], says("B")]
    async with open_upstream_harness(*scripts, model="") as harness:
        await ask(harness, "a", "b", "a", "b")
    assert asked(harness, "stream")[-4:] == [
        ("a", len(first) == 1),
        ("b", True),
        ("a", False),
        ("b", True),
    ]


async def test_a_limit_under_another_name_is_that_of_one_model() -> None:
    def strict(request: ReceivedRequest) -> list[Step]:
        """Two backends behind one server, each of which knows only one of the names."""
        body = request.json
        known = "max_completion_tokens" if body["model"] == "a" else "max_tokens"
        if known in body:
            return list(says("Hello"))
        return [refusal(400, f"Use '{known}': max_tokens and max_completion_tokens differ")]

    async with open_upstream_harness(*[strict] * 5, model="") as harness:
        await ask(harness, "a", "b", "a", "b", max_tokens=9)
    assert asked(harness, "max_tokens") == [
        ("a", 9),
        ("a", None),
        ("b", 9),
        ("a", None),
        ("b", 9),
    ]


async def test_usage_is_still_requested_from_other_models() -> None:
    no_usage = [refusal(400, "Unknown parameter: stream_options")]
    scripts: list[Script] = [no_usage, says("A"), says("B"), says("A")]
    async with open_upstream_harness(*scripts, model="") as harness:
        await ask(harness, "a", "b", "a")
    wanted = {"include_usage": True}
    assert asked(harness, "stream_options") == [
        ("a", wanted),
        ("a", None),
        ("b", wanted),
        ("a", None),
    ]


async def test_streams_are_requested_again_after_a_while(mock_clock: MockClock) -> None:
    scripts: list[Script] = [
        *(NO_STREAM, [whole("1")]),
        [whole("2")],
        *(NO_STREAM, [whole("3")]),
        [whole("4")],
        *(says("5"), says("6")),
    ]
    async with open_upstream_harness(*scripts) as harness:
        for seconds in (0.0, QUIRKS_FRESH_SECONDS - 1, 2.0, QUIRKS_FRESH_SECONDS - 1, 2.0, 0.0):
            mock_clock.jump(seconds)
            await harness.turn()
    assert harness.emitter.said == "123456"
    assert [sent["stream"] for sent in harness.sent] == [
        *(True, False),
        False,  # just before the time is over
        *(True, False),
        False,
        *(True, True),  # the server has learned to stream
    ]


async def test_use_does_not_put_off_the_next_trial(mock_clock: MockClock) -> None:
    scripts: list[Script] = [NO_STREAM, [whole("1")], [whole("2")], [whole("3")], says("4")]
    async with open_upstream_harness(*scripts) as harness:
        for _ in range(4):
            await harness.turn()
            mock_clock.jump(QUIRKS_FRESH_SECONDS / 2.5)
    assert [sent["stream"] for sent in harness.sent] == [True, False, False, False, True]


async def test_a_trial_leaves_the_time_that_a_whole_answer_takes(autojump_clock: Any) -> None:
    """Else a server that ignores `stream` would fail a long turn every few minutes."""
    scripts: list[Script] = [[whole("1")], [Stall()]]
    async with open_upstream_harness(*scripts, read=5.0, retries=0) as harness:
        await harness.turn()
        autojump_clock.jump(QUIRKS_FRESH_SECONDS)
        assert "was silent for 50 s" in (await harness.turn()).error


async def test_the_setting_is_never_tried_again(mock_clock: MockClock) -> None:
    scripts: list[Script] = [[whole("1")], [whole("2")]]
    async with open_upstream_harness(*scripts, options={"stream": False}) as harness:
        await harness.turn()
        mock_clock.jump(2 * QUIRKS_FRESH_SECONDS)
        await harness.turn()
    assert [sent["stream"] for sent in harness.sent] == [False, False]


async def test_a_failure_teaches_nothing_about_the_next_turn() -> None:
    error = Reply(200, {"error": {"message": "no such adapter", "code": 400}})
    async with open_upstream_harness([error], says("Hello")) as harness:
        assert (await harness.turn()).verdict is Verdict.FAILED
        await harness.turn()
    assert [sent["stream"] for sent in harness.sent] == [True, True]


async def test_the_number_of_models_is_bounded() -> None:
    quirks = LearnedQuirks(INITIAL)
    for number in range(MAX_QUIRKY_MODELS + 1):
        quirks.confirm(f"ordinary-{number}", INITIAL)
        quirks.confirm(f"odd-{number}", UNSTREAMED)
    assert quirks.of("odd-0") == INITIAL
    assert quirks.of("odd-1") == quirks.of(f"odd-{MAX_QUIRKY_MODELS}") == UNSTREAMED
    assert len(quirks._known) == MAX_QUIRKY_MODELS


async def test_a_trial_that_succeeds_is_the_end_of_it(autojump_clock: Any) -> None:
    quirks = LearnedQuirks(INITIAL)
    quirks.confirm("m", UNSTREAMED)
    await trio.sleep(QUIRKS_FRESH_SECONDS)
    assert quirks.of("m") == ServerQuirks(is_retrial=True)
    quirks.confirm("m", quirks.of("m"))
    assert quirks.of("m") == INITIAL
    assert not quirks._known
