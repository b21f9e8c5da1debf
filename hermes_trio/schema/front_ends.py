"""What clients say beyond the OpenAI API: their name, their user, the chat, and which requests are a front end's own.

A front end serves many people with one key, so neither the key nor the first message of a chat tells
two of them apart. Its own ids do. They arrive in headers and in fields of the body whose names
differ by front end; here they become the end user and the session of a turn.

An id of a client is never used as it is. The id of a session is a digest of the front end, the end
user and the chat, so ids of any length and alphabet are welcome, no two front ends share a session,
and a session that a client names itself cannot be met by chance.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from hermes_trio.core.messages import Content
from hermes_trio.core.records import NOTHING
from hermes_trio.core.sessions import DERIVED_PREFIX

# -- end users and chats --

OPEN_WEBUI, LIBRECHAT, OTHER = "openwebui", "librechat", "client"

# In order of precedence, each with the front end whose ids it carries. LibreChat lets its
# administrator choose the names; these are the ones that its examples and our documentation use.
_CHAT_HEADERS = (
    (OPEN_WEBUI, "x-openwebui-chat-id"),
    (LIBRECHAT, "x-librechat-conversation-id"),
    (LIBRECHAT, "x-librechat-body-conversationid"),
    (OTHER, "x-conversation-id"),
)
_USER_HEADERS = ((OPEN_WEBUI, "x-openwebui-user-id"), (LIBRECHAT, "x-librechat-user-id"))
_USER_TOKEN_HEADER = "x-openwebui-user-jwt"  # noqa: S105 - the name of a header
_CHAT_METADATA = ("chat_id", "conversation_id", "session_id", "thread_id")
_USER_METADATA = "user_id"

# A temporary chat of Open WebUI has the id of its browser tab, which later ones share.
_TEMPORARY_CHAT = "local:"

# What templates yield while there is no id yet.
_NO_ID = frozenset({"", "new", "null", "none", "undefined"})
_READABLE = re.compile(r"[\x21-\x7e]{1,128}")


@frozen
class BodyIds:
    """The fields of a request body that may identify its end user or its chat; "" if absent."""

    user: str = ""
    safety_identifier: str = ""
    prompt_cache_key: str = ""
    metadata: Mapping[str, Any] = NOTHING


@frozen
class ClientIds:
    """What a request says about its end user, its chat and its purpose."""

    end_user: str = ""  # with the source of the id, as in "openwebui:7f3c"; "" if unknown
    session_id: str = ""  # the session of the front end's chat, "" if the request names none
    derived_id: str = ""  # the session that is derived from the beginning of the conversation
    names_task: bool = False  # it is a background task of the front end, by its own account


NO_IDS = BodyIds()


def read_client_ids(
    headers: Mapping[str, str], body: BodyIds = NO_IDS, derived_id: str = ""
) -> ClientIds:
    """Find the end user and the chat of a request. Headers win over the body.

    The names of headers are in lower case.

    What tells apart chats that begin alike is added to the derived session id. Of these,
    ``prompt_cache_key`` does not name a chat: many programs send the same one for all their users.
    """
    end_user = _find_end_user(headers, body)
    front_end, chat = _find_chat(headers, body.metadata)
    is_temporary = chat.startswith(_TEMPORARY_CHAT)
    hints = (end_user, chat if is_temporary else "", _clean(body.prompt_cache_key))
    if derived_id and any(hints):
        derived_id = f"{DERIVED_PREFIX}{_digest(derived_id, *hints)[:16]}"
    return ClientIds(
        end_user,
        _session_id(front_end, end_user, chat) if chat and not is_temporary else "",
        derived_id,
        _names_task(headers, body.metadata),
    )


def _find_end_user(headers: Mapping[str, str], body: BodyIds) -> str:
    for front_end, name in _USER_HEADERS:
        if user := _clean(headers.get(name, "")):
            return _end_user(front_end, user)
    if user := _clean(_token_subject(headers.get(_USER_TOKEN_HEADER, ""))):
        return _end_user(OPEN_WEBUI, user)
    for given in (body.metadata.get(_USER_METADATA), body.safety_identifier, body.user):
        if user := _clean(given):
            return _end_user(OTHER, user)
    return ""


def _find_chat(headers: Mapping[str, str], metadata: Mapping[str, Any]) -> tuple[str, str]:
    for front_end, name in _CHAT_HEADERS:
        if chat := _clean(headers.get(name, "")):
            return front_end, chat
    for key in _CHAT_METADATA:
        if chat := _clean(metadata.get(key)):
            return OTHER, chat
    return OTHER, ""


def _clean(value: object) -> str:
    """Return an id without surrounding space; "" for a placeholder or anything but a string."""
    text = value.strip() if isinstance(value, str) else ""
    return "" if text.lower() in _NO_ID or text.startswith("{{") else text


def _token_subject(token: str) -> str:
    """Return the subject of a JSON web token, "" if it has none.

    Its signature is not verified: only the holder of the key can send it, and the plain header that
    it replaces is no better.
    """
    payload = token.split(".")[1] if token.count(".") == 2 else ""
    try:
        claims = json.loads(base64.urlsafe_b64decode(f"{payload}{'=' * (-len(payload) % 4)}"))
    except (binascii.Error, ValueError):
        return ""
    return str(claims.get("sub", "")) if isinstance(claims, dict) else ""


def _end_user(front_end: str, user: str) -> str:
    """Return the id of an end user as records keep it: readable if it can be, and bounded."""
    return f"{front_end}:{user if _READABLE.fullmatch(user) else _digest(user)[:32]}"


def _session_id(front_end: str, end_user: str, chat: str) -> str:
    return f"{front_end}-{_digest(front_end, end_user, chat)[:32]}"


def _digest(*parts: str) -> str:
    # As JSON, so that no two lists of parts have the same text.
    return hashlib.sha256(json.dumps(parts).encode("ascii")).hexdigest()


# -- names of client programs --

TITLE_HEADER = "X-Title"
MAX_CLIENT_NAME = 80
_FRONT_ENDS = (("x-openwebui-", "Open WebUI"), ("x-librechat-", "LibreChat"))
# A product, and its version where that stands apart, as in "OpenAI/Python 3.1.0".
_PRODUCT = re.compile(r"[^\s;(]+(?: \d[\w.]*)?")
# Browsers pretend to be each other: the first of these that a User-Agent has tells which it is.
_BROWSERS = (
    ("Edg/", "Edge"),
    ("Firefox/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("Version/", "Safari"),
)


def client_name(headers: Mapping[str, str]) -> str:
    """Return what the client program calls itself, "" if it does not say.

    The title that it gives, or the front end that its headers belong to, or the first product of
    its ``User-Agent``. A browser is named, not what it pretends to be.

    Args:
        headers: of the request, with their names in lower case.
    """
    front_ends = (
        name for prefix, name in _FRONT_ENDS if any(header.startswith(prefix) for header in headers)
    )
    title = headers.get(TITLE_HEADER.lower(), "")
    name = title or next(front_ends, "") or _agent_name(headers.get("user-agent", ""))
    return "".join(filter(str.isprintable, name)).strip()[:MAX_CLIENT_NAME]


def _agent_name(user_agent: str) -> str:
    for mark, browser in _BROWSERS if user_agent.startswith("Mozilla/") else ():
        if mark in user_agent:
            version = user_agent.partition(mark)[2].partition(".")[0]
            return f"{browser}/{version}"
    product = _PRODUCT.match(user_agent.strip())
    return product[0] if product else ""


# -- background tasks --

TASK_HEADER = "x-openwebui-task"

TASKS = frozenset(
    {
        "title_generation",
        "tags_generation",
        "follow_up_generation",
        "query_generation",
        "image_prompt_generation",
        "autocomplete_generation",
        "emoji_generation",
        "function_calling",
        "context_compaction",
    }
)
_ANSWERS = frozenset({"moa_response_generation"})  # tasks whose result is an answer in the chat
_TASK_START = "### Task:"
# What the prompts for titles, tags, follow-ups, queries and completions contain, and that of a
# compaction. The prompt that wraps a user's question and its sources also begins with a task, but
# it is a part of the chat.
_TASK_MARKERS = ("<chat_history>", "### Messages Being Compacted:")


def _names_task(headers: Mapping[str, str], metadata: Mapping[str, Any]) -> bool:
    """Return whether a request names the background task that it is for.

    The header is Open WebUI's alone. The metadata may be anybody's, so only known names count there.
    """
    task = _clean(headers.get(TASK_HEADER, ""))
    given = metadata.get("task")
    return bool(task and task not in _ANSWERS) or (isinstance(given, str) and given in TASKS)


def is_task_prompt(message: Content, history: Sequence[object]) -> bool:
    """Return whether a request is nothing but the prompt of a background task of Open WebUI."""
    return (
        isinstance(message, str)
        and not history
        and message.lstrip().startswith(_TASK_START)
        and any(marker in message for marker in _TASK_MARKERS)
    )
