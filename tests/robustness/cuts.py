"""Deterministic cuts: one request, ended by one of the ways out after exactly so many steps of the scheduler.

A *route* is what the client asks, a *way out* what ends it, a *script* what the agent does. For each three of them the
request is made again and again, and struck one step later each time, until it is over before it is struck.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

import trio
from attrs import frozen
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.events import Text
from tests.robustness.invariants import check
from tests.robustness.judging import judge
from tests.robustness.scenes import LIMITS, Route, Scene, Script
from tests.robustness.schedule import Knife, repeatable, shuffle
from tests.robustness.ways import CRASHES, WAYS, Crash, Way
from tests.robustness.witness import House, open_house
from tests.support.fakes import Pause

MAX_STEPS = 3_000  # no request takes more; a script that does never ends


@frozen
class Plan:
    """Which steps to strike at."""

    stride: int = 1
    seed: int = 0


async def cut_everywhere(house: House, knife: Knife, clock: MockClock, case: Case) -> int:
    """Strike after every step; returns how often it was struck."""
    at, struck = 1 + case.plan.seed % case.plan.stride, 0
    while at < MAX_STEPS:
        scene = await _one(house, clock, case, at)
        knife.arm(at, *(partial(strike, scene) for strike in (case.way.strike, *case.way.then)))
        await scene.play()
        if not knife.disarm():
            return struck
        struck += 1
        await judge(scene, case.script, case.way.reasons, case.way.leeway)
        at += case.plan.stride
    raise AssertionError(f"{case.route.name}, {case.script.name}: no end in sight")


async def crash_everywhere(house: House, clock: MockClock, case: Case, crash: Crash) -> int:
    """Let a part fail at every use; returns how often it did."""
    at = 1
    while at < MAX_STEPS:
        scene = await _one(house, clock, case, at)
        with ExitStack() as stack:
            uses = crash.arm(stack, house, at)
            await scene.play()
            has_failed = uses() >= at
        await judge(scene, case.script, crash.reasons, crash.leeway)
        if not has_failed:
            return at - 1
        at += 1
    raise AssertionError("no end in sight")


@frozen
class Case:
    """What is tried."""

    route: Route
    script: Script
    way: Way
    plan: Plan = Plan()


async def _one(house: House, clock: MockClock, case: Case, at: int) -> Scene:
    house.forget()
    house.harness.state.admission.is_draining = False
    shuffle(case.plan.seed)
    return Scene(house, case.route, at, clock)


def run_cuts(route: Route, script: Script, ways: tuple[Way, ...], plan: Plan) -> dict[str, int]:
    """All cuts of one route and script; returns the count for each way out."""
    counts: dict[str, int] = {}

    async def main() -> None:
        for way in ways:
            async with open_house(script.steps, script.end, limits=way.limits) as house:
                await _make_session(house)
                counts[way.name] = await cut_everywhere(house, knife, clock, Case(route, script, way, plan))

    knife, clock = Knife(), MockClock(autojump_threshold=0)
    with repeatable(plan.seed):
        trio.run(main, clock=clock, instruments=[knife])
    return counts


def run_crashes(route: Route, script: Script) -> dict[str, int]:
    """All faults of ours in one route and script."""
    counts: dict[str, int] = {}

    async def main() -> None:
        async with open_house(script.steps, script.end, limits=LIMITS) as house:
            await _make_session(house)
            for crash in CRASHES:
                counts[crash.name] = await crash_everywhere(house, clock, Case(route, script, WAYS[0]), crash)

    clock = MockClock(autojump_threshold=0)
    with repeatable(), capture_logs():  # each of them is logged with its trace
        trio.run(main, clock=clock)
    return counts


async def _make_session(house: House) -> None:
    answer = await house.harness.client.send("/api/sessions", {"id": "s1"})
    assert answer.status == 201, answer.body


def run_endless(route: Route, way: Way) -> list[tuple[str, str]]:
    """End an agent that would wait for ever; returns how its run ended."""
    ends: list[tuple[str, str]] = []

    async def main() -> None:
        pause = Pause()
        async with (
            open_house((Text("Hi"), pause), limits=way.limits) as house,
            trio.open_nursery() as nursery,
        ):
            await _make_session(house)
            scene = Scene(house, route, 0, clock)
            nursery.start_soon(scene.play)
            await pause.reached.wait()
            await wait_all_tasks_blocked()
            way.strike(scene)
            await house.until_quiet()
            check(await house.faults(), (route.name, way.name))
            ends.extend(house.harness.ends)
            nursery.cancel_scope.cancel()

    clock = MockClock()
    clock.autojump_threshold = 0.001
    with repeatable():
        trio.run(main, clock=clock)
    return ends
