"""Responses in the background, not stored, chained, and in conversations."""

from __future__ import annotations

from tests.golden.dialects import (
    INPUT,
    INPUT_STREAM,
    RESPONSES,
    RUNS,
    SESSIONS,
    read_run,
)
from tests.golden.flows import (
    held_after,
    scenario,
)
from tests.golden.scenario_run import ScenarioRun
from tests.golden.scripts import SCRIPTS

CONVERSATIONS = "/v1/conversations"


@scenario("responses-background")
async def responses_background(play: ScenarioRun) -> None:
    """A response in the background: looked at and followed while it runs, and read when it has ended."""
    play.script = held_after(5)
    await play.start("created", RESPONSES, {**INPUT, "background": True}, is_held=True)
    path = f"{RESPONSES}/{play.run_id}"
    await play.get("at the start", path)
    play.release("start")
    await play.wait_held("here")
    await play.get("in the middle", path)
    await play.note_record("live")
    async with play.open("streamed", "GET", f"{path}?stream=true") as streamed:
        await streamed.wait_frames(9)
        async with play.open("resumed", "GET", f"{path}?stream=true&starting_after=5") as resumed:
            await resumed.wait_frames(1)
            play.release("here")
    await play.get("at the end", path)
    await read_run(play, "ended")


@scenario("responses-background-stream")
async def responses_background_stream(play: ScenarioRun) -> None:
    """A streamed response in the background goes on when its client leaves, and is resumed."""
    play.script = held_after(5)
    async with play.open("cut", "POST", RESPONSES, {**INPUT_STREAM, "background": True}) as cut:
        await play.wait_held("here")
        cut.disconnect()
    path = f"{RESPONSES}/{play.run_id}?stream=true&starting_after={len(cut.frames) - 1}"
    async with play.open("resumed", "GET", path) as resumed:
        await play.get("live object", f"{RESPONSES}/{play.run_id}")
        play.release("here")
        await resumed.wait_frames(1)
    await read_run(play, "ended")


@scenario("responses-not-stored")
async def responses_not_stored(play: ScenarioRun) -> None:
    """Responses that are not to be stored, streamed, in one piece and cut: nothing of them is found."""
    play.script = SCRIPTS["rich"]
    for name, body in (("streamed", INPUT_STREAM), ("batch", INPUT)):
        await play.post(name, RESPONSES, {**body, "store": False})
        await play.note_run(name)
        path = f"{RESPONSES}/{play.run_id}"
        await play.get("object", path)
        await play.get("events", f"{path}?stream=true")
        await play.get("run", f"{RUNS}/{play.run_id}")
        await play.get("messages", f"{SESSIONS}/{play.session_id}/messages")
    play.script = held_after(4)
    async with play.open("cut", "POST", RESPONSES, {**INPUT_STREAM, "store": False}) as exchange:
        await play.wait_held("here")
        exchange.disconnect()
    await play.note_run("cut")
    await play.get("list", RUNS)
    await play.post("background", RESPONSES, {**INPUT, "store": False, "background": True})


@scenario("responses-chain")
async def responses_chain(play: ScenarioRun) -> None:
    """Responses that continue each other, with instructions that hold until others are given."""
    play.script = SCRIPTS["one_tool"]
    await play.post("first", RESPONSES, {**INPUT, "instructions": "Be brief."})
    await play.note_run("first")
    first = play.run_id
    play.script = SCRIPTS["plain"]
    await play.post(
        "second", RESPONSES, {"input": "And?", "previous_response_id": first, "stream": True}
    )
    await play.note_run("second")
    changed = {"input": "So?", "previous_response_id": play.run_id, "instructions": "Be long."}
    await play.post("third", RESPONSES, changed)
    await play.note_run("third")
    await play.post("branch", RESPONSES, {"input": "Or?", "previous_response_id": first})
    await play.note_run("branch")
    await play.start("a run", RUNS, {"input": "Go on.", "previous_response_id": first})
    await play.note_run("a run")
    history = [{"role": "user", "content": "Was it?"}, {"role": "assistant", "content": "It was."}]
    explicit = {"input": "Well?", "conversation_history": history, "previous_response_id": first}
    await play.post("explicit history", RESPONSES, explicit)
    await play.note_run("explicit history")
    await play.post("unknown", RESPONSES, {"input": "?", "previous_response_id": "resp_none"})
    play.script = held_after(1)
    await play.start("live", RESPONSES, {**INPUT, "background": True})
    await play.wait_held("here")
    await play.post("of a live one", RESPONSES, {"input": "?", "previous_response_id": play.run_id})
    play.release("here")
    await play.note_run("live")


