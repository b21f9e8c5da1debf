"""``/api/sessions``: the bodies as clients send them, parsed into requests."""

from __future__ import annotations

import re
from typing import Any

from attrs import frozen

from hermes_trio.core.errors import bad_request
from hermes_trio.core.messages import Content
from hermes_trio.core.sessions import MAX_TITLE, SessionChange
from hermes_trio.core.shorten import shorten
from hermes_trio.schema.content import has_visible_payload, user_content
from hermes_trio.schema.parsing import (
    MAX_SESSION_LENGTH,
    convert,
    parse_object,
    parse_session_id,
    read_text,
)

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_CHANGEABLE = ("title", "end_reason", "pinned")


@frozen
class SessionBody:
    """``POST /api/sessions``. Unknown fields are ignored."""

    id: Any = None
    session_id: Any = None
    model: str | None = None
    system_prompt: Any = None
    title: Any = None


@frozen
class SessionUpdateBody:
    """``PATCH /api/sessions/{session_id}``. Unknown fields are refused."""

    title: str | None = None
    end_reason: str | None = None
    pinned: bool | None = None


@frozen
class ForkBody:
    """``POST /api/sessions/{session_id}/fork``. Unknown fields are ignored."""

    id: Any = None
    session_id: Any = None
    title: Any = None
    before: int | None = None  # the id of the first message that is left out
    model: str | None = None


@frozen
class SessionChatBody:
    """``POST /api/sessions/{session_id}/chat``, streamed or not. Unknown fields are ignored."""

    message: Any = None
    input: Any = None  # the same under another name
    system_message: Any = None
    instructions: Any = None  # the same under another name


@frozen
class SessionRequest:
    """A parsed request to create a session."""

    session_id: str  # "" to let the server choose
    model: str
    system_prompt: str
    title: str


@frozen
class SessionForkRequest:
    """A parsed request to fork a session."""

    session_id: str  # "" to let the server choose
    title: str  # "" for the next numbered one
    before: int = 0  # the id of the first message that is left out; 0 to take all
    model: str = ""  # "" for that of the source


@frozen
class SessionChatRequest:
    """A parsed request for a turn in a session."""

    message: Content
    system_message: str


def parse_session(raw: bytes) -> SessionRequest:
    """Parse the body that creates a session; an empty body is allowed.

    Raises:
        ApiError: 400, naming the invalid parameter.
    """
    body = convert(parse_object(raw or b"{}"), SessionBody)
    prompt = _text(body.system_prompt, "system_prompt", "invalid_system_prompt")
    return SessionRequest(
        _id(body.id, body.session_id), body.model or "", prompt, read_title(body.title)
    )


def parse_session_update(raw: bytes) -> SessionChange:
    """Parse the body that updates a session.

    Raises:
        ApiError: 400, naming the parameter that is invalid or cannot be changed.
    """
    body = parse_object(raw)
    for name in body:
        if name not in _CHANGEABLE:
            shown = shorten(name, 60)
            message = f"'{shown}' cannot be changed. Only 'title', 'end_reason' and 'pinned' can."
            raise bad_request(message, shown, "unsupported_session_field")
    reason = read_text(body, "end_reason", limit=MAX_SESSION_LENGTH).strip()
    pinned = body.get("pinned")
    if "pinned" in body and not isinstance(pinned, bool):
        raise bad_request("'pinned' must be true or false.", "pinned", "invalid_type")
    return SessionChange("title" in body, read_title(body.get("title")), reason, pinned)


def parse_fork(raw: bytes) -> SessionForkRequest:
    """Parse the body that forks a session; an empty body is allowed.

    Raises:
        ApiError: 400, naming the invalid parameter.
    """
    body = convert(parse_object(raw or b"{}"), ForkBody)
    if body.before is not None and body.before < 1:
        raise bad_request("'before' must be the id of a message.", "before", "invalid_message_id")
    title = read_title(body.title)
    return SessionForkRequest(
        _id(body.id, body.session_id), title, body.before or 0, body.model or ""
    )


def parse_session_chat(raw: bytes) -> SessionChatRequest:
    """Parse the body of a turn.

    Raises:
        ApiError: 400, naming the invalid parameter.
    """
    given = parse_object(raw)
    body = convert(given, SessionChatBody)
    # "input" and "instructions" are other names for "message" and "system_message".
    name = "message"
    if given.get(name) is None and given.get("input") is not None:
        name = "input"
    message = user_content(given.get(name), name)
    if not has_visible_payload(message):
        raise bad_request(f"'{name}' is required and must not be empty.", name, "missing_message")
    code = "invalid_system_message"
    system = _text(body.system_message, "system_message", code) or _text(
        body.instructions, "instructions", code
    )
    return SessionChatRequest(message, system)


def _text(value: object, param: str, code: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise bad_request(f"'{param}' must be a string.", param, code)
    return value


def _id(*given: object) -> str:
    value = next((each for each in given if each is not None), "")
    if not isinstance(value, str):
        raise bad_request("Invalid session ID: it must be a string.", "id", "invalid_session_id")
    return parse_session_id(value, "id")


def read_title(value: object) -> str:
    """Validate a title and put it on one line; "" for none.

    Raises:
        ApiError: 400.
    """
    title = " ".join(_text(value, "title", "invalid_title").split())
    if _CONTROL.search(title):
        raise bad_request("'title' must not have control characters.", "title", "invalid_title")
    if len(title) > MAX_TITLE:
        raise bad_request(
            f"'title' must be at most {MAX_TITLE} characters long.", "title", "invalid_title"
        )
    return title
