"""The end user, the chat and the background tasks of front ends, as their requests tell them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.core.sessions import is_derived
from hermes_trio.schema.front_ends import (
    TASKS,
    BodyIds,
    ClientIds,
    client_name,
    is_task_prompt,
    read_client_ids,
)
from hermes_trio.schema.parsing import parse_session_id

CHAT, USER, TOKEN = "X-OpenWebUI-Chat-Id", "X-OpenWebUI-User-Id", "X-OpenWebUI-User-Jwt"
DERIVED = "api-0123456789abcdef"


def read(headers: Mapping[str, str] | None = None, /, **body: Any) -> ClientIds:
    """The ids of a request with these headers and fields."""
    lower = {name.lower(): value for name, value in (headers or {}).items()}
    return read_client_ids(lower, BodyIds(**body), DERIVED)


def token(claims: object) -> str:
    """A JSON web token as Open WebUI makes it, with a signature that nobody can verify here."""
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"eyJhbGciOiJIUzI1NiJ9.{payload}.c2ln"


def test_a_request_that_says_nothing_has_no_ids() -> None:
    assert read() == ClientIds(derived_id=DERIVED)


@pytest.mark.parametrize(
    ("headers", "body", "end_user"),
    [
        ({USER: "u1"}, {}, "openwebui:u1"),
        ({TOKEN: token({"sub": "u1", "email": "a@b.test"})}, {}, "openwebui:u1"),
        ({"X-LibreChat-User-Id": "u1"}, {}, "librechat:u1"),
        ({}, {"user": "u1"}, "client:u1"),
        ({}, {"safety_identifier": "s1", "user": "u1"}, "client:s1"),
        ({}, {"metadata": {"user_id": "m1"}, "safety_identifier": "s1"}, "client:m1"),
        ({USER: "u1", "X-LibreChat-User-Id": "u2"}, {"user": "u3"}, "openwebui:u1"),
        ({TOKEN: "no token"}, {"user": "u3"}, "client:u3"),
        ({TOKEN: "a.%%%.c"}, {}, ""),
        ({TOKEN: token(["sub"])}, {}, ""),
        ({TOKEN: token({"email": "a@b.test"})}, {}, ""),
        ({USER: " "}, {"user": "null"}, ""),
        ({}, {"metadata": {"user_id": 7}}, ""),
    ],
)
def test_the_end_user(headers: dict[str, str], body: dict[str, Any], end_user: str) -> None:
    assert read(headers, **body).end_user == end_user


def test_an_odd_end_user_is_kept_as_a_digest() -> None:
    for odd in ("Zoë Ω", "x" * 129, "a b"):
        ids = read({USER: odd})
        assert re.fullmatch("openwebui:[0-9a-f]{32}", ids.end_user)
        assert ids == read({USER: odd})
    assert read({USER: "Zoë"}).end_user != read({USER: "Zoé"}).end_user


@pytest.mark.parametrize(
    ("headers", "metadata", "front_end"),
    [
        ({CHAT: "c"}, {}, "openwebui"),
        ({"X-LibreChat-Conversation-Id": "c"}, {}, "librechat"),
        ({"X-LibreChat-Body-ConversationId": "c"}, {}, "librechat"),
        ({"X-Conversation-Id": "c"}, {}, "client"),
        ({}, {"chat_id": "c"}, "client"),
        ({}, {"conversation_id": "c"}, "client"),
        ({}, {"session_id": "c"}, "client"),
        ({}, {"thread_id": "c"}, "client"),
    ],
)
def test_the_session_of_a_chat(
    headers: dict[str, str], metadata: dict[str, str], front_end: str
) -> None:
    session_id = read(headers, metadata=metadata).session_id
    assert re.fullmatch(f"{front_end}-[0-9a-f]{{32}}", session_id)
    assert parse_session_id(session_id) == session_id
    assert not is_derived(session_id)


def test_headers_win_and_the_first_counts() -> None:
    both = {CHAT: "c", "X-LibreChat-Conversation-Id": "other", "X-Conversation-Id": "third"}
    assert read(both, metadata={"chat_id": "fourth"}) == read({CHAT: "c"})
    named = {"thread_id": "t", "chat_id": "c"}
    assert read(metadata=named).session_id == read(metadata={"chat_id": "c"}).session_id


@pytest.mark.parametrize(
    "value",
    ["", "  ", "new", "NULL", "undefined", "{{CHAT_ID}}", "{{LIBRECHAT_BODY_CONVERSATIONID}}"],
)
def test_placeholders_are_no_ids(value: str) -> None:
    assert read({CHAT: value, USER: value}) == ClientIds(derived_id=DERIVED)


def test_chats_front_ends_and_users_are_apart() -> None:
    sessions = [
        read({CHAT: "c"}),
        read({CHAT: "d"}),
        read({CHAT: "c", USER: "u"}),
        read({CHAT: "c", USER: "v"}),
        read({"X-Conversation-Id": "c"}),
        read({"X-LibreChat-Conversation-Id": "c"}),
    ]
    assert len({ids.session_id for ids in sessions}) == len(sessions)


@given(st.text(), st.text())
def test_ids_of_any_kind_give_a_good_session(user: str, chat: str) -> None:
    ids = read({USER: user, CHAT: chat})
    assert ids == read({USER: user, CHAT: chat})
    assert parse_session_id(ids.session_id) == ids.session_id
    assert len(ids.end_user) <= 140


def test_a_temporary_chat_is_only_a_hint() -> None:
    ids = read({CHAT: "local:socket-1", USER: "u"})
    assert ids.session_id == ""
    assert is_derived(ids.derived_id)
    others = [read({CHAT: "local:socket-2", USER: "u"}), read({USER: "u"}), read()]
    assert len({each.derived_id for each in [ids, *others]}) == 4


@pytest.mark.parametrize(
    "body", [{"user": "u"}, {"prompt_cache_key": "k"}, {"user": "u", "prompt_cache_key": "k"}]
)
def test_users_and_cache_keys_tell_derived_sessions_apart(body: dict[str, Any]) -> None:
    ids = read(**body)
    assert ids.session_id == ""
    assert is_derived(ids.derived_id)
    elsewhere = read_client_ids({}, BodyIds(**body), "api-fedcba9876543210")
    assert len({DERIVED, ids.derived_id, elsewhere.derived_id}) == 3
    assert read_client_ids({}, BodyIds(**body)).derived_id == ""


# Names of clients

CHROME = (
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/156.0.0.0 Safari/537.36"
)


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ({}, ""),
        ({"user-agent": ""}, ""),
        ({"user-agent": "curl/8.5.0"}, "curl/8.5.0"),
        ({"user-agent": "OpenAI/Python 3.1.0"}, "OpenAI/Python 3.1.0"),
        ({"user-agent": "codex_cli_rs/0.46.0 (Linux; x86_64) xterm"}, "codex_cli_rs/0.46.0"),
        ({"user-agent": "python-httpx/0.28.1"}, "python-httpx/0.28.1"),
        ({"user-agent": "(compatible)"}, ""),
        ({"user-agent": CHROME}, "Chrome/156"),
        ({"user-agent": f"{CHROME} Edg/156.0.1"}, "Edge/156"),
        ({"user-agent": "Mozilla/5.0 (X11; rv:140.0) Gecko/20100101 Firefox/140.0"}, "Firefox/140"),
        ({"user-agent": "Mozilla/5.0 (Mac) Version/18.1 Safari/605"}, "Safari/18"),
        ({"user-agent": "Mozilla/5.0 (unknown)"}, "Mozilla/5.0"),
        ({"user-agent": "aiohttp", "x-openwebui-user-id": "u"}, "Open WebUI"),
        ({"user-agent": "node", "x-librechat-user-id": "u"}, "LibreChat"),
        ({"user-agent": CHROME, "x-title": "My dash\x00board"}, "My dashboard"),
        ({"x-title": "x" * 1000}, "x" * 80),
    ],
)
def test_the_name_of_a_client(headers: dict[str, str], name: str) -> None:
    assert client_name(headers) == name


# Background tasks

TITLE = "### Task:\nGenerate a title.\n### Chat History:\n<chat_history>\nUSER: hi\n</chat_history>"
COMPACTION = "### Task:\nSummarize.\n\n### Messages Being Compacted:\nUSER: hi"
RAG = "### Task:\nRespond to the user query using the provided context.\n<context>x</context>\nhi"


@pytest.mark.parametrize(
    ("message", "is_task"),
    [
        (TITLE, True),
        (f"\n{TITLE}", True),
        (COMPACTION, True),
        (RAG, False),
        ("### Task: write a poem", False),
        (f"Please: {TITLE}", False),
        (({"type": "text", "text": TITLE},), False),
    ],
)
def test_prompts_of_tasks(message: Any, is_task: bool) -> None:
    assert is_task_prompt(message, ()) is is_task
    assert is_task_prompt(message, ("something before",)) is False


@pytest.mark.parametrize(
    ("value", "metadata", "is_task"),
    [
        ("title_generation", {}, True),
        ("something_new", {}, True),
        ("", {}, False),
        ("{{TASK}}", {}, False),
        ("moa_response_generation", {}, False),
        ("", {"task": "tags_generation"}, True),
        ("", {"task": "my nightly job"}, False),
        ("", {"task": ["tags_generation"]}, False),
    ],
)
def test_names_of_tasks(value: str, metadata: dict[str, Any], is_task: bool) -> None:
    assert read({"X-OpenWebUI-Task": value}, metadata=metadata).names_task is is_task


def test_an_answer_in_the_chat_is_no_task() -> None:
    assert "moa_response_generation" not in TASKS
