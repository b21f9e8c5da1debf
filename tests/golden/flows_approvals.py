"""Agents that ask for approval, and what becomes of it."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.golden.agent import Step, say
from tests.golden.client import Exchange
from tests.golden.dialects import (
    INPUT,
    RESPONSES,
    RUNS,
    read_run,
)
from tests.golden.flows import (
    BATCH,
    FLOWS,
    ROUTES,
    STREAMED,
    Route,
    make_session,
    on_each_route,
    scenario,
)
from tests.golden.scenario_run import Scenario, ScenarioRun

ASK: Step = ("ask", "rm -r build", "It deletes files.", ("rm", "delete"), "c1")


ASKING = say(
    ("text", "Let me. "),
    ("tool_started", "c1", "terminal", {"command": "rm -r build"}),
    ASK,
    ("tool_completed", "c1", "ok"),
    ("text", "Done."),
)


async def answer(play: ScenarioRun, name: str, choice: str, **more: Any) -> Exchange:
    """Answer the latest turn."""
    return await play.post(name, f"{RUNS}/{play.run_id}/approval", {"choice": choice, **more})


def _add_approvals() -> None:
    async def answered(choice: str, route: Route, play: ScenarioRun) -> None:
        await make_session(play)
        play.script = ASKING
        async with play.open("asking", "POST", route.path, route.body):
            await play.wait_held("ask")
            await play.get("live run", f"{RUNS}/{play.run_id}")
            if route.path == RESPONSES:
                await play.get("live object", f"{RESPONSES}/{play.run_id}")
            await answer(play, "answer", choice)
        await read_run(play, "asked")
        await answer(play, "too late", choice)
        await play.get("remembered", "/v1/approvals")

    for name, route in ROUTES.items():
        for choice in ("once", "session", "always", "deny") if route.is_streamed else ():
            about = f"The agent asks, the client answers '{choice}'. By {name}."
            FLOWS.append(
                Scenario(f"approval-{choice}-{name}", about, partial(answered, choice, route))
            )


_add_approvals()


@on_each_route("approval-timeout", *STREAMED)
async def approval_timeout(route: Route, play: ScenarioRun) -> None:
    """The agent asks and nobody answers in time."""
    await make_session(play)
    play.script = ASKING
    async with play.open("asking", "POST", route.path, route.body):
        await play.wait_held("ask")
        await play.jump(300.0)
    await read_run(play, "asked")


@on_each_route("approval-nobody", *BATCH)
async def approval_nobody(route: Route, play: ScenarioRun) -> None:
    """The agent asks where nobody can answer."""
    await make_session(play)
    play.script = ASKING
    await play.post("asking", route.path, route.body)
    await read_run(play, "asked")


@on_each_route("approval-cut", *STREAMED)
async def approval_cut(route: Route, play: ScenarioRun) -> None:
    """The client leaves while the agent asks."""
    await make_session(play)
    play.script = ASKING
    async with play.open("asking", "POST", route.path, route.body) as exchange:
        await play.wait_held("ask")
        exchange.disconnect()
    await read_run(play, "asked")


@on_each_route("approval-stop", *STREAMED)
async def approval_stop(route: Route, play: ScenarioRun) -> None:
    """The run is stopped while the agent asks."""
    await make_session(play)
    play.script = ASKING
    async with play.open("asking", "POST", route.path, route.body):
        await play.wait_held("ask")
        await play.post("stop", f"{RUNS}/{play.run_id}/stop")
    await read_run(play, "asked")


@scenario("approval-runs")
async def approval_runs(play: ScenarioRun) -> None:
    """A run asks twice: what was granted for the session is not asked again in it, and elsewhere it is."""
    play.script = ASKING
    for session in ("here", "here", "elsewhere"):
        await play.start("started", RUNS, {**INPUT, "session_id": session})
        if session != "here" or len(play.turns) < 2:
            await play.wait_held("ask")
            await play.get("live run", f"{RUNS}/{play.run_id}")
            await play.get("live list", f"{RUNS}?status=waiting_for_approval")
            await answer(play, "answer", "session")
        await read_run(play, session)
    await play.get("remembered", "/v1/approvals")
    await play.send("revoke", "DELETE", "/v1/approvals?pattern=rm&session_id=here")
    await play.send("revoke again", "DELETE", "/v1/approvals?pattern=rm&session_id=here")
    await play.get("remembered after that", "/v1/approvals")


@scenario("approval-bad-answers")
async def approval_bad_answers(play: ScenarioRun) -> None:
    """Answers that are refused, and one that is not."""
    play.script = say(("ask", "format disk", "", (), "", False), ("text", "Done."))
    await play.start("started", RUNS, INPUT)
    await play.wait_held("ask")
    await answer(play, "unknown choice", "perhaps")
    await answer(play, "not offered", "always")
    await answer(play, "unknown question", "once", approval_id="appr_none")
    await play.post("no choice", f"{RUNS}/{play.run_id}/approval", {})
    await play.post("no run", f"{RUNS}/run_none/approval", {"choice": "once"})
    await play.post("no response", f"{RESPONSES}/resp_none/approval", {"choice": "once"})
    await answer(play, "another word", "approve", all=True)
    await read_run(play, "asked")


@scenario("approval-by-response")
async def approval_by_response(play: ScenarioRun) -> None:
    """A response in the background asks, and is answered under its own path."""
    play.script = ASKING
    await play.start("created", RESPONSES, {**INPUT, "background": True})
    await play.wait_held("ask")
    await play.get("live object", f"{RESPONSES}/{play.run_id}")
    await play.post("answer", f"{RESPONSES}/{play.run_id}/approval", {"choice": "deny"})
    await read_run(play, "asked")
