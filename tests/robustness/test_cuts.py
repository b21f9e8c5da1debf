"""Every request, cut at every checkpoint, by every way out: one end, the same one for all who tell of it, nothing left.

The short part cuts at every thirteenth checkpoint, beginning elsewhere for each route; the session at all of them, in two
different orders of the tasks.
"""

from __future__ import annotations

import pytest

from hermes_trio.core.outcome import Reason
from tests.robustness.cuts import Plan, run_crashes, run_cuts, run_endless
from tests.robustness.report import Tally
from tests.robustness.scenes import ROUTES, SCRIPTS, Route, Script
from tests.robustness.ways import CRASHES, WAYS, Way

pytestmark = pytest.mark.usefixtures("write_through")

SHORT = {"tools", "asking"}
ENDING = [way for way in WAYS if way.name in {"stop", "drain", "time limit"}]  # whoever listens or does not
STRIDE = 13
by_name = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
by_route = pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)


@pytest.mark.slow
@pytest.mark.timeout(300)
@by_name
@by_route
def test_cuts(route: Route, script: Script, full: bool, tally: Tally) -> None:
    if not full and script.name not in SHORT:
        pytest.skip("only in the full session")
    plans = [Plan(1, 0), Plan(1, 1)] if full else [Plan(STRIDE, ROUTES.index(route))]
    for plan in plans:
        counts = run_cuts(route, script, WAYS, plan)
        assert set(counts) == {way.name for way in WAYS}
        assert min(counts.values()) > 0
        tally.add("cuts", counts)


@pytest.mark.slow
@by_name
@by_route
def test_crashes(route: Route, script: Script, full: bool, tally: Tally) -> None:
    if not full and script.name not in SHORT:
        pytest.skip("only in the full session")
    counts = run_crashes(route, script)
    assert set(counts) == {crash.name for crash in CRASHES}
    assert counts["tracker crash"] >= len(script.steps)
    tally.add("our own faults", counts)


@by_route
@pytest.mark.parametrize("way", ENDING, ids=lambda way: way.name)
def test_an_agent_that_never_ends_is_ended(route: Route, way: Way) -> None:
    [outcome] = run_endless(route, way)
    assert Reason(outcome[1]) in way.reasons
