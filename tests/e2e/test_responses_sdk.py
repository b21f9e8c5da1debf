"""The real OpenAI client for Python on the Responses API, every event held strictly against its models."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from openai import OpenAI
from openai.types.responses import Response

from tests.e2e.responses import client_of, kinds, reason, strictly, valid
from tests.e2e.sdk import MODEL
from tests.support.server_process import ServerProcess, eventually

pytestmark = pytest.mark.xdist_group("e2e-shared")

TOOLS = "/think hard\n/terminal echo one\n/write notes.txt two"


@pytest.fixture
def client(server: ServerProcess) -> Iterator[OpenAI]:
    with client_of(server) as client:
        yield client


def ended(client: OpenAI, response_id: str) -> Response:
    """A response that was started in the background, when it is over."""
    eventually(lambda: client.responses.retrieve(response_id).status != "in_progress", 10)
    return valid(client.responses.retrieve(response_id))


def test_a_whole_answer(client: OpenAI) -> None:
    response = valid(client.responses.create(model=MODEL, input="good morning, ¡señor! 👋"))
    assert response.status == "completed"
    assert "You said: “good morning, ¡señor! 👋”." in response.output_text
    assert response.usage is not None
    assert response.usage.output_tokens > 0
    again = valid(client.responses.retrieve(response.id))
    assert again.to_dict() == response.to_dict()


@pytest.mark.parametrize(
    ("text", "options", "last"),
    [
        (TOOLS, {}, "response.completed"),
        ("/long 50", {"max_output_tokens": 30}, "response.incomplete"),
        ("/terminal true\n/fail the shed burned down", {}, "response.failed"),
    ],
)
def test_a_stream(client: OpenAI, text: str, options: dict[str, int], last: str) -> None:
    stream = client.responses.create(model=MODEL, input=text, stream=True, **options)  # type: ignore[call-overload]
    events = list(strictly(stream))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[0].sequence_number == 0
    assert events[-1].type == last
    final = events[-1].response
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert deltas == final.output_text
    done = [event.item.to_dict() for event in events if event.type == "response.output_item.done"]
    assert sorted(map(str, done)) == sorted(str(item.to_dict()) for item in final.output)
    kept = valid(client.responses.retrieve(final.id))
    assert (kept.status, kept.output_text, kinds(kept)) == (final.status, deltas, kinds(final))


def test_the_stream_helper(client: OpenAI) -> None:
    with client.responses.stream(model=MODEL, input=TOOLS) as stream:
        types = [event.type for event in stream]
        final = stream.get_final_response()
    assert types[-1] == "response.completed"
    assert kinds(final) == [
        "message", "reasoning", "mcp_call", "mcp_call", "message",
    ]  # fmt: skip


def test_a_client_that_shows_calls_as_cards_asks_for_both_items(client: OpenAI) -> None:
    headers = {"X-Hermes-Tool-Items": "function_call"}
    response = valid(client.responses.create(model=MODEL, input=TOOLS, extra_headers=headers))
    assert kinds(response) == [
        "message", "reasoning", "function_call", "function_call_output",
        "function_call", "function_call_output", "message",
    ]  # fmt: skip


@pytest.mark.parametrize("after", [-1, 0, 5, 17])
def test_a_broken_stream_is_resumed(client: OpenAI, after: int) -> None:
    whole = list(strictly(client.responses.create(model=MODEL, input=TOOLS, stream=True)))
    stream = client.responses.retrieve(whole[0].response.id, stream=True, starting_after=after)
    resumed = list(strictly(stream))
    assert [event.to_dict() for event in resumed] == [
        event.to_dict() for event in whole[after + 1 :]
    ]


def test_a_live_stream_is_joined(client: OpenAI) -> None:
    """One reader sees it all, another one joins in the middle."""
    response = client.responses.create(model=MODEL, input="/long 40", background=True)
    whole = []
    for event in strictly(client.responses.retrieve(response.id, stream=True)):
        whole.append(event.to_dict())
        if event.type == "response.output_text.delta" and len(whole) < 20:
            assert client.responses.retrieve(response.id).status == "in_progress"
    later = client.responses.retrieve(response.id, stream=True, starting_after=9)
    assert [event.to_dict() for event in strictly(later)] == whole[10:]


def test_background(client: OpenAI) -> None:
    response = valid(client.responses.create(model=MODEL, input=TOOLS, background=True))
    assert (response.status, response.background) == ("in_progress", True)
    final = ended(client, response.id)
    assert final.status == "completed"
    assert client.responses.cancel(response.id).status == "completed"


def test_cancel(client: OpenAI) -> None:
    response = client.responses.create(model=MODEL, input="/sleep 60", background=True)
    eventually(lambda: "mcp_call" in kinds(client.responses.retrieve(response.id)), 5)
    cancelled = valid(client.responses.cancel(response.id))
    assert cancelled.status == "cancelled"
    assert kinds(cancelled)[-1] == "mcp_call"
    assert valid(client.responses.cancel(response.id)).status == "cancelled"


def test_an_ended_foreground_response_cannot_be_cancelled(client: OpenAI) -> None:
    response = client.responses.create(model=MODEL, input="/long 2")
    with pytest.raises(openai.BadRequestError):
        client.responses.cancel(response.id)


def test_delete(client: OpenAI) -> None:
    response = client.responses.create(model=MODEL, input="/long 2")
    client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model=MODEL, input="on", previous_response_id=response.id)


def test_not_stored(client: OpenAI) -> None:
    events = list(
        strictly(client.responses.create(model=MODEL, input="/long 2", stream=True, store=False))
    )
    assert events[-1].response.store is False
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(events[0].response.id)


def test_input_items(client: OpenAI) -> None:
    said = [{"role": "user", "content": str(number)} for number in range(5)]
    response = client.responses.create(model=MODEL, input=said)  # type: ignore[arg-type]  # plain dicts
    pages = client.responses.input_items.list(response.id, limit=2, order="asc")
    items = list(pages)
    assert [item.to_dict()["content"] for item in items] == [
        [{"type": "input_text", "text": str(number)}] for number in range(5)
    ]
    assert len({item.id for item in items}) == 5


def test_a_chain(client: OpenAI) -> None:
    """The demo agent introduces itself only when it knows of no earlier turn."""
    first = client.responses.create(model=MODEL, input="hello")
    assert "demo agent" in first.output_text
    with client.responses.stream(
        model=MODEL, input="again", previous_response_id=first.id
    ) as stream:
        for _ in stream:
            pass
        second = stream.get_final_response()
    assert "demo agent" not in second.output_text
    third = valid(
        client.responses.create(model=MODEL, input="more", previous_response_id=second.id)
    )
    assert "demo agent" not in third.output_text
    assert third.previous_response_id == second.id


def test_a_cut_turn_can_be_continued(client: OpenAI) -> None:
    response = client.responses.create(model=MODEL, input="/sleep 60", background=True)
    client.responses.cancel(response.id)
    following = client.responses.create(
        model=MODEL, input="/long 2", previous_response_id=response.id
    )
    assert following.status == "completed"


def test_conversations(client: OpenAI) -> None:
    talk = client.conversations.create(metadata={"topic": "tests"})
    first = client.responses.create(model=MODEL, input="hello", conversation=talk.id)
    assert first.conversation is not None
    assert first.conversation.id == talk.id
    second = client.responses.create(model=MODEL, input="again", conversation=talk.id)
    assert "demo agent" not in second.output_text
    items = list(client.conversations.items.list(talk.id, order="asc", limit=2))
    assert [getattr(item, "role", "") for item in items] == ["user", "assistant"] * 2
    assert client.conversations.update(talk.id, metadata={"topic": "done"}).metadata == {
        "topic": "done"
    }
    assert client.conversations.retrieve(talk.id).metadata == {"topic": "done"}
    assert client.conversations.delete(talk.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(talk.id)
    assert valid(client.responses.retrieve(second.id)).status == "completed"


def test_a_failure_is_reported_and_stored(client: OpenAI) -> None:
    response = client.responses.create(model=MODEL, input="/fail no", background=True)
    final = ended(client, response.id)
    assert final.status == "failed"
    assert final.error is not None
    assert (final.error.code, reason(final)) == ("server_error", "agent_error")
