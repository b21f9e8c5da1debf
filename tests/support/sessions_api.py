"""Making sessions, talking in them, and reading what comes of it."""

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
    """A new session."""
    return session_of(await harness.client.send(SESSIONS, body), 201)


def session_of(answer: HttpResponse, status: int = 200) -> Json:
    """The one session of an answer, held against its description."""
    assert answer.status == status, answer.body
    msgspec.convert(answer.json, replies.SessionReply)
    assert set(answer.json) == {"object", "session"}
    assert set(answer.json["session"]) == set(attrs.fields_dict(replies.SessionObject))
    return dict(answer.json["session"])


async def shown(harness: AppHarness, session_id: str) -> Json:
    """A session as it stands."""
    return session_of(await harness.client.get(f"{SESSIONS}/{session_id}"))


async def listed(
    harness: AppHarness, query: str = "", headers: dict[str, str] | None = None
) -> Json:
    """A page of sessions."""
    answer = await harness.client.get(f"{SESSIONS}{query}", headers or {})
    assert answer.status == 200, answer.body
    msgspec.convert(answer.json, replies.SessionList)
    return dict(answer.json)


async def ids(harness: AppHarness, query: str = "") -> list[str]:
    """The sessions of a page."""
    return [each["id"] for each in (await listed(harness, query))["data"]]


async def messages(harness: AppHarness, session_id: str, query: str = "") -> Json:
    """A page of a transcript."""
    answer = await harness.client.get(f"{SESSIONS}/{session_id}/messages{query}")
    assert answer.status == 200, answer.body
    msgspec.convert(answer.json, replies.SessionMessages)
    return dict(answer.json)


async def transcript(harness: AppHarness, session_id: str) -> list[tuple[str, Any]]:
    """Who said what."""
    return [
        (each["role"], each["content"]) for each in (await messages(harness, session_id))["data"]
    ]


async def patched(harness: AppHarness, session_id: str, body: object) -> HttpResponse:
    """A session that is to be changed."""
    return await with_body(harness, "PATCH", f"{SESSIONS}/{session_id}", json.dumps(body).encode())


async def with_body(harness: AppHarness, method: str, path: str, body: bytes) -> HttpResponse:
    """Any request with a body."""
    async with harness.client.open(method, path, [body], JSON) as exchange:
        return await exchange.end()


def deleted(answer: HttpResponse) -> str:
    """The id of a session that was deleted."""
    assert answer.status == 200, answer.body
    told = msgspec.convert(answer.json, replies.SessionGone)
    assert told.deleted
    return told.id


def reply_of(answer: HttpResponse) -> Json:
    """A turn in one piece."""
    assert answer.status == 200, answer.body
    msgspec.convert(answer.json, replies.SessionChatReply)
    return dict(answer.json)


def events(answer: HttpResponse) -> list[Json]:
    """The events of a whole stream, held against all rules."""
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"] == "text/event-stream"
    found = check_whole(answer.body)
    for event in found:
        msgspec.convert(event, replies.SessionEvent)
    return found


async def run_id_of(exchange: Exchange) -> str:
    """The id that the first event of a stream tells."""
    block = await exchange.block("utf-8")
    assert block.startswith("event: run.started\nid: 1\n")
    return str(json.loads(block.partition("data: ")[2])["run_id"])


def refusal(answer: HttpResponse) -> tuple[int, Any, Any]:
    """What was wrong, and where."""
    return answer.status, answer.error["code"], answer.error["param"]
