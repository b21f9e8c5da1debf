"""Following a run over connections that break.

Every event comes once, in order, however they break.
"""

from __future__ import annotations

import pytest
import trio

from hermes_trio.client.api_client import (
    ApiClient,
    RequestRefused,
    ServerUnreachable,
    Target,
    TurnPrompt,
    open_client,
)
from hermes_trio.client.stream import (
    Received,
    Reconnecting,
    ReconnectPolicy,
    RetriesExhausted,
    StreamUpdate,
    stream_turn,
)
from hermes_trio.core.dialects.runs import frames_after
from hermes_trio.core.events import (
    Event,
    Finished,
    Reasoning,
    Result,
    Text,
    ToolCompleted,
    ToolOutput,
    ToolStarted,
)
from tests.client.runs import HEADER, RUN_ID, changes_of, data_of
from tests.client.server import HEAD, Flaky, calling, error, reply

SCRIPT: list[Event] = [
    Reasoning("hm"),
    ToolStarted("a", "terminal", {"command": "date"}, 1.0),
    ToolOutput("a", "Monday\n"),
    ToolCompleted("a", "Monday", False, 2.0),
    Text("It is "),
    Text("Mönday."),
    Finished(Result(), 3.0),
]
CHANGES = changes_of(SCRIPT)
WHOLE = data_of(frames_after(HEADER, CHANGES))
HASTY = ReconnectPolicy(attempts=3, first=0.0)
ASK = TurnPrompt("hello", "once")


async def notes_of(
    client: ApiClient, ask: TurnPrompt = ASK, policy: ReconnectPolicy = HASTY
) -> list[StreamUpdate]:
    """Everything that is reported about a run."""
    send, receive = trio.open_memory_channel[StreamUpdate](0)
    on_started: list[str] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream_turn, client, ask, send, on_started.append, policy)
        async with receive:
            notes = [note async for note in receive]
    assert on_started in ([], [RUN_ID])
    return notes


def told(notes: list[StreamUpdate]) -> list[str]:
    """The data of the events among them."""
    return [note.data for note in notes if isinstance(note, Received)]


async def test_a_run_that_does_not_break() -> None:
    server = Flaky(CHANGES)
    async with calling(server) as client:
        notes = await notes_of(client)
    assert told(notes) == WHOLE
    assert len(notes) == len(WHOLE)
    assert [asked.method for asked in server.asked] == ["POST", "GET"]
    assert server.asked[0].json == {"input": "hello"}
    assert server.asked[0].headers["idempotency-key"] == "once"
    assert server.asked[0].headers["authorization"] == "Bearer key"
    assert "last-event-id" not in server.asked[1].headers


async def test_a_connection_that_drops_after_every_frame() -> None:
    frames = [len(frame) + 2 for frame in frames_after(HEADER, CHANGES).split(b"\n\n")]
    server = Flaky(CHANGES, budget=lambda number: frames[number])
    async with calling(server) as client:
        notes = await notes_of(client)
    assert told(notes) == WHOLE
    drops = [note for note in notes if isinstance(note, Reconnecting)]
    assert [note.attempt for note in drops] == [1] * (len(WHOLE) - 1)  # each brought something
    seen = [asked.headers.get("last-event-id") for asked in server.asked[1:]]
    assert seen == [None, *map(str, range(len(WHOLE) - 1))]


@pytest.mark.parametrize("first", range(0, len(frames_after(HEADER, CHANGES)), 41))
async def test_a_connection_that_drops_within_a_frame(first: int) -> None:
    server = Flaky(CHANGES, budget=lambda number: first if number == 0 else 1_000_000)
    async with calling(server) as client:
        assert told(await notes_of(client)) == WHOLE


async def test_repeated_events_are_dropped() -> None:
    server = Flaky(CHANGES)
    whole = frames_after(HEADER, CHANGES)
    server.answers = [reply(202, {"run_id": RUN_ID}), HEAD + whole[:400], HEAD + whole]
    async with calling(server) as client:
        assert told(await notes_of(client)) == WHOLE


async def test_the_number_of_attempts_is_limited() -> None:
    server = Flaky(CHANGES, budget=lambda _number: 0)
    async with calling(server) as client:
        notes = await notes_of(client)
    assert [note.attempt for note in notes if isinstance(note, Reconnecting)] == [1, 2, 3]
    assert notes[-1] == RetriesExhausted("the connection was closed")
    assert len(server.asked) == 1 + 4


@pytest.mark.parametrize("answer", [error(404, "run_not_found"), error(401, "invalid_api_key")])
async def test_a_permanent_refusal_is_not_retried(answer: bytes) -> None:
    server = Flaky(CHANGES, answers=[reply(202, {"run_id": RUN_ID}), answer])
    async with calling(server) as client:
        [note] = await notes_of(client)
    assert isinstance(note, RetriesExhausted)


