"""Jobs whose agent is the real package: each run begins once."""

from __future__ import annotations

from pathlib import Path

import trio.testing

from hermes_trio.stores.sqlite import MemoryStore, open_sqlite
from tests.hermes.harness import ServedAgent, hermes
from tests.hermes.scripted_model import ScriptedAnswer, Upstream
from tests.support.fakes import AppHarness, open_harness
from tests.support.jobs_api import JOBS, Json, created, ended, runs_of


async def run_now(harness: AppHarness, job: Json) -> Json:
    """Let a job run, and return it when the run has ended."""
    assert (await harness.client.send_raw(f"{JOBS}/{job['id']}/run", b"")).status == 200
    return await ended(harness, job)


async def test_a_job_runs_hermes(model: Upstream) -> None:
    model.play(ScriptedAnswer(["All quiet."]))
    async with (
        hermes(model) as factory,
        open_harness(ServedAgent((), made=factory)) as harness,
    ):
        job = await created(harness)
        now = await run_now(harness, job)
        [run] = await runs_of(harness, job)
        assert (now["last_status"], now["last_run_id"]) == ("ok", run["run_id"])
        whole = await harness.client.get(f"/v1/runs/{run['run_id']}")
        assert (whole.json["output"], whole.json["job_id"]) == ("All quiet.", job["id"])
        assert await harness.transcript(run["session_id"]) == [
            ("user", "Look around."),
            ("assistant", "All quiet."),
        ]


async def test_a_restart_does_not_repeat_it(model: Upstream, tmp_path: Path) -> None:
    model.play(ScriptedAnswer(["Once."]))
    async with hermes(model) as factory:
        async with (
            open_sqlite(tmp_path / "store.db") as store,
            open_harness(ServedAgent((), made=factory), store=store) as harness,
        ):
            job = await created(harness, schedule="1m")
            await run_now(harness, job)
        async with (
            open_sqlite(tmp_path / "store.db") as store,
            open_harness(
                ServedAgent((), made=factory), store=store, wall_clock=lambda: 2_000_000_000.0
            ) as harness,
        ):
            await trio.testing.wait_all_tasks_blocked(0.2)
            assert harness.agents.turns == []
            assert len(await runs_of(harness, job)) == 1


async def test_two_nodes_run_it_once(model: Upstream) -> None:
    model.play(ScriptedAnswer(["Once."]))
    store = MemoryStore()
    async with (
        hermes(model) as factory,
        open_harness(ServedAgent((), made=factory), store=store, node="a") as one,
        open_harness(ServedAgent((), made=factory), store=store, node="b") as two,
    ):
        job = await created(one)
        two.state.scheduler.wake()
        assert (await one.client.send_raw(f"{JOBS}/{job['id']}/run", b"")).status == 200
        two.state.scheduler.wake()
        await ended(two, job)
        assert len(one.agents.turns) + len(two.agents.turns) == 1
        assert len(await runs_of(two, job)) == 1
