"""Races: whoever wins, there is one end, and everybody tells the same one. A thousand orders of each in the session."""

from __future__ import annotations

import pytest

from tests.robustness.races import RACES, Race, run_race
from tests.robustness.report import Tally


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("race", RACES, ids=lambda race: race.name)
def test_races(race: Race, full: bool, tally: Tally) -> None:
    rounds = 1_000 if full else 60
    seen = run_race(race, rounds)
    assert race.seen <= set(seen), seen  # neither always wins
    tally.add("races", {race.name: sum(seen.values())})