@pytest.mark.parametrize(
    "answer",
    [
        error(503, "gateway_draining"),
        HEAD + b"data: {\n\n",
        HEAD + b"data: 1\n\n",
        HEAD + b"data:" + b"x" * 1_100_000,
    ],
    ids=["503", "no json", "no event", "no end"],
)
async def test_a_temporary_refusal_is_retried(answer: bytes) -> None:
    server = Flaky(CHANGES, answers=[reply(202, {"run_id": RUN_ID}), answer])
    async with calling(server) as client:
        notes = await notes_of(client)
    assert told(notes) == WHOLE
    assert isinstance(notes[0], Reconnecting)


async def test_a_start_without_an_answer_is_repeated_with_the_same_key() -> None:
    server = Flaky(CHANGES, answers=[b"", error(409, "idempotency_key_pending")])
    async with calling(server) as client:
        assert told(await notes_of(client)) == WHOLE
    starts = [asked for asked in server.asked if asked.method == "POST"]
    assert [asked.headers["idempotency-key"] for asked in starts] == ["once"] * 3


@pytest.mark.parametrize(
    ("status", "is_misuse"), [(400, True), (401, True), (409, False), (429, False)]
)
async def test_a_start_that_is_refused(status: int, is_misuse: bool) -> None:
    server = Flaky(CHANGES, answers=[error(status, "because")])
    async with calling(server) as client:
        assert await notes_of(client) == [RetriesExhausted("no: because", is_misuse)]


async def test_a_start_that_never_succeeds() -> None:
    server = Flaky(CHANGES, answers=[b""] * 9)
    async with calling(server) as client:
        notes = await notes_of(client)
    assert len(notes) == HASTY.attempts + 1
    assert isinstance(notes[-1], RetriesExhausted)


async def test_an_unreachable_server() -> None:
    with trio.socket.socket() as free:
        await free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        async with open_client(Target(url, "k", is_local=True)) as client:
            [note] = await notes_of(client)
    assert isinstance(note, RetriesExhausted)
    assert "is the server running" in note.why


async def test_a_response_of_another_server() -> None:
    server = Flaky(CHANGES, answers=[reply(200, ["hello"]), reply(500, "what?"), reply(200, [])])
    async with calling(server) as client:
        with pytest.raises(ServerUnreachable, match="is this the address"):
            await client.call("GET", "/")
        with pytest.raises(RequestRefused, match="status 500"):
            await client.call("GET", "/")


# Sessions


async def test_a_turn_in_a_session_is_started_there_and_goes_on_by_itself() -> None:
    started = HEAD + b'event: run.started\nid: 1\ndata: {"run_id": "run_1", "seq": 1}\n\n'
    server = Flaky(CHANGES, answers=[started])
    async with calling(server) as client:
        assert told(await notes_of(client, TurnPrompt("hello", "once", session="a b"))) == WHOLE
    first = server.asked[0]
    assert first.path == "/api/sessions/a%20b/chat/stream"
    assert first.headers["x-hermes-on-disconnect"] == "detach"
    assert first.json == {"message": "hello"}


async def test_a_session_is_made_or_found() -> None:
    found = reply(200, {"session": {"id": "s", "model": "m"}})
    server = Flaky(
        CHANGES, answers=[found, error(409, "session_exists"), found, found, error(400, "other")]
    )
    async with calling(server) as client:
        assert await client.open_session("", "") == "s"
        assert await client.open_session("s", "m") == "s"
        with pytest.raises(RequestRefused, match="has model m"):
            await client.open_session("s", "another")
        with pytest.raises(RequestRefused, match="no: other"):
            await client.open_session("s", "")
    assert server.asked[0].json == {}
    assert server.asked[1].json == {"id": "s", "model": "m"}


async def test_the_prompts_of_a_session() -> None:
    messages = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": [{"type": "text"}]},
    ]
    server = Flaky(CHANGES, answers=[reply(200, {"data": messages})])
    async with calling(server) as client:
        assert await client.user_messages("s") == ["one"]


def test_pauses_grow_up_to_a_bound() -> None:
    policy = ReconnectPolicy()
    assert [policy.pause(attempt) for attempt in (1, 2, 3)] == [0.25, 0.5, 1.0]
    assert policy.pause(1, wanted=2.0) == 2.0
    assert policy.pause(50, wanted=600.0) == 5.0


def test_the_key_is_not_shown() -> None:
    assert "secret" not in repr(Target("http://a", "secret"))
