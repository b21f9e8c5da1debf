"""Every way out of a response.

The right status, the right reason, and the wire says what the store says.
"""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.events import Reasoning, Text, ToolCompleted, ToolOutput, ToolStarted
from hermes_trio.core.outcome import Reason
from hermes_trio.runs.disconnects import DETACH
from hermes_trio.runs.tracker import RunLimits
from hermes_trio.web.state import WebOptions
from tests.support.asgi import real_timeout
from tests.support.fakes import AppHarness, Pause, ScriptedAgentFactory, Step
from tests.support.responses_api import (
    RESPONSES,
    as_text,
    created,
    final,
    get,
    idle_harness,
    reason_of,
    say,
    stream,
    text_of,
    until_ended,
)

GONE = ("incomplete", "client_disconnected")
POLICY = "X-Hermes-On-Disconnect"
TURN: list[Step] = [
    Reasoning("hm"),
    Text("One "),
    ToolStarted("c", "terminal", {"command": "make"}),
    ToolOutput("c", "half"),
    ToolCompleted("c", "whole"),
    Text("Done."),
]
SAID = ["", "One ", "One ", "One ", "One ", "One Done."]


async def the_response(harness: AppHarness) -> dict[str, Any]:
    """The only response there is, as it is stored."""
    [turn] = harness.agents.turns
    return await get(harness, turn.run_id)


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
@pytest.mark.parametrize("body", [say, stream])
@pytest.mark.parametrize("steps", range(1, len(TURN) + 1))
async def test_leaving_after_every_step(steps: int, body: Any, is_async: bool) -> None:
    pause = Pause()
    async with idle_harness(
        ScriptedAgentFactory([*TURN[:steps], pause, *TURN[steps:]], "Done.", is_async)
    ) as harness:
        async with harness.client.post(RESPONSES, body()) as exchange:
            await pause.wait_reached()
            exchange.disconnect()
            await exchange.end()
        await harness.until_idle()
        shown = await the_response(harness)
        assert reason_of(shown) == GONE
        assert harness.ends == [GONE]
        assert text_of(shown) == SAID[steps - 1]
        kinds = [item["type"] for item in shown["output"]]
        assert kinds.count("function_call") == kinds.count("function_call_output") == (steps > 2)
        assert harness.agents.interrupts == ([] if is_async else ["client_disconnected"])


@pytest.mark.parametrize("body", [say, stream])
async def test_leaving_while_the_agent_is_made(body: Any) -> None:
    factory_pause = Pause()
    async with idle_harness(
        ScriptedAgentFactory([Text("never")], factory_pause=factory_pause)
    ) as harness:
        async with harness.client.post(RESPONSES, body()) as exchange:
            await factory_pause.wait_reached()
            exchange.disconnect()
            await exchange.end()
            await wait_all_tasks_blocked()
            factory_pause.go()
        await harness.until_idle()
        shown = await the_response(harness)
        assert (reason_of(shown), shown["output"]) == (GONE, [])
        assert harness.agents.exits == []


@pytest.mark.parametrize("body", [say, stream])
async def test_leaving_before_the_body_is_complete(body: Any) -> None:
    async with idle_harness() as harness:
        async with harness.client.open("POST", RESPONSES, [b'{"input": '], is_whole=False):
            await wait_all_tasks_blocked()
            assert harness.state.admission.in_use == 0
        assert harness.is_idle
        assert harness.ends == []


async def test_leaving_before_the_first_frame() -> None:
    pause = Pause()
    async with idle_harness(ScriptedAgentFactory([pause, Text("Hi")], is_async=True)) as harness:
        async with harness.client.post(RESPONSES, stream()) as exchange:
            exchange.stall()
            await pause.wait_reached()
            exchange.disconnect()
            await exchange.end()
        assert exchange.raw == b""
        await until_ended(harness)
        assert reason_of(await the_response(harness)) == GONE


async def test_leaving_after_the_last_frame() -> None:
    async with idle_harness() as harness:
        async with harness.client.post(RESPONSES, stream()) as exchange:
            await exchange.frame_where(type="response.completed")
            exchange.disconnect()
        await until_ended(harness)
        assert (await the_response(harness))["status"] == "completed"


async def test_leaving_when_the_answer_waits_to_be_sent() -> None:
    pause = Pause()
    async with idle_harness(ScriptedAgentFactory([Text("All"), pause], is_async=True)) as harness:
        async with harness.client.post(RESPONSES, stream()) as exchange:
            await pause.wait_reached()
            await wait_all_tasks_blocked()
            exchange.stall()
            pause.go()
            await until_ended(harness)
        assert harness.ends == [("completed", "")]
        assert text_of(await the_response(harness)) == "All"


async def told_and_stored(harness: AppHarness, pause: Pause, act: Any) -> dict[str, Any]:
    """End a run from outside while its client reads on: what it hears is what is stored."""
    async with harness.client.post(RESPONSES, stream()) as exchange:
        response_id = await created(exchange)
        await pause.wait_reached()
        await wait_all_tasks_blocked()
        await act(response_id)
        told = final(await exchange.end())
    assert as_text(told) == await get(harness, response_id)
    return told


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
async def test_a_cancel(is_async: bool) -> None:
    pause = Pause()
    async with idle_harness(ScriptedAgentFactory([*TURN[:4], pause], None, is_async)) as harness:

        async def cancel(response_id: str) -> None:
            answer = await harness.client.get(f"{RESPONSES}/{response_id}/cancel", method="POST")
            assert reason_of(answer.json) == ("cancelled", "stop_requested")

        told = await told_and_stored(harness, pause, cancel)
        assert reason_of(told) == ("cancelled", "stop_requested")
        assert harness.agents.interrupts == ([] if is_async else ["stop_requested"])


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
async def test_a_drain(is_async: bool) -> None:
    pause = Pause()
    async with idle_harness(ScriptedAgentFactory([*TURN[:4], pause], None, is_async)) as harness:

        async def drain(response_id: str) -> None:
            harness.state.services.registry.stop_all(Reason.SERVER_SHUTDOWN)

        assert reason_of(await told_and_stored(harness, pause, drain)) == (
            "incomplete",
            "server_shutdown",
        )


