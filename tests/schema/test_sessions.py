"""The bodies of the Sessions API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.core.errors import ApiError
from hermes_trio.core.sessions import SessionChange
from hermes_trio.schema.sessions import (
    SessionChatRequest,
    SessionForkRequest,
    SessionRequest,
    parse_fork,
    parse_session,
    parse_session_chat,
    parse_session_update,
)

PARSERS = (parse_session, parse_session_update, parse_fork, parse_session_chat)


def raw(**body: Any) -> bytes:
    return json.dumps(body).encode()


def refused(parse: Any, **body: Any) -> tuple[str | None, str | None]:
    """What is wrong with a body, and where."""
    with pytest.raises(ApiError) as caught:
        parse(raw(**body))
    assert caught.value.status == 400
    return caught.value.code, caught.value.param


def test_no_body_is_an_empty_one() -> None:
    assert parse_session(b"") == SessionRequest("", "", "", "")
    assert parse_fork(b"") == SessionForkRequest("", "")


def test_what_a_session_is_made_of() -> None:
    body = raw(id="a", session_id="b", model="m", system_prompt=" p ", title=" a\n b ")
    assert parse_session(body) == SessionRequest("a", "m", " p ", "a b")
    assert parse_fork(raw(session_id="b", title="T")) == SessionForkRequest("b", "T")


@pytest.mark.parametrize("parse", [parse_session, parse_fork])
def test_names_are_checked(parse: Any) -> None:
    ids: list[Any] = [1, [], "a/b", "a\nb", "x" * 257]
    titles: list[Any] = [1, {}, "x" * 101, "a\x7fb"]
    assert {refused(parse, id=value) for value in ids} == {("invalid_session_id", "id")}
    assert {refused(parse, title=value) for value in titles} == {("invalid_title", "title")}


def test_changes() -> None:
    assert parse_session_update(b"{}") == SessionChange()
    assert parse_session_update(raw(title=None)) == SessionChange(sets_title=True)
    both = SessionChange(sets_title=True, title="T", end_reason="done")
    assert parse_session_update(raw(title="T", end_reason=" done ")) == both
    assert refused(parse_session_update, id="x") == ("unsupported_session_field", "id")
    assert parse_session_update(raw(pinned=True)) == SessionChange(pins=True)
    assert parse_session_update(raw(pinned=False)) == SessionChange(pins=False)
    assert refused(parse_session_update, pinned=None) == ("invalid_type", "pinned")


def test_forks_of_a_beginning() -> None:
    forked = SessionForkRequest("", "", before=3, model="m")
    assert parse_fork(raw(before=3, model="m")) == forked
    assert refused(parse_fork, before=0) == ("invalid_message_id", "before")
    assert refused(parse_fork, before="3")[1] == "before"


def test_turns() -> None:
    assert parse_session_chat(raw(message="a", input="b")) == SessionChatRequest("a", "")
    assert parse_session_chat(raw(input="b", instructions="i")) == SessionChatRequest("b", "i")
    both = raw(message="a", system_message="s", instructions="i")
    assert parse_session_chat(both) == SessionChatRequest("a", "s")
    assert refused(parse_session_chat) == ("missing_message", "message")
    assert refused(parse_session_chat, input=" ") == ("missing_message", "input")
    assert refused(parse_session_chat, message="a", system_message=1) == (
        "invalid_system_message",
        "system_message",
    )


_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
)
_names = st.sampled_from(
    [
        "id",
        "session_id",
        "title",
        "model",
        "system_prompt",
        "end_reason",
        "message",
        "input",
        "instructions",
    ]
)


@given(st.dictionaries(_names, _json))
def test_any_body_is_read_or_refused(body: dict[str, Any]) -> None:
    for parse in PARSERS:
        try:
            parse(raw(**body))
        except ApiError as error:
            assert error.status == 400
