"""The Jobs API: every answer is held against its description."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from hermes_trio import AgentContext, Inventory, Skill, with_inventory
from hermes_trio.keys import Keyring, NamedKey
from hermes_trio.schema.jobs import MAX_SKILLS
from hermes_trio.web.api import jobs as api
from hermes_trio.web.app import attach_state
from hermes_trio.web.state import ServedProfile, WebOptions
from tests.support.asgi import Client, HttpResponse
from tests.support.fakes import (
    EPOCH,
    KEY,
    OTHER_KEY,
    AppHarness,
    BrokenStore,
    ScriptedAgentFactory,
    bearer,
    make_harness,
    open_harness,
)
from tests.support.jobs_api import HALF_HOURLY, JOBS, created, ended, found, job_of, listed

FIRE = "/api/cron/fire"
UNKNOWN = "0123456789ab"


async def patch(harness: AppHarness, job: dict[str, Any], **changes: Any) -> HttpResponse:
    return await harness.client.send(f"{JOBS}/{job['id']}", changes, method="PATCH")


async def control(harness: AppHarness, job: dict[str, Any], verb: str) -> HttpResponse:
    return await harness.client.send_raw(f"{JOBS}/{job['id']}/{verb}", b"")


# -- create and read --


async def test_a_new_job() -> None:
    harness = make_harness()
    job = await created(harness)
    assert job == {
        "id": job["id"],
        "name": "watch",
        "prompt": "Look around.",
        "skills": [],
        "skill": None,
        "model": None,
        "provider": None,
        "provider_snapshot": None,
        "model_snapshot": None,
        "base_url": None,
        "script": None,
        "no_agent": False,
        "context_from": None,
        "schedule": {"kind": "interval", "minutes": 30, "display": "every 30m"},
        "schedule_display": "every 30m",
        "repeat": {"times": None, "completed": 0},
        "enabled": True,
        "state": "scheduled",
        "paused_at": None,
        "paused_reason": None,
        "created_at": "2023-11-14T22:13:20.900000+00:00",
        "next_run_at": "2023-11-14T22:43:20.900000+00:00",
        "last_run_at": None,
        "last_run_id": None,
        "last_status": None,
        "last_error": None,
        "last_delivery_error": None,
        "deliver": "local",
        "origin": {"platform": "api_server", "chat_id": "api"},
        "enabled_toolsets": None,
        "workdir": None,
    }
    assert len(job["id"]) == 12
    assert await found(harness, job) == job
    assert await listed(harness) == [{**job, "latest_execution": None}]


@pytest.mark.parametrize(
    ("schedule", "shown"),
    [
        ("0 9 * * *", {"kind": "cron", "expr": "0 9 * * *", "display": "0 9 * * *"}),
        (
            "2h",
            {
                "kind": "once",
                "run_at": "2023-11-15T00:13:20.900000+00:00",
                "display": "once in 2h",
            },
        ),
    ],
)
async def test_schedules(schedule: str, shown: dict[str, Any]) -> None:
    job = await created(make_harness(), schedule=schedule)
    assert job["schedule"] == shown
    assert job["repeat"]["times"] == (1 if shown["kind"] == "once" else None)


@pytest.mark.parametrize(
    ("changes", "param", "words"),
    [
        ({"name": ""}, "name", "Name is required"),
        ({"name": None}, "name", "Name"),
        ({"name": "x" * 201}, "name", "Name must be at most 200"),
        ({"name": 5}, "name", "expected `str | null`"),
        ({"schedule": " "}, "schedule", "Schedule is required"),
        ({"schedule": "soon"}, "schedule", "Invalid schedule: 'soon' is not a schedule"),
        ({"schedule": "61 * * * *"}, "schedule", "Bad minute"),
        ({"prompt": "x" * 5001}, "prompt", "Prompt must be at most 5000"),
        ({"prompt": ""}, "prompt", "Prompt is required"),
        ({"repeat": 0}, "repeat", "Repeat must be a positive integer"),
        ({"repeat": "2"}, "repeat", "expected `int | null`"),
        ({"deliver": "telegram"}, "deliver", "cannot deliver to 'telegram'"),
        ({"skills": ["nothing"]}, "skills", "no skill 'nothing'"),
        ({"skills": [str(number) for number in range(MAX_SKILLS + 1)]}, "skills", "at most 50"),
    ],
)
async def test_what_is_refused(changes: dict[str, Any], param: str, words: str) -> None:
    harness = make_harness()
    answer = await harness.client.send(JOBS, {**HALF_HOURLY, **changes})
    assert (answer.status, answer.error["param"]) == (400, param)
    assert words in answer.error["message"]
    assert await listed(harness) == []


@pytest.mark.parametrize("body", [b"", b"[]", b"{"])
async def test_what_is_not_an_object_is_refused(body: bytes) -> None:
    answer = await make_harness().client.send_raw(JOBS, body)
    assert (answer.status, answer.error["code"]) == (400, "invalid_json")


async def test_there_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "MAX_JOBS", 2)
    harness = make_harness()
    for _ in range(2):
        await created(harness)
    answer = await harness.client.send(JOBS, HALF_HOURLY)
    assert (answer.status, answer.error["code"]) == (409, "too_many_jobs")


async def test_skills_that_the_agent_has() -> None:
    @with_inventory(lambda: Inventory((), (Skill("knots"), Skill("maps"))))
    def sailor(context: AgentContext) -> Any:
        raise NotImplementedError

    harness = make_harness()
    services = harness.state.services
    runtime = evolve(services.runtime, factory=sailor)
    attach_state(harness.app, evolve(harness.state, services=evolve(services, runtime=runtime)))
    job = await created(harness, skills=["knots", " knots ", "maps"], prompt="")
    assert (job["skills"], job["skill"]) == (["knots", "maps"], "knots")
    changed = job_of(await patch(harness, job, skill="maps"))
    assert (changed["skills"], changed["skill"]) == (["maps"], "maps")


# -- whose it is --


async def test_jobs_belong_to_their_principal() -> None:
    harness = make_harness()
    job = await created(harness)
    bob = Client(harness.app, bearer(OTHER_KEY))
    path = f"{JOBS}/{job['id']}"
    assert (await bob.get(JOBS)).json == {"jobs": []}
    for method, target in (
        ("GET", path), ("PATCH", path), ("DELETE", path),
        ("POST", f"{path}/pause"), ("POST", f"{path}/resume"), ("POST", f"{path}/run"),
    ):  # fmt: skip
        answer = await bob.send_raw(target, b'{"name": "mine"}', method=method)
        assert (answer.status, answer.error["code"]) == (404, "job_not_found"), target
    assert (await bob.send(FIRE, {"job_id": job["id"]})).status == 404
    assert await found(harness, job) == job


async def test_jobs_below_a_profile_run_its_agent() -> None:
    options = WebOptions(profiles=(ServedProfile("work", "worker"),))
    agent = ScriptedAgentFactory(())
    async with open_harness(options=options, profile_agents={"work": agent}) as harness:
        answer = await harness.client.send(f"/p/work{JOBS}", HALF_HOURLY)
        job = job_of(answer)
        assert await listed(harness) == []
        assert (await harness.client.send_raw(f"/p/work{JOBS}/{job['id']}/run", b"")).status == 200
        while not agent.turns:
            await harness.until_idle()
        assert (agent.turns[0].profile, agent.turns[0].model) == ("work", "worker")
        runs = (await harness.client.get("/p/work/v1/runs")).json["data"]
        assert [run["job_id"] for run in runs] == [job["id"]]


@pytest.mark.parametrize("path", [JOBS, f"{JOBS}/{UNKNOWN}"])
async def test_the_routes_need_a_key(path: str) -> None:
    answer = await make_harness().client.get(path, {"Authorization": "Bearer wrong"})
    assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")


@pytest.mark.parametrize("job_id", ["x", "0123456789AB", "0123456789abc"])
async def test_an_invalid_id(job_id: str) -> None:
    answer = await make_harness().client.get(f"{JOBS}/{job_id}")
    assert (answer.status, answer.error["param"]) == (400, "job_id")
    assert "Invalid job ID" in answer.error["message"]


async def test_a_store_that_fails() -> None:
    class Broken(BrokenStore):
        async def list_jobs(self, principal: str) -> Any:
            self._fail("read")

    answer = await make_harness(store=Broken("read")).client.get(JOBS)
    assert answer.status == 503


# -- change --


async def test_some_fields_change() -> None:
    harness = make_harness()
    job = await created(harness)
    changed = job_of(await patch(harness, job, name=" other ", prompt="Look again.", repeat=3))
    expected = {**job, "name": "other", "prompt": "Look again."}
    assert changed == {**expected, "repeat": {"times": 3, "completed": 0}}
    assert await found(harness, job) == changed


async def test_a_new_schedule_counts_from_now() -> None:
    harness = make_harness()
    job = await created(harness)
    changed = job_of(await patch(harness, job, schedule="every 2h"))
    assert changed["next_run_at"] == "2023-11-15T00:13:20.900000+00:00"


async def test_a_paused_job_stays_paused_with_a_new_schedule() -> None:
    harness = make_harness()
    job = await created(harness)
    await control(harness, job, "pause")
    changed = job_of(await patch(harness, job, schedule="every 2h"))
    assert (changed["state"], changed["next_run_at"]) == ("paused", None)


@pytest.mark.parametrize("enabled", [True, False])
async def test_a_job_is_switched_off_and_on(enabled: bool) -> None:
    harness = make_harness()
    job = await created(harness)
    off = job_of(await patch(harness, job, enabled=False))
    assert (off["enabled"], off["next_run_at"]) == (False, None)
    assert await listed(harness) == []
    on = job_of(await patch(harness, job, enabled=enabled))
    assert on["enabled"] is enabled


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "No valid fields"),
        ({"id": "x", "origin": {}}, "No valid fields"),
        ({"name": ""}, "Name is required"),
        ({"prompt": None}, "Prompt is required"),
        ({"schedule": "soon"}, "Invalid schedule"),
        ({"repeat": -1}, "Repeat"),
        ({"enabled": "yes"}, "expected `bool`"),
    ],
)
async def test_changes_that_are_refused(changes: dict[str, Any], words: str) -> None:
    harness = make_harness()
    job = await created(harness)
    answer = await patch(harness, job, **changes)
    assert answer.status == 400
    assert words in answer.error["message"]
    assert await found(harness, job) == job


async def test_a_deleted_job_is_gone() -> None:
    harness = make_harness()
    job = await created(harness)
    path = f"{JOBS}/{job['id']}"
    assert (await harness.client.get(path, method="DELETE")).json == {"ok": True}
    for answer in (
        await harness.client.get(path),
        await harness.client.get(path, method="DELETE"),
        await patch(harness, job, name="other"),
        await control(harness, job, "pause"),
    ):
        assert (answer.status, answer.error["code"]) == (404, "job_not_found")


async def test_pause_and_resume() -> None:
    harness = make_harness()
    job = await created(harness)
    paused = job_of(await control(harness, job, "pause"))
    assert (paused["enabled"], paused["state"], paused["next_run_at"]) == (False, "paused", None)
    assert paused["paused_at"] == job["created_at"]
    resumed = job_of(await control(harness, job, "resume"))
    assert resumed == job


# -- run now --


async def test_a_job_runs_now() -> None:
    async with open_harness() as harness:
        job = await created(harness)
        await control(harness, job, "pause")
        started = job_of(await control(harness, job, "run"))
        assert (started["state"], started["next_run_at"]) == ("scheduled", job["created_at"])
        now = await ended(harness, job)
        assert (now["last_status"], now["next_run_at"]) == ("ok", job["next_run_at"])


async def test_a_job_that_is_over_can_run_again() -> None:
    async with open_harness() as harness:
        job = await created(harness, schedule="1m")
        for count in (1, 2):
            await control(harness, job, "run")
            while (now := await found(harness, job))["repeat"]["completed"] < count:
                await harness.until_idle()
            assert now["state"] == "completed"
        resumed = job_of(await control(harness, job, "resume"))
        assert (resumed["state"], resumed["repeat"]) == ("scheduled", {"times": 1, "completed": 0})
        assert resumed["next_run_at"] == job["next_run_at"]


async def test_a_time_that_has_passed_is_not_scheduled_again() -> None:
    now = [EPOCH]
    harness = make_harness(wall_clock=lambda: now[0])
    job = await created(harness, schedule="1m")
    await control(harness, job, "pause")
    now[0] += 3600
    answer = await control(harness, job, "resume")
    assert (answer.status, answer.error["param"]) == (400, "schedule")
    assert "has passed" in answer.error["message"]


async def test_fewer_runs_than_there_were_end_a_job() -> None:
    async with open_harness() as harness:
        job = await created(harness)
        await control(harness, job, "run")
        await ended(harness, job)
        over = job_of(await patch(harness, job, repeat=1))
        assert (over["state"], over["enabled"]) == ("completed", False)


@pytest.mark.parametrize("path", [f"{JOBS}/{UNKNOWN}/run", FIRE])
async def test_nothing_starts_while_the_server_drains(path: str) -> None:
    harness = make_harness()
    harness.state.admission.is_draining = True
    answer = await harness.client.send(path, {"job_id": UNKNOWN})
    assert (answer.status, answer.error["code"]) == (503, "gateway_draining")
    assert answer.headers["retry-after"] == "1"


async def test_a_job_is_fired_once_however_often_that_is_requested() -> None:
    async with open_harness() as harness:
        job = await created(harness)
        for _ in range(3):
            answer = await harness.client.send(FIRE, {"job_id": job["id"]})
            assert answer.status == 202
            assert answer.json == {"status": "accepted", "job_id": job["id"]}
            while not harness.agents.turns:
                await harness.until_idle()
        assert len(harness.agents.turns) == 1


async def test_a_paused_job_is_not_fired() -> None:
    async with open_harness() as harness:
        job = await created(harness)
        await control(harness, job, "pause")
        assert (await harness.client.send(FIRE, {"job_id": job["id"]})).status == 202
        assert (await found(harness, job))["state"] == "paused"


@pytest.mark.parametrize(
    ("body", "status"), [({}, 400), ({"job_id": "x"}, 400), ({"job_id": UNKNOWN}, 404)]
)
async def test_firing_what_is_not_there(body: dict[str, Any], status: int) -> None:
    answer = await make_harness().client.send(FIRE, body)
    assert (answer.status, answer.error["param"]) == (status, "job_id")


async def test_names_of_principals_do_not_mix() -> None:
    keyring = Keyring((NamedKey("ann", KEY), NamedKey("ann-2", OTHER_KEY)))
    harness = make_harness(keyring=keyring)
    await created(harness)
    assert (await Client(harness.app, bearer(OTHER_KEY)).get(JOBS)).json == {"jobs": []}