@scenario("responses-client-tools")
async def responses_client_tools(play: ScenarioRun) -> None:
    """The client runs the tools and returns their results."""
    tool = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
    nested = {"type": "function", "function": {"name": "get_time", "description": "Now"}}
    play.script = SCRIPTS["client_call"]
    body = {
        "tools": [tool, nested, {"type": "web_search"}],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
    }
    await play.post("calls", RESPONSES, {**INPUT_STREAM, **body})
    await play.note_run("calls")
    outputs = [
        {"type": "function_call_output", "call_id": "call_a", "output": "rain"},
        {
            "type": "function_call_output",
            "call_id": "call_b",
            "output": [{"type": "input_text", "text": "noon"}],
        },
    ]
    play.script = SCRIPTS["plain"]
    await play.post("results", RESPONSES, {"input": outputs, "previous_response_id": play.run_id})
    await play.note_run("results")


@scenario("responses-echo")
async def responses_echo(play: ScenarioRun) -> None:
    """Everything of a request that the response repeats."""
    play.script = SCRIPTS["usage"]
    body = {
        "model": "hermes-agent",
        "instructions": "Be brief \u2028 and \U0001f642.",
        "metadata": {"key": "value", "\u00e9": "\u65e5"},
        "temperature": 0.25,
        "top_p": 0.5,
        "top_logprobs": 3,
        "max_output_tokens": 100,
        "max_tool_calls": 4,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "truncation": "auto",
        "reasoning": {"effort": "low"},
        "text": {"verbosity": "low"},
        "service_tier": "default",
        "user": "u",
        "safety_identifier": "s",
        "prompt_cache_key": "p",
        "include": ["reasoning.encrypted_content"],
    }
    said = [
        {"role": "system", "content": "System."},
        {"role": "user", "content": [{"type": "input_text", "text": "One"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Two"}],
        },
        {"role": "user", "content": "Three"},
    ]
    await play.post("streamed", RESPONSES, {"input": said, "stream": True, **body})
    await play.note_run("streamed")
    path = f"{RESPONSES}/{play.run_id}"
    await play.get("object", path)
    for query in (
        "",
        "?order=asc",
        "?limit=1",
        "?limit=2&order=asc",
        "?after=msg_none",
        "?order=up",
        "?limit=0",
    ):
        await play.get(f"input items {query}", f"{path}/input_items{query}")
    await play.post("batch", RESPONSES, {"input": said, **body})


@scenario("responses-conversation")
async def responses_conversation(play: ScenarioRun) -> None:
    """Turns in a conversation that was made before, and in one that begins by its name."""
    play.script = SCRIPTS["rich"]
    items = [{"type": "message", "role": "user", "content": "Earlier."}]
    made = await play.post("made", CONVERSATIONS, {"metadata": {"a": "b"}, "items": items})
    one = made.json["id"]
    await play.post("first", RESPONSES, {**INPUT_STREAM, "conversation": one})
    await play.note_run("first")
    await play.post("second", RESPONSES, {"input": "And?", "conversation": {"id": one}})
    await play.note_run("second")
    path = f"{CONVERSATIONS}/{one}"
    found = await play.get("items", f"{path}/items")
    await play.get("oldest items", f"{path}/items?order=asc&limit=2")
    await play.get("item", f"{path}/items/{found.json['data'][0]['id']}")
    await play.send("delete item", "DELETE", f"{path}/items/{found.json['data'][0]['id']}")
    await play.post("add items", f"{path}/items", {"items": items})
    await play.post("update", path, {"metadata": {"c": "d"}})
    await play.get("conversation", path)
    for name in ("first by name", "second by name"):
        await play.post(name, RESPONSES, {**INPUT, "conversation": "my talk \u00e9"})
        await play.note_run(name)
    await play.send("delete", "DELETE", path)
    await play.get("gone", path)
    await play.post("unknown", RESPONSES, {**INPUT, "conversation": "conv_none"})
    await play.post("both", RESPONSES, {**INPUT, "conversation": "x", "previous_response_id": "y"})
    play.script = held_after(4)
    async with play.open(
        "cut", "POST", RESPONSES, {**INPUT_STREAM, "conversation": "cut"}
    ) as exchange:
        await play.wait_held("here")
        await play.post("busy", RESPONSES, {**INPUT, "conversation": "cut"})
        exchange.disconnect()
    await play.note_run("cut")
    await play.get("items of the cut one", f"{CONVERSATIONS}/cut/items")
