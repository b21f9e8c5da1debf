"""Deterministic cuts: a request is interrupted after an exact number of scheduler steps.

A *route* is what the client requests, an *interruption* is what ends it, a *script* is what the agent
does. For each combination the request is repeated and interrupted one step later each time, until it
ends before the interruption.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

import trio
from attrs import frozen
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.events import Text
from tests.robustness.interruptions import (
    INTERNAL_FAULTS,
    INTERRUPTIONS,
    InternalFault,
    Interruption,
)
from tests.robustness.invariants import check
from tests.robustness.observed_server import ObservedServer, open_observed_server
from tests.robustness.scenario_checks import check_scenario
from tests.robustness.scenarios import LIMITS, AgentScript, RequestScenario, Route
from tests.robustness.schedule import StepTrigger, repeatable, shuffle
from tests.support.fakes import Pause

MAX_STEPS = 3_000  # no request takes more; a script that does never ends


@frozen
class CutPlan:
    """The steps at which to interrupt."""

    stride: int = 1
    seed: int = 0


async def cut_everywhere(
    server: ObservedServer, trigger: StepTrigger, clock: MockClock, case: CutCase
) -> int:
    """Interrupt after every step; return the number of interruptions."""
    at, cuts = 1 + case.plan.seed % case.plan.stride, 0
    while at < MAX_STEPS:
        scenario = await _one(server, clock, case, at)
        trigger.arm(
            at,
            *(
                partial(apply, scenario)
                for apply in (case.interruption.apply, *case.interruption.then)
            ),
        )
        await scenario.play()
        if not trigger.disarm():
            return cuts
        cuts += 1
        await check_scenario(
            scenario, case.script, case.interruption.reasons, case.interruption.tolerance
        )
        at += case.plan.stride
    raise AssertionError(f"{case.route.name}, {case.script.name}: no end in sight")


async def crash_everywhere(
    server: ObservedServer, clock: MockClock, case: CutCase, fault: InternalFault
) -> int:
    """Let a part fail at each of its uses; return the number of failures."""
    at = 1
    while at < MAX_STEPS:
        scenario = await _one(server, clock, case, at)
        with ExitStack() as stack:
            uses = fault.arm(stack, server, at)
            await scenario.play()
            has_failed = uses() >= at
        await check_scenario(scenario, case.script, fault.reasons, fault.tolerance)
        if not has_failed:
            return at - 1
        at += 1
    raise AssertionError("no end in sight")


@frozen
class CutCase:
    """A route, a script and an interruption."""

    route: Route
    script: AgentScript
    interruption: Interruption
    plan: CutPlan = CutPlan()


async def _one(server: ObservedServer, clock: MockClock, case: CutCase, at: int) -> RequestScenario:
    server.reset()
    server.harness.state.admission.is_draining = False
    shuffle(case.plan.seed)
    return RequestScenario(server, case.route, at, clock)


def run_cuts(
    route: Route, script: AgentScript, interruptions: tuple[Interruption, ...], plan: CutPlan
) -> dict[str, int]:
    """Run all cuts of one route and script; return the count for each interruption."""
    counts: dict[str, int] = {}

    async def main() -> None:
        for interruption in interruptions:
            async with open_observed_server(
                script.steps, script.end, limits=interruption.limits
            ) as server:
                await _make_session(server)
                counts[interruption.name] = await cut_everywhere(
                    server, trigger, clock, CutCase(route, script, interruption, plan)
                )

    trigger, clock = StepTrigger(), MockClock(autojump_threshold=0)
    with repeatable(plan.seed):
        trio.run(main, clock=clock, instruments=[trigger])
    return counts


def run_crashes(route: Route, script: AgentScript) -> dict[str, int]:
    """Run all internal faults in one route and script."""
    counts: dict[str, int] = {}

    async def main() -> None:
        async with open_observed_server(script.steps, script.end, limits=LIMITS) as server:
            await _make_session(server)
            for fault in INTERNAL_FAULTS:
                counts[fault.name] = await crash_everywhere(
                    server, clock, CutCase(route, script, INTERRUPTIONS[0]), fault
                )

    clock = MockClock(autojump_threshold=0)
    with repeatable(), capture_logs():  # each of them is logged with its trace
        trio.run(main, clock=clock)
    return counts


async def _make_session(server: ObservedServer) -> None:
    answer = await server.harness.client.send("/api/sessions", {"id": "s1"})
    assert answer.status == 201, answer.body


def run_endless(route: Route, interruption: Interruption) -> list[tuple[str, str]]:
    """Interrupt an agent that would wait forever; return how its run ended."""
    ends: list[tuple[str, str]] = []

    async def main() -> None:
        pause = Pause()
        async with (
            open_observed_server((Text("Hi"), pause), limits=interruption.limits) as server,
            trio.open_nursery() as nursery,
        ):
            await _make_session(server)
            scenario = RequestScenario(server, route, 0, clock)
            nursery.start_soon(scenario.play)
            await pause.reached.wait()
            await wait_all_tasks_blocked()
            interruption.apply(scenario)
            await server.until_quiet()
            check(await server.faults(), (route.name, interruption.name))
            ends.extend(server.harness.ends)
            nursery.cancel_scope.cancel()

    clock = MockClock()
    clock.autojump_threshold = 0.001
    with repeatable():
        trio.run(main, clock=clock)
    return ends
