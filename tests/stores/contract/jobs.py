"""Contract for jobs and the beginning of their runs."""

from __future__ import annotations

import math

import trio
from attrs import evolve

from hermes_trio.core.jobs import Job, JobState, LastResult, NoJob, Schedule, ScheduleKind
from hermes_trio.core.records import EndedRun, LiveRun, NoRun, Ownership, RunHeader, Stamp
from hermes_trio.stores.base import Store
from tests.stores.samples import COMPLETED, ODD, header

OWNERSHIP = Ownership("me")
HOURLY = Schedule(ScheduleKind.INTERVAL, "every 60m", minutes=60)
PLAIN = Job("ann", "0123456789ab", "hourly", "Look around.", HOURLY, 1.0, next_run_at=100.0)
RICH = Job(
    "ann",
    "ba9876543210",
    ODD,
    ODD,
    Schedule(ScheduleKind.ONCE, ODD, run_at=7.5),
    2.0,
    next_run_at=7.5,
    key_name=ODD,
    skills=("a", ODD),
    origin={"platform": "api_server", ODD: [1, None]},
    max_runs=3,
    runs=1,
    starts=2,
    is_enabled=False,
    state=JobState.PAUSED,
    paused_at=3.0,
    last_run_at=2.5,
    last_run_id="run_1",
    last_result=LastResult.ERROR,
    last_error=ODD,
    last_ended_at=2.75,
)


def run_of(job: Job) -> RunHeader:
    """Return the header of a job's next run."""
    stamp = Stamp(job.next_run_id, 50.0, "m")
    return evolve(header("any"), stamp=stamp, kind="cron", principal=job.principal)


class JobContract:
    """Jobs."""

    async def test_a_job_round_trips(self, store: Store) -> None:
        assert await store.add_job(PLAIN, 10)
        assert await store.add_job(RICH, 10)
        assert await store.find_job("ann", PLAIN.job_id) == PLAIN
        assert await store.find_job("ann", RICH.job_id) == RICH
        assert await store.list_jobs("ann") == (PLAIN, RICH)

    async def test_jobs_belong_to_a_principal(self, store: Store) -> None:
        await store.add_job(PLAIN, 10)
        assert await store.find_job("bob", PLAIN.job_id) == NoJob()
        assert await store.list_jobs("bob") == ()
        assert not await store.replace_job(evolve(PLAIN, principal="bob"))
        assert not await store.delete_job("bob", PLAIN.job_id)
        assert await store.list_jobs("ann") == (PLAIN,)

    async def test_an_id_is_given_once(self, store: Store) -> None:
        assert await store.add_job(PLAIN, 10)
        assert not await store.add_job(evolve(PLAIN, name="other"), 10)
        assert await store.list_jobs("ann") == (PLAIN,)

    async def test_a_principal_has_a_limit_of_its_own(self, store: Store) -> None:
        assert await store.add_job(PLAIN, 1)
        assert not await store.add_job(RICH, 1)
        assert await store.add_job(evolve(PLAIN, principal="bob"), 1)
        assert await store.delete_job("ann", PLAIN.job_id)
        assert await store.add_job(RICH, 1)

    async def test_the_revision_that_was_read_is_replaced(self, store: Store) -> None:
        await store.add_job(PLAIN, 10)
        assert await store.replace_job(evolve(PLAIN, name="first"))
        assert not await store.replace_job(evolve(PLAIN, name="second"))
        found = await store.find_job("ann", PLAIN.job_id)
        assert found == evolve(PLAIN, name="first", revision=1)
        assert await store.replace_job(evolve(found, name="third"))

    async def test_of_concurrent_changes_one_wins(self, store: Store) -> None:
        await store.add_job(PLAIN, 10)
        won: list[str] = []

        async def change(name: str) -> None:
            if await store.replace_job(evolve(PLAIN, name=name)):
                won.append(name)

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(change, str(number))
        assert len(won) == 1
        assert await store.list_jobs("ann") == (evolve(PLAIN, name=won[0], revision=1),)

    async def test_a_deleted_job_is_gone(self, store: Store) -> None:
        await store.add_job(PLAIN, 10)
        assert await store.delete_job("ann", PLAIN.job_id)
        assert not await store.delete_job("ann", PLAIN.job_id)
        assert not await store.replace_job(PLAIN)
        assert await store.find_job("ann", PLAIN.job_id) == NoJob()
        assert await store.next_due_job() == math.inf

    async def test_jobs_that_are_due(self, store: Store) -> None:
        assert await store.next_due_job() == math.inf
        later = evolve(PLAIN, principal="bob", next_run_at=200.0)
        for job in (later, PLAIN, RICH, evolve(PLAIN, job_id="none", next_run_at=0.0)):
            await store.add_job(job, 10)
        assert await store.next_due_job() == 100.0
        assert await store.list_due_jobs(99.9, 10) == ()
        assert await store.list_due_jobs(100.0, 10) == (PLAIN,)
        assert await store.list_due_jobs(200.0, 10) == (PLAIN, later)
        assert await store.list_due_jobs(200.0, 1) == (PLAIN,)
        assert await store.list_due_jobs(200.0, 10, 1) == (later,)
        await store.replace_job(evolve(PLAIN, is_enabled=False))
        assert await store.next_due_job() == 200.0


