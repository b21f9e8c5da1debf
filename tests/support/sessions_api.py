"""Create sessions, run turns in them, and read the results."""

from __future__ import annotations

import json
from typing import Any

import attrs
import msgspec

from hermes_trio.schema import replies
from tests.support.asgi import JSON, Exchange, HttpResponse
from tests.support.fakes import AppHarness
from tests.support.session_stream_rules import check_whole

SESSIONS = "/api/sessions"
Json = dict[str, Any]


async def made(harness: AppHarness, **body: Any) -> Json:
    """Create a session, and return it."""
    return session_of(await harness.client.send(SESSIONS, body), 201)


def session_of(answer: HttpResponse, status: int = 200) -> Json:
    """Return the one session of a reply, validated against the OpenAPI document."""
    assert answer.status == status, answer.body
    msgspec.convert(answer.json, replies.SessionReply)
    assert set(answer.json) == {"object", "session"}
    assert set(answer.json["session"]) == set(attrs.fields_dict(replies.SessionObject))
    return dict(answer.json["session"])


async def shown(harness: AppHarness, session_id: str) -> Json:
    """Return a session in its current state."""
    return session_of(await harness.client.get(f"{SESSIONS}/{session_id}"))


async def listed(
    harness: AppHarness, query: str = "", headers: dict[str, str] | None = None
) -> Json:
    """Return a page of sessions."""
    answer = await harness.client.get(f"{SESSIONS}{query}", headers or {})
    assert answer.status == 200, answer.body
    msgspec.convert(answer.json, replies.SessionList)
    return dict(answer.json)


async def ids(harness: AppHarness, query: str = "") -> list[str]:
    """Return the ids of the sessions of a page."""
    return [each["id"] for each in (await listed(harness, query))["data"]]


async def messages(harness: AppHarness, session_id: str, query: str = "") -> Json:
    """Return a page of a transcript."""
    answer = await harness.client.get(f"{SESSIONS}/{session_id}/messages{query}")
    assert answer.status == 200, answer.body
    msgspec.convert(answer.json, replies.SessionMessages)
    return dict(answer.json)


async def transcript(harness: AppHarness, session_id: str) -> list[tuple[str, Any]]:
    """Return the roles and texts of a transcript."""
    return [
        (each["role"], each["content"]) for each in (await messages(harness, session_id))["data"]
    ]


async def patched(harness: AppHarness, session_id: str, body: object) -> HttpResponse:
    """Change a session, and return the reply."""
    return await with_body(harness, "PATCH", f"{SESSIONS}/{session_id}", json.dumps(body).encode())


async def with_body(harness: AppHarness, method: str, path: str, body: bytes) -> HttpResponse:
    """Send a request with a body, and return the reply."""
    async with harness.client.open(method, path, [body], JSON) as exchange:
        return await exchange.end()


def deleted(answer: HttpResponse) -> str:
    """Return the id in the reply to a deletion."""
    assert answer.status == 200, answer.body
    told = msgspec.convert(answer.json, replies.SessionGone)
    assert told.deleted
    return told.id


def reply_of(answer: HttpResponse) -> Json:
    """Return the reply of a turn that was not streamed, after validating it."""
    assert answer.status == 200, answer.body
    msgspec.convert(answer.json, replies.SessionChatReply)
    return dict(answer.json)


def events(answer: HttpResponse) -> list[Json]:
    """Return the events of a whole stream, and check them against all rules."""
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"] == "text/event-stream"
    found = check_whole(answer.body)
    for event in found:
        msgspec.convert(event, replies.SessionEvent)
    return found


async def run_id_of(exchange: Exchange) -> str:
    """Return the run id in the first event of a stream."""
    block = await exchange.block("utf-8")
    assert block.startswith("event: run.started\nid: 1\n")
    return str(json.loads(block.partition("data: ")[2])["run_id"])


def refusal(answer: HttpResponse) -> tuple[int, Any, Any]:
    """Return the status, the code and the parameter of an error."""
    return answer.status, answer.error["code"], answer.error["param"]
