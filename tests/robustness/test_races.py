"""Races: whoever wins, there is one end, and everybody tells the same one.

A thousand orders of each in the session.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.agent.emitter import AsyncEmitter
from hermes_trio.agent.interface import TurnRequest
from hermes_trio.core.approvals import Decision, Grant
from hermes_trio.core.changes import TextAdded
from hermes_trio.core.events import AnsweredBy, Choice
from hermes_trio.core.outcome import Reason
from hermes_trio.runs.approvals import ApprovalResponse
from tests.robustness.invariants import stored_run_of_record
from tests.robustness.races import RACES, Race, run_race
from tests.robustness.report import CaseCounter
from tests.runs.test_approvals import LIMITS, RM, Asker, asking, told
from tests.support.run_harness import RecordingStore, RunHarness, rest_of, until_asked

pytestmark = pytest.mark.usefixtures("write_through")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("race", RACES, ids=lambda race: race.name)
def test_races(race: Race, full: bool, cases: CaseCounter) -> None:
    rounds = 1_000 if full else 60
    seen = run_race(race, rounds)
    assert race.seen <= set(seen), seen  # neither always wins
    cases.add("races", {race.name: sum(seen.values())})


class SlowGrantStore(RecordingStore):
    """A store that takes its time with an approval."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.may_go_on = trio.Event(), trio.Event()

    async def grant(self, grants: Sequence[Grant]) -> None:
        """Wait to be let go on."""
        self.asked.set()
        await self.may_go_on.wait()
        await super().grant(grants)


class SlowToFinish(Asker):
    """Does not end before everybody else has done what there was to do."""

    async def run(self, turn: TurnRequest, emitter: AsyncEmitter) -> str:
        """Ask."""
        said = await super().run(turn, emitter)
        await wait_all_tasks_blocked()
        return said


async def test_time_is_up_while_an_answer_is_remembered(mock_clock: MockClock) -> None:
    """The one order of the last race that chance rarely finds.

    The answer came first, so it is the only one.
    """
    agent, store = SlowToFinish(RM), SlowGrantStore()
    harness = asking(agent, store)
    async with harness.open() as run, trio.open_nursery() as nursery:
        await until_asked(run)
        mock_clock.jump(
            LIMITS.approval - 1
        )  # the store may take a while, but not as long as a question waits
        nursery.start_soon(run.answer, ApprovalResponse(Choice.SESSION))
        await store.asked.wait()
        mock_clock.jump(2)
        await wait_all_tasks_blocked()  # the time-out waits for its turn
        store.may_go_on.set()
        assert told(await rest_of(run)) == [(Choice.SESSION, AnsweredBy.CLIENT)]
    assert agent.decisions == [Decision(Choice.SESSION, AnsweredBy.CLIENT)]
    assert harness.store.records[0].outcome.status == "completed"
    harness.check_nothing_left()


class WordByWord:
    """Says word after word, each when the last one has got as far as it can."""

    def __init__(self, *words: str) -> None:
        self._words = words
        self.said_all = trio.Event()

    async def run(self, turn: TurnRequest, emitter: AsyncEmitter) -> None:
        """Go on until it is stopped."""
        for word in self._words:
            await emitter.text(word)
            await wait_all_tasks_blocked()
        self.said_all.set()
        await trio.sleep_forever()


async def test_what_waits_at_the_end_is_kept() -> None:
    """A reader holds the agent back, so that it has said more than anybody has taken when it is stopped."""
    agent = WordByWord(*"abcdef")
    harness = RunHarness(agent)
    async with harness.open() as run:
        with run.log.subscribe(applies_backpressure=True):
            await agent.said_all.wait()
            taken = "".join(
                change.text for change in run.log.read(0) if isinstance(change, TextAdded)
            )
            assert "abcdef".startswith(taken)
            assert taken != "abcdef"
            run.stop(Reason.STOP_REQUESTED)
            await run.ended.wait()
    [record] = harness.store.records
    assert stored_run_of_record(record).text == "abcdef"
    harness.check_nothing_left()
