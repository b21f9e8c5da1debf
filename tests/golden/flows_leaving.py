"""Clients that leave and come back, silence, time limits, and runs that are stopped."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.golden.agent import say
from tests.golden.dialects import (
    CHAT,
    INPUT,
    INPUT_STREAM,
    MESSAGE,
    RESPONSES,
    RUNS,
    SESSIONS,
    middle,
    read_run,
)
from tests.golden.flows import (
    FLOWS,
    ROUTES,
    STREAMED,
    Route,
    held_after,
    make_session,
    on_each_route,
    scenario,
)
from tests.golden.scenario_run import Scenario, ScenarioRun
from tests.golden.scripts import RICH, SCRIPTS

DETACH = {"X_Hermes_On_Disconnect": "detach"}


def _add_cuts() -> None:
    async def cut(steps: int, route: Route, play: ScenarioRun) -> None:
        await make_session(play)
        play.script = held_after(steps)
        async with play.open("cut", "POST", route.path, route.body) as exchange:
            await play.wait_held("here")
            exchange.disconnect()
        await read_run(play, "cut")

    for name, route in ROUTES.items():
        # After nothing, reasoning, text, output of a tool, its end, and the last word.
        for steps in (0, 2, 3, 5, 6, 8) if route.is_streamed else (0, 5):
            about = f"The client leaves after {steps} events of the agent. By {name}."
            FLOWS.append(Scenario(f"cut-{steps}-{name}", about, partial(cut, steps, route)))


_add_cuts()


@on_each_route("detached", *STREAMED[1:])
async def detached(route: Route, play: ScenarioRun) -> None:
    """The client leaves, the run goes on, the client comes back while it runs."""
    await make_session(play)
    play.script = say(*RICH[:5], ("hold", "here"), *RICH[5:], ("hold", "later"))
    async with play.open("cut", "POST", route.path, route.body, **DETACH) as exchange:
        await play.wait_held("here")
        exchange.disconnect()
    await play.note_record("live")
    await play.get("live run", f"{RUNS}/{play.run_id}")
    async with await back(play, route, middle(exchange)) as resumed:
        await resumed.wait_frames(1)
        play.release("here")
        await play.wait_held("later")
        play.release("later")
    await read_run(play, "ended")


async def back(play: ScenarioRun, route: Route, after: int) -> Any:
    """The request that picks a stream up."""
    if route.path == RESPONSES:
        one = f"{RESPONSES}/{play.run_id}"
        await play.get("live object", one)
        return play.open("resumed", "GET", f"{one}?stream=true&starting_after={after}")
    path = f"{SESSIONS}/golden/chat/stream?run_id={play.run_id}"
    return play.open("resumed", "GET", path, Last_Event_ID=str(after))


@scenario("runs-reader-leaves")
async def runs_reader_leaves(play: ScenarioRun) -> None:
    """A reader of a run leaves and comes back, from two points at once; the run does not care."""
    play.script = say(*RICH[:4], ("hold", "here"), *RICH[4:])
    await play.start("started", RUNS, INPUT)
    await play.wait_held("here")
    path = f"{RUNS}/{play.run_id}/events"
    async with play.open("cut", "GET", path) as cut:
        await cut.wait_frames(5)
        cut.disconnect()
    async with (
        play.open("resumed by header", "GET", path, Last_Event_ID="2") as one,
        play.open("resumed by query", "GET", f"{path}?last_seq=3") as two,
    ):
        await one.wait_frames(2)
        await two.wait_frames(1)
        play.release("here")
    await read_run(play, "ended")


@scenario("resume-after-every-event")
async def resume_after_every_event(play: ScenarioRun) -> None:
    """Each stream that can be picked up, picked up after each of its events."""
    await make_session(play)
    play.script = SCRIPTS["rich"]
    streamed = await play.post("response", RESPONSES, INPUT_STREAM)
    for n in range(-1, len(streamed.frames) + 1):
        await play.get(
            f"response after {n}", f"{RESPONSES}/{play.run_id}?stream=true&starting_after={n}"
        )
    path = f"{RUNS}/{play.run_id}/events"
    events = await play.get("run", path)
    for n in range(len(events.frames) + 1):
        await play.get(f"run after {n}", path, Last_Event_ID=str(n))
        await play.get(f"run after {n} by query", f"{path}?last_seq={n}")
    chatted = await play.post("session", f"{SESSIONS}/golden/chat/stream", MESSAGE)
    path = f"{SESSIONS}/golden/chat/stream?run_id={play.run_id}"
    for n in range(len(chatted.frames) + 2):
        await play.get(f"session after {n}", path, Last_Event_ID=str(n))
        await play.get(f"session after {n} by query", f"{path}&last_seq={n}")


@on_each_route("keepalive", *STREAMED, keepalive_seconds=10.0)
async def keepalive(route: Route, play: ScenarioRun) -> None:
    """A comment after every ten silent seconds."""
    await make_session(play)
    play.script = say(("text", "Wait. "), ("hold", "here"), ("text", "Done."))
    async with play.open("streamed", "POST", route.path, route.body):
        await play.wait_held("here")
        for seconds in (9.5, 0.5, 10.0):
            await play.jump(seconds)
        play.release("here")
    await play.note_run()


@on_each_route("time-limit", run_seconds=60.0)
async def time_limit(route: Route, play: ScenarioRun) -> None:
    """The run reaches its time limit in the middle of a tool call."""
    await make_session(play)
    play.script = held_after(5)
    async with play.open("limited", "POST", route.path, route.body):
        await play.wait_held("here")
        await play.jump(60.0)
    await read_run(play, "limited")


@on_each_route("stop")
async def stop(route: Route, play: ScenarioRun) -> None:
    """Somebody stops the run in the middle of a tool call, twice."""
    await make_session(play)
    play.script = held_after(5)
    async with play.open("stopped", "POST", route.path, route.body):
        await play.wait_held("here")
        if route.path != CHAT:  # its `updated_at` depends on how much of the log is in memory
            await play.get("live run", f"{RUNS}/{play.run_id}")
            await play.get("live list", RUNS)
        await play.post("stop", f"{RUNS}/{play.run_id}/stop")
    await play.cues.wait_idle()
    await play.post("stop again", f"{RUNS}/{play.run_id}/stop")
    await read_run(play, "stopped")


@scenario("runs-stop")
async def runs_stop(play: ScenarioRun) -> None:
    """A run is stopped while two clients follow it."""
    play.script = held_after(5)
    await play.start("started", RUNS, INPUT)
    await play.wait_held("here")
    path = f"{RUNS}/{play.run_id}"
    async with (
        play.open("events", "GET", f"{path}/events") as one,
        play.open("events from the middle", "GET", f"{path}/events?last_seq=2") as two,
    ):
        await one.wait_frames(6)
        await two.wait_frames(3)
        await play.post("stop", f"{path}/stop")
    await read_run(play, "stopped")
    await play.post("stop again", f"{path}/stop")


@scenario("runs-time-limit", run_seconds=60.0)
async def runs_time_limit(play: ScenarioRun) -> None:
    """A run reaches its time limit."""
    play.script = held_after(5)
    await play.start("started", RUNS, INPUT)
    await play.wait_held("here")
    await play.jump(60.0)
    await read_run(play, "limited")


@scenario("responses-cancel")
async def responses_cancel(play: ScenarioRun) -> None:
    """A response in the background is cancelled, twice; one that ran in the foreground cannot be."""
    play.script = held_after(5)
    await play.start("created", RESPONSES, {**INPUT, "background": True})
    await play.wait_held("here")
    path = f"{RESPONSES}/{play.run_id}"
    async with play.open("events", "GET", f"{path}?stream=true") as events:
        await events.wait_frames(9)
        await play.post("cancel", f"{path}/cancel")
    await play.post("cancel again", f"{path}/cancel")
    await read_run(play, "cancelled")
    play.script = SCRIPTS["plain"]
    await play.post("foreground", RESPONSES, INPUT)
    await play.post("cancel foreground", f"{RESPONSES}/{play.run_id}/cancel")


@scenario("responses-delete")
async def responses_delete(play: ScenarioRun) -> None:
    """A response that runs is deleted: it is stopped first. Then it is gone."""
    play.script = held_after(5)
    await play.start("created", RESPONSES, {**INPUT, "background": True})
    await play.wait_held("here")
    path = f"{RESPONSES}/{play.run_id}"
    async with play.open("events", "GET", f"{path}?stream=true") as events:
        await events.wait_frames(9)
        await play.send("delete", "DELETE", path)
    await play.note_run("deleted")
    await play.get("gone", path)
    await play.get("gone events", f"{path}?stream=true")
    await play.send("delete again", "DELETE", path)
