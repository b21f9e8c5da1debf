"""Making sessions, talking in them, and reading what comes of it."""

from __future__ import annotations

import json
from typing import Any

import attrs
import msgspec

from hermes_trio.schema import replies
from tests.support.asgi import JSON, Answer, Exchange
from tests.support.fakes import Rig
from tests.support.session_stream_rules import check_whole

SESSIONS = "/api/sessions"
Json = dict[str, Any]


async def made(rig: Rig, **body: Any) -> Json:
    """A new session."""
    return session_of(await rig.client.send(SESSIONS, body), 201)


def session_of(answer: Answer, status: int = 200) -> Json:
    """The one session of an answer, held against its description."""
    assert answer.status == status, answer.body
    msgspec.convert(answer.json, replies.SessionReply)
    assert set(answer.json) == {"object", "session"}
    assert set(answer.json["session"]) == set(attrs.fields_dict(replies.SessionObject))
    return dict(answer.json["session"])


async def shown(rig: Rig, session_id: str) -> Json:
    """A session as it stands."""
    return session_of(await rig.client.get(f"{SESSIONS}/{session_id}"))


async def listed(rig: Rig, query: str = "", headers: dict[str, str] | None = None) -> Json:
    """A page of sessions."""
    answer = await rig.client.get(f"{SESSIONS}{query}", headers or {})
    assert answer.status == 200, answer.body
    msgspec.convert(answer.json, replies.SessionList)
    return dict(answer.json)


async def ids(rig: Rig, query: str = "") -> list[str]:
    """The sessions of a page."""
    return [each["id"] for each in (await listed(rig, query))["data"]]


async def messages(rig: Rig, session_id: str, query: str = "") -> Json:
    """A page of a transcript."""
    answer = await rig.client.get(f"{SESSIONS}/{session_id}/messages{query}")
    assert answer.status == 200, answer.body
    msgspec.convert(answer.json, replies.SessionMessages)
    return dict(answer.json)


async def transcript(rig: Rig, session_id: str) -> list[tuple[str, Any]]:
    """Who said what."""
    return [(each["role"], each["content"]) for each in (await messages(rig, session_id))["data"]]


async def patched(rig: Rig, session_id: str, body: object) -> Answer:
    """A session that is to be changed."""
    return await with_body(rig, "PATCH", f"{SESSIONS}/{session_id}", json.dumps(body).encode())


async def with_body(rig: Rig, method: str, path: str, body: bytes) -> Answer:
    """Any request with a body."""
    async with rig.client.open(method, path, [body], JSON) as exchange:
        return await exchange.end()


def deleted(answer: Answer) -> str:
    """The id of a session that was deleted."""
    assert answer.status == 200, answer.body
    told = msgspec.convert(answer.json, replies.SessionGone)
    assert told.deleted
    return told.id


def reply_of(answer: Answer) -> Json:
    """A turn in one piece."""
    assert answer.status == 200, answer.body
    msgspec.convert(answer.json, replies.SessionChatReply)
    return dict(answer.json)


def events(answer: Answer) -> list[Json]:
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


def refusal(answer: Answer) -> tuple[int, Any, Any]:
    """What was wrong, and where."""
    return answer.status, answer.error["code"], answer.error["param"]
