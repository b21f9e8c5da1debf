"""Each script by each API, streamed and in one piece, and everything that can be read of it afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tests.golden.agent import Script
from tests.golden.client import Exchange
from tests.golden.scenario_run import Scenario, ScenarioRun
from tests.golden.scripts import SCRIPTS

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
RUNS = "/v1/runs"
SESSIONS = "/api/sessions"
HI = {"messages": [{"role": "user", "content": "Hi"}]}
HI_STREAM = {**HI, "stream": True}
INPUT = {"input": "Hi"}
INPUT_STREAM = {**INPUT, "stream": True}
MESSAGE = {"message": "Hi"}


def middle(stream: Exchange) -> int:
    """The number of an event in the middle of a stream."""
    return len(stream.frames) // 2


async def read_run(play: ScenarioRun, name: str) -> None:
    """What the Runs API and the Sessions API tell of the latest turn."""
    await play.note_run(name)
    await play.get(f"{name}: run", f"{RUNS}/{play.run_id}")
    await play.get(f"{name}: run events", f"{RUNS}/{play.run_id}/events")
    await play.get(f"{name}: messages", f"{SESSIONS}/{play.session_id}/messages")


async def chat(script: Script, play: ScenarioRun) -> None:
    """Chat Completions."""
    play.script = script
    await play.post("streamed", CHAT, HI_STREAM)
    await read_run(play, "streamed")
    await play.post("batch", CHAT, HI)
    await play.note_run("batch")


async def responses(script: Script, play: ScenarioRun) -> None:
    """Responses."""
    play.script = script
    streamed = await play.post("streamed", RESPONSES, INPUT_STREAM)
    await read_run(play, "streamed")
    await read_response(play, streamed)
    await play.post("batch", RESPONSES, INPUT)
    await play.note_run("batch")
    await play.get("batch: object", f"{RESPONSES}/{play.run_id}")


async def read_response(play: ScenarioRun, streamed: Exchange) -> None:
    """What can be read of a stored response."""
    one = f"{RESPONSES}/{play.run_id}"
    await play.get("object", one)
    await play.get("streamed again", f"{one}?stream=true")
    await play.get("resumed", f"{one}?stream=true&starting_after={middle(streamed)}")
    await play.get("input items", f"{one}/input_items")


async def runs(script: Script, play: ScenarioRun) -> None:
    """Runs: started by one request, followed by another."""
    play.script = script
    await play.start("started", RUNS, INPUT, is_held=True)
    await play.get("live object", f"{RUNS}/{play.run_id}")
    await play.note_record("live")
    async with play.open("events", "GET", f"{RUNS}/{play.run_id}/events") as events:
        await events.wait_frames(1)
        play.release("start")
    await read_run(play, "ended")
    await resume_events(play, f"{RUNS}/{play.run_id}/events", events)


async def resume_events(play: ScenarioRun, path: str, events: Exchange) -> None:
    """Come back to an ended stream from its middle and from its end."""
    query = "&" if "?" in path else "?"
    last = max(line for frame in events.frames for line in _ids(frame))
    await play.get("resumed by header", path, Last_Event_ID=str(middle(events)))
    await play.get("resumed by query", f"{path}{query}last_seq={middle(events)}")
    await play.get("has everything", path, Last_Event_ID=str(last))
    await play.get("has more than there is", path, Last_Event_ID=str(last + 7))


def _ids(frame: str) -> list[int]:
    return [int(line[4:]) for line in frame.split("\n") if line.startswith("id: ")]


async def session(script: Script, play: ScenarioRun) -> None:
    """Turns in a session."""
    play.script = script
    created = await play.post("created", SESSIONS, {"title": "Golden"})
    one = f"{SESSIONS}/{created.json['session']['id']}"
    streamed = await play.post("streamed", f"{one}/chat/stream", MESSAGE)
    await read_run(play, "streamed")
    path = f"{one}/chat/stream?run_id={play.run_id}"
    await play.get("streamed again", path)
    await resume_events(play, path, streamed)
    await play.post("batch", f"{one}/chat", MESSAGE)
    await play.note_run("batch")
    await play.get("session", one)


DIALECTS = {"chat": chat, "responses": responses, "runs": runs, "session": session}


def dialect_scenarios() -> Iterator[Scenario]:
    """All scripts by all APIs."""
    for script_name, script in SCRIPTS.items():
        for dialect, flow in DIALECTS.items():
            about = f"The script '{script_name}' by {flow.__doc__}".rstrip(".")
            yield Scenario(f"{dialect}-{script_name}", about, partial(flow, script))
