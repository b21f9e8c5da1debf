"""Sessions and lists of runs."""

from __future__ import annotations

from tests.golden.dialects import (
    CHAT,
    HI,
    INPUT,
    MESSAGE,
    RESPONSES,
    RUNS,
    SESSIONS,
)
from tests.golden.flows import (
    Route,
    held_after,
    make_session,
    on_each_route,
    scenario,
)
from tests.golden.scenario_run import ScenarioRun
from tests.golden.scripts import SCRIPTS


@scenario("session-api")
async def session_api(play: ScenarioRun) -> None:
    """Sessions made, named, talked in, branched, ended and deleted."""
    await make_session(play)
    one = f"{SESSIONS}/golden"
    await play.post("exists", SESSIONS, {"id": "golden"})
    await play.send("title", "PATCH", one, {"title": "A  title"})
    await play.post("same title", SESSIONS, {"title": "A title"})
    play.script = SCRIPTS["rounds"]
    await play.post("first turn", f"{one}/chat", {"message": "Hi", "system_message": "Be kind."})
    await play.note_run("first turn")
    play.script = SCRIPTS["client_call"]
    await play.post(
        "second turn", f"{one}/chat/stream", {"input": [{"type": "text", "text": "And?"}]}
    )
    await play.note_run("second turn")
    await play.get("messages", f"{one}/messages")
    await play.get("some messages", f"{one}/messages?after=2&limit=2")
    await play.post("fork", f"{one}/fork", {})
    await play.post("named fork", f"{one}/fork", {"id": "branch", "title": "Branch"})
    await play.get("messages of the fork", f"{SESSIONS}/branch/messages")
    play.script = SCRIPTS["plain"]
    await play.post("turn in the fork", f"{SESSIONS}/branch/chat", MESSAGE)
    await play.note_run("turn in the fork")
    await play.send("end", "PATCH", one, {"end_reason": "done"})
    await play.send("bad field", "PATCH", one, {"model": "x"})
    await play.get("list", SESSIONS)
    await play.get("list with children", f"{SESSIONS}?include_children=true&limit=2")
    await play.send("delete", "DELETE", one)
    await play.get("gone", one)
    await play.post("turn in none", f"{SESSIONS}/none/chat", MESSAGE)
    await play.post("stream in none", f"{SESSIONS}/none/chat/stream", MESSAGE)
    await play.post("empty", f"{SESSIONS}/branch/chat", {"message": ""})


@on_each_route("busy", "session-streamed", "session-batch")
async def busy(route: Route, play: ScenarioRun) -> None:
    """Two turns at once in one session."""
    await make_session(play)
    play.script = held_after(4)
    async with play.open("first", "POST", route.path, route.body):
        await play.wait_held("here")
        await play.post("second", route.path, route.body)
        play.release("here")
    await play.note_run("first")


@scenario("run-list")
async def run_list(play: ScenarioRun) -> None:
    """Runs of all kinds in one list."""
    await make_session(play)
    for name, path, body in (
        ("plain", CHAT, HI),
        ("raises", RESPONSES, INPUT),
        ("truncated", f"{SESSIONS}/golden/chat", MESSAGE),
        ("interrupted", RUNS, INPUT),
    ):
        play.script = SCRIPTS[name]
        await (play.start if path == RUNS else play.post)(name, path, body)
        await play.note_run(name)
    play.script = held_after(4)
    await play.start("live", RUNS, INPUT)
    await play.wait_held("here")
    for query in (
        "",
        "?limit=2",
        "?order=asc&limit=3",
        "?status=failed",
        "?status=running",
        "?kind=chat,runs",
    ):
        await play.get(f"list {query}", f"{RUNS}{query}")
    await play.get("next page", f"{RUNS}?limit=2&after={play.turns[3].run_id}")
    for query in ("?status=odd", "?limit=0", "?order=up", "?after=run_none", "?session_id=golden"):
        await play.get(f"list {query}", f"{RUNS}{query}")
    play.release("here")
    await play.note_run("live")