async def test_a_time_limit(mock_clock: MockClock) -> None:
    pause = Pause()
    async with idle_harness(
        ScriptedAgentFactory([*TURN[:4], pause], is_async=True), limits=RunLimits(run=60)
    ) as harness:

        async def wait(response_id: str) -> None:
            mock_clock.jump(60)

        assert reason_of(await told_and_stored(harness, pause, wait)) == ("incomplete", "timeout")


async def test_a_reader_that_does_not_read(mock_clock: MockClock) -> None:
    pause, middle, last = Pause(), Pause(), Pause()
    more = [
        event for n in range(1, 10) for event in (Text(f"{n} "), Reasoning("."))
    ]  # of two kinds: not one piece
    script: list[Step] = [pause, Text("0 "), middle, *more, last]
    async with (
        idle_harness(
            ScriptedAgentFactory(script, is_async=True), limits=RunLimits(stall=30)
        ) as harness,
        harness.client.post(RESPONSES, stream()) as exchange,
    ):
        await created(exchange)
        await pause.wait_reached()
        exchange.stall()
        pause.go()
        await middle.wait_reached()
        await (
            wait_all_tasks_blocked()
        )  # the first piece waits to be read; now there is more behind it
        middle.go()
        await wait_all_tasks_blocked()
        mock_clock.jump(30)
        await until_ended(harness)
        shown = await the_response(harness)
        assert reason_of(shown) == ("incomplete", "stalled_reader")
        exchange.read_on()
        assert as_text(final(await exchange.end())) == shown


# -- policies --


@pytest.mark.parametrize(
    "value", ["sometimes", "grace", "grace:", "grace:x", "grace:-1", "grace:86401", "detach:1"]
)
async def test_a_policy_that_is_none(value: str) -> None:
    async with idle_harness() as harness:
        answer = await harness.client.send(RESPONSES, say(), {POLICY: value})
        assert (answer.status, answer.error["param"]) == (400, POLICY)


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "thread"])
@pytest.mark.parametrize(
    ("body", "headers", "options"),
    [
        (stream(), {POLICY: "detach"}, WebOptions()),
        (say(), {POLICY: "Detach"}, WebOptions()),
        (stream(), {}, WebOptions(on_disconnect=DETACH)),
        (stream(background=True), {POLICY: "interrupt"}, WebOptions()),
    ],
)
async def test_a_run_that_goes_on_alone(
    body: Any, headers: Any, options: Any, is_async: bool
) -> None:
    pause = Pause()
    async with idle_harness(
        ScriptedAgentFactory([Text("One "), pause, Text("two")], None, is_async), options=options
    ) as harness:
        async with harness.client.post(RESPONSES, body, headers) as exchange:
            await pause.wait_reached()
            exchange.disconnect()
            await exchange.end()
        await wait_all_tasks_blocked()
        assert (await the_response(harness))["status"] == "in_progress"
        pause.go()
        await until_ended(harness)
        shown = await the_response(harness)
        assert (shown["status"], text_of(shown)) == ("completed", "One two")
        assert harness.agents.interrupts == []


async def test_a_request_may_ask_for_less_than_the_server_allows() -> None:
    pause = Pause()
    options = WebOptions(on_disconnect=DETACH)
    async with idle_harness(
        ScriptedAgentFactory([pause], is_async=True), options=options
    ) as harness:
        async with harness.client.post(RESPONSES, stream(), {POLICY: "interrupt"}):
            await pause.wait_reached()
        await until_ended(harness)
        assert harness.ends == [GONE]


async def test_a_grace_period_that_is_used(mock_clock: MockClock) -> None:
    pause = Pause()
    async with idle_harness(
        ScriptedAgentFactory([Text("One "), pause, Text("two")], is_async=True)
    ) as harness:
        async with harness.client.post(RESPONSES, stream(), {POLICY: "grace:30"}) as exchange:
            response_id = await created(exchange)
            await pause.wait_reached()
        for _ in range(3):  # each reattachment stops the clock
            await wait_all_tasks_blocked()
            mock_clock.jump(29)
            await wait_all_tasks_blocked()
            assert harness.ends == []
            path = f"{RESPONSES}/{response_id}?stream=true"
            async with harness.client.open("GET", path) as again:
                await again.started()
                mock_clock.jump(100)
                await wait_all_tasks_blocked()
        async with harness.client.open("GET", path) as again:
            await again.started()
            pause.go()
            told = final(await again.end())
        assert (told["status"], text_of(told)) == ("completed", "One two")


async def test_a_grace_period_that_is_over(mock_clock: MockClock) -> None:
    pause = Pause()
    async with idle_harness(
        ScriptedAgentFactory([Text("One "), pause, Text("two")], is_async=True)
    ) as harness:
        async with harness.client.post(RESPONSES, stream(), {POLICY: "grace:30"}):
            await pause.wait_reached()
        await wait_all_tasks_blocked()
        mock_clock.jump(29.5)
        await wait_all_tasks_blocked()
        assert harness.ends == []
        mock_clock.jump(0.5)
        with real_timeout():
            await until_ended(harness)
        shown = await the_response(harness)
        assert (reason_of(shown), text_of(shown)) == (GONE, "One ")
