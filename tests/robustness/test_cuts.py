"""Every request, cut at every checkpoint, by every way out.

One end, the same one for all who tell of it, nothing left.

The short part cuts at every thirteenth checkpoint, beginning elsewhere for each route; the session
at all of them, in two different orders of the tasks.
"""

from __future__ import annotations

import pytest

from hermes_trio.core.outcome import Reason
from tests.robustness.cuts import CutPlan, run_crashes, run_cuts, run_endless
from tests.robustness.interruptions import INTERNAL_FAULTS, INTERRUPTIONS, Interruption
from tests.robustness.report import CaseCounter
from tests.robustness.scenarios import ROUTES, SCRIPTS, AgentScript, Route

pytestmark = pytest.mark.usefixtures("write_through")

SHORT = {"tools", "asking"}
ENDING = [
    interruption
    for interruption in INTERRUPTIONS
    if interruption.name in {"stop", "drain", "time limit"}
]  # whoever listens or does not
STRIDE = 13
by_name = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
by_route = pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)


@pytest.mark.slow
@pytest.mark.timeout(300)
@by_name
@by_route
def test_cuts(route: Route, script: AgentScript, full: bool, cases: CaseCounter) -> None:
    if not full and script.name not in SHORT:
        pytest.skip("only in the full session")
    plans = [CutPlan(1, 0), CutPlan(1, 1)] if full else [CutPlan(STRIDE, ROUTES.index(route))]
    for plan in plans:
        counts = run_cuts(route, script, INTERRUPTIONS, plan)
        assert set(counts) == {interruption.name for interruption in INTERRUPTIONS}
        assert min(counts.values()) > 0
        cases.add("cuts", counts)


@pytest.mark.slow
@by_name
@by_route
def test_crashes(route: Route, script: AgentScript, full: bool, cases: CaseCounter) -> None:
    if not full and script.name not in SHORT:
        pytest.skip("only in the full session")
    counts = run_crashes(route, script)
    assert set(counts) == {fault.name for fault in INTERNAL_FAULTS}
    assert counts["tracker crash"] >= len(script.steps)
    cases.add("internal faults", counts)


@by_route
@pytest.mark.parametrize("interruption", ENDING, ids=lambda interruption: interruption.name)
def test_an_agent_that_never_ends_is_ended(route: Route, interruption: Interruption) -> None:
    [outcome] = run_endless(route, interruption)
    assert Reason(outcome[1]) in interruption.reasons