class JobRunContract:
    """The beginning of a job's run."""

    async def test_a_run_and_the_change_of_its_job_are_one(self, store: Store) -> None:
        await store.add_job(PLAIN, 10)
        run = run_of(PLAIN)
        assert await store.begin_job_run(PLAIN.started(50.0, 160.0), run, OWNERSHIP)
        assert await store.find_run("ann", run.run_id) == LiveRun(run)
        expected = evolve(PLAIN.started(50.0, 160.0), revision=1)
        assert await store.find_job("ann", PLAIN.job_id) == expected
        assert await store.next_due_job() == 160.0
        await store.end_run(EndedRun(run, (), COMPLETED, 1.0), ownership=OWNERSHIP)
        assert isinstance(await store.find_run("ann", run.run_id), EndedRun)

    async def test_a_job_that_has_changed_begins_no_run(self, store: Store) -> None:
        await store.add_job(PLAIN, 10)
        await store.replace_job(evolve(PLAIN, prompt="Look elsewhere."))
        run = run_of(PLAIN)
        assert not await store.begin_job_run(PLAIN.started(50.0, 160.0), run, OWNERSHIP)
        assert await store.find_run("ann", run.run_id) == NoRun()

    async def test_a_deleted_job_begins_no_run(self, store: Store) -> None:
        run = run_of(PLAIN)
        assert not await store.begin_job_run(PLAIN.started(50.0, 160.0), run, OWNERSHIP)
        assert await store.find_run("ann", run.run_id) == NoRun()

    async def test_a_run_that_was_given_up_is_not_begun_again(self, store: Store) -> None:
        await store.add_job(PLAIN, 10)
        run = run_of(PLAIN)
        await store.end_run(EndedRun(run, (), COMPLETED, 1.0), ownership=OWNERSHIP)
        assert not await store.begin_job_run(PLAIN.started(50.0, 160.0), run, OWNERSHIP)
        assert isinstance(await store.find_run("ann", run.run_id), EndedRun)
        # The job is over that run all the same, or it would be due for ever.
        assert await store.find_job("ann", PLAIN.job_id) != PLAIN

    async def test_the_same_node_may_try_again(self, store: Store) -> None:
        await store.add_job(PLAIN, 10)
        run, job = run_of(PLAIN), PLAIN.started(50.0, 160.0)
        for _ in range(2):
            assert await store.begin_job_run(job, run, OWNERSHIP)
        assert not await store.begin_job_run(job, run, Ownership("other"))
        found = await store.find_job("ann", PLAIN.job_id)
        assert isinstance(found, Job)
        assert (found.runs, found.revision) == (1, 1)
        await store.end_run(EndedRun(run, (), COMPLETED, 1.0), ownership=OWNERSHIP)
        assert not await store.begin_job_run(job, run, OWNERSHIP)

    async def test_of_concurrent_nodes_one_begins_the_run(self, store: Store) -> None:
        await store.add_job(PLAIN, 10)
        won: list[str] = []

        async def begin(node: str) -> None:
            job = PLAIN.started(50.0, 160.0)
            if await store.begin_job_run(job, run_of(PLAIN), Ownership(node)):
                won.append(node)

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(begin, f"node {number}")
        assert len(won) == 1
        found = await store.find_job("ann", PLAIN.job_id)
        assert isinstance(found, Job)
        assert found.runs == 1
