"""Bodies and fields: what is accepted, and how the rest is rejected."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_trio.core.errors import ApiError
from hermes_trio.schema.parsing import (
    JsonLimits,
    SessionHeaders,
    parse_bool,
    parse_object,
    parse_session_headers,
    parse_session_id,
    parse_session_key,
    read_integer,
    read_number,
    read_text,
    require_text,
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)


names = st.text(max_size=4)


nested_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


objects = st.dictionaries(names, nested_values, max_size=4)


def refusal(body: bytes, limits: JsonLimits | None = None) -> str:
    with pytest.raises(ApiError) as caught:
        parse_object(body, limits) if limits else parse_object(body)
    error = caught.value
    assert (error.status, error.param, error.code) == (400, None, "invalid_json")
    assert error.message.startswith("Invalid JSON: ")
    return error.message


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{}", {}),
        (b' {"a": [1, "x", null, true, 1.5]}\n', {"a": [1, "x", None, True, 1.5]}),
        (b'{"a": 1, "a": 2}', {"a": 2}),
        (b'{"a": "\\u0000"}', {"a": "\0"}),
        (b'{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
        (b'{"a": 9223372036854775807, "b": -9223372036854775808}', {"a": 2**63 - 1, "b": -(2**63)}),
    ],
)
def test_objects_are_read(body: bytes, expected: Any) -> None:
    assert parse_object(body) == expected


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "empty"),
        (b"{", "truncated"),
        (b"{}x", "trailing"),
        (b"{'a': 1}", "malformed"),
        (b'{"a": 1,}', "malformed"),
        (b"\xef\xbb\xbf{}", "malformed"),
        ('{"a": 1}'.encode("utf-16"), "malformed"),
        ('{"a": 1}'.encode("utf-16-le"), "malformed"),
        (b'{"a": NaN}', "malformed"),
        (b'{"a": -Infinity}', "malformed"),
        (b'{"a": 1e999}', "out of range"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b'{"\xff": 1}', "not UTF-8"),
        (b'{"a": "\xed\xa0\x80"}', "not UTF-8"),
        (b'{"a": "\\ud800"}', "truncated"),
        (b'{"a": "\\ude00"}', "surrogate"),
        (b'{"a": "\\ud800\\u0041"}', "surrogate"),
        (b'{"a": "\x00"}', "malformed"),
        (b"[]", "must be a JSON object"),
        (b'"text"', "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b"[1, 2", "truncated"),
        (b'{"a": 9223372036854775808}', "64 bits"),
        (b'{"a": [-9223372036854775809]}', "64 bits"),
        (b'{"a": ' + b"9" * 100_000 + b"}", "out of range"),
        (b'{"a": [' + b"1," * 10_000 + b"1]}", "more than 10000 entries"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_everything_else_is_refused(body: bytes, reason: str) -> None:
    assert reason in refusal(body)


def nested(levels: int) -> bytes:
    return b'{"a":' * (levels - 1) + b"{}" + b"}" * (levels - 1)


def test_depth_is_bounded_exactly() -> None:
    assert parse_object(nested(64))
    assert "at most 64 levels" in refusal(nested(65))
    assert parse_object(b"{}", JsonLimits(depth=1)) == {}
    assert refusal(nested(2), JsonLimits(depth=1))


SMALL = JsonLimits(depth=64, width=100, entries=3)


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": [[], [], [], []]}',
        b'{"a": [[[[]]]]}',
        b'{"a": "", "b": "\\\\", "c": "\\"", "d": 1, "e": 2}',
        b'{"a": "' + b"," * 70_000 + b'", "b": "' + b"," * 70_000 + b'", "c": 1, "d": 2, "e": 3}',
    ],
)
def test_a_body_of_too_many_entries_is_never_decoded(body: bytes) -> None:
    malformed = body + b"}"  # which the decoder would report
    with pytest.raises(ApiError, match="more than 3 entries"):
        parse_object(malformed, SMALL)


@pytest.mark.parametrize(
    "text", [",[{", '",[{"', '\\",,,[[[', "\\", '"\\', ",[{" * 50_000, '"' * 70_000 + ",,,,"]
)
def test_punctuation_in_strings_does_not_count(text: str) -> None:
    value = {"a": text, "b": ["c"]}
    assert parse_object(json.dumps(value).encode(), SMALL) == value


def test_width_and_number_of_entries_are_bounded_exactly() -> None:
    assert parse_object(json.dumps({"a": [1] * 10_000}).encode())
    limits = JsonLimits(width=2, entries=5)
    assert parse_object(b'{"a": [1, 2], "b": [1]}', limits)
    assert "more than 2" in refusal(b'{"a": 1, "b": 2, "c": 3}', limits)
    assert "more than 5" in refusal(b'{"a": [1, 2], "b": [1, 2]}', limits)


@settings(deadline=None)
@given(objects)
def test_what_json_can_say_is_read_back(value: dict[str, Any]) -> None:
    assert parse_object(json.dumps(value).encode()) == value


@settings(deadline=None)
@given(
    objects, st.integers(-(2**66), 2**66), st.integers(1, 9), st.integers(1, 40), st.integers(1, 40)
)
def test_a_look_at_the_bytes_lets_pass_what_the_walk_would(
    value: dict[str, Any], number: int, depth: int, width: int, entries: int
) -> None:
    body = json.dumps({**value, "number": number}, separators=(",", ":")).encode()
    limits = JsonLimits(depth, width, entries)
    padded = body + b" " * max(width, entries)  # too long for the look
    assert outcome(body, limits) == outcome(padded, limits)


def outcome(body: bytes, limits: JsonLimits) -> Any:
    try:
        return parse_object(body, limits)
    except ApiError as error:
        return error.message


@settings(deadline=None)
@given(st.binary() | st.text('{}[]",:\\ud8e1-.\x00tn', max_size=40).map(str.encode))
def test_any_bytes_give_an_object_or_a_refusal(body: bytes) -> None:
    check(body)


@settings(deadline=None)
@given(objects, st.integers(0), st.binary(max_size=3), st.integers(0, 3))
def test_damaged_json_gives_an_object_or_a_refusal(
    value: Any, place: int, patch: bytes, cut: int
) -> None:
    body = json.dumps(value, ensure_ascii=bool(place % 2)).encode()
    place %= len(body)
    check(body[:place] + patch + body[place + cut :])


def check(body: bytes) -> None:
    try:
        value = parse_object(body)
    except ApiError:
        refusal(body)
    else:
        assert msgspec.json.decode(msgspec.json.encode(value)) == value


def refused(call: Callable[[], object]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        call()
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, True),
        (False, False),
        *((word, True) for word in ("1", "true", "yes", "on", " TRUE ", "On\n")),
        *((word, False) for word in ("0", "false", "no", "off", " False ", "OFF")),
        (1, True),
        (0, False),
        (-2.5, True),
        (0.0, False),
        *((value, None) for value in (None, "", "maybe", "2", [], [1], {}, {"a": 1})),
    ],
)
@pytest.mark.parametrize("default", [True, False])
def test_boolean_like(value: object, expected: bool | None, default: bool) -> None:
    assert parse_bool(value, default) is (default if expected is None else expected)


def test_text_field() -> None:
    assert require_text({"a": " x "}, "a") == " x "
    for value in (None, "", " \n"):
        error = refused(lambda value=value: require_text({"a": value}, "a", param="b[0].a"))  # type: ignore[misc]
        assert (error.param, "b[0].a" in error.message) == ("b[0].a", True)
    assert refused(lambda: require_text({}, "a")).param == "a"
    assert "string" in refused(lambda: require_text({"a": 1}, "a")).message
    assert "at most 2" in refused(lambda: require_text({"a": "xyz"}, "a", limit=2)).message


def test_optional_text() -> None:
    assert read_text({}, "a") == ""
    assert read_text({"a": None}, "a", "default") == "default"
    assert read_text({"a": "x"}, "a", "default", limit=1) == "x"
    assert refused(lambda: read_text({"a": []}, "a")).param == "a"
    assert refused(lambda: read_text({"a": []}, "a", param="p")).param == "p"


@pytest.mark.parametrize("value", [0, 1.5, 2])
def test_number_field(value: float) -> None:
    assert read_number({"t": value}, "t", 0, 2) == value
    assert read_number({"t": value}, "t") == value
    assert read_number({"t": None}, "t") is None


@pytest.mark.parametrize(
    ("value", "low", "high", "message"),
    [
        ("1", None, None, "a number"),
        (True, None, None, "a number"),
        ([], 0, 2, "a number"),
        (-1, 0, 2, "between 0 and 2"),
        (3, 0, 2, "between 0 and 2"),
        (-1, 0, None, "at least 0"),
        (3, None, 2, "at most 2"),
        (float("nan"), 0, None, "at least 0"),
    ],
)
def test_number_field_refuses(
    value: object, low: int | None, high: int | None, message: str
) -> None:
    for field in (read_number, read_integer):
        error = refused(lambda field=field: field({"t": value}, "t", low, high, "x.t"))  # type: ignore[misc]
        assert error.param == "x.t"
        assert message in error.message


def test_integer_field() -> None:
    assert read_integer({}, "n") is None
    assert read_integer({"n": 5}, "n", 1, 5) == 5
    assert repr(read_integer({"n": 5.0}, "n")) == "5"
    for value in (1.5, 1e300, float("inf"), float("nan")):
        error = refused(lambda value=value: read_integer({"n": value}, "n"))  # type: ignore[misc]
        assert (error.param, "whole" in error.message) == ("n", True)


@pytest.mark.parametrize("value", ["", "  ", "\t"])
def test_empty_session_values_count_as_absent(value: str) -> None:
    assert parse_session_id(value) == parse_session_key(value) == ""


@pytest.mark.parametrize(
    "value", ["api-0123456789abcdef", " abc ", "a.b", "user:1", "x" * 256, "名前"]
)
def test_session_values_are_stripped_and_kept(value: str) -> None:
    assert parse_session_id(value) == parse_session_key(value) == value.strip()


@pytest.mark.parametrize(
    "value", ["a\rb", "a\nb", "\n", "a\n", "a\0b", "a\x1bb", "a\x7f", "x" * 257]
)
def test_session_values_with_control_characters_or_too_long_are_refused(value: str) -> None:
    error = refused(lambda: parse_session_id(value))
    assert (error.param, error.code) == ("X-Hermes-Session-Id", "invalid_session_id")
    error = refused(lambda: parse_session_key(value))
    assert (error.param, error.code) == ("X-Hermes-Session-Key", "invalid_session_key")


def test_session_headers() -> None:
    given = {"x-hermes-session-id": "b\xc3\xa4r", "x-hermes-session-key": " k "}
    assert parse_session_headers(given) == SessionHeaders("bär", "k")
    assert parse_session_headers({}) == SessionHeaders("", "")
    error = refused(lambda: parse_session_headers({"x-hermes-session-key": "\xe4"}))
    assert (error.param, error.code) == ("X-Hermes-Session-Key", "invalid_header")


@pytest.mark.parametrize("value", ["..", "a..b", "a/b", "/", "a\\b", "C:x", "c:"])
def test_only_session_ids_must_not_look_like_paths(value: str) -> None:
    error = refused(lambda: parse_session_id(value))
    assert (error.param, error.code) == ("X-Hermes-Session-Id", "invalid_session_id")
    assert parse_session_key(value) == value


@settings(deadline=None)
@given(st.text(st.characters(), max_size=300))
def test_an_accepted_session_id_is_safe(value: str) -> None:
    try:
        shown = parse_session_id(value)
    except ApiError:
        return
    assert len(shown) <= 256
    assert not set(shown) & set("/\\\r\n\0")
    assert ".." not in shown


@settings(deadline=None)
@given(
    st.dictionaries(
        st.just("a"), st.none() | st.booleans() | st.floats() | st.text() | st.lists(st.integers())
    )
)
def test_fields_take_any_json(body: dict[str, Any]) -> None:
    for field in (require_text, read_text, read_number, read_integer):
        error = field_outcome(field, body)
        assert error is None or error.param == "a"


def field_outcome(field: Callable[..., object], body: dict[str, Any]) -> ApiError | None:
    try:
        field(body, "a")
    except ApiError as error:
        return error
    return None
