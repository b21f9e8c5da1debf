from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_trio.core.errors import ApiError
from hermes_trio.schema.parsing import (
    parse_bool,
    parse_session_id,
    parse_session_key,
    read_integer,
    read_number,
    read_text,
    require_text,
)


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
def test_number_field_refuses(value: object, low: int | None, high: int | None, message: str) -> None:
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


@pytest.mark.parametrize("value", ["api-0123456789abcdef", " abc ", "a.b", "user:1", "x" * 256, "名前"])
def test_session_values_are_stripped_and_kept(value: str) -> None:
    assert parse_session_id(value) == parse_session_key(value) == value.strip()


@pytest.mark.parametrize("value", ["a\rb", "a\nb", "\n", "a\n", "a\0b", "a\x1bb", "a\x7f", "x" * 257])
def test_session_values_with_control_characters_or_too_long_are_refused(value: str) -> None:
    error = refused(lambda: parse_session_id(value))
    assert (error.param, error.code) == ("X-Hermes-Session-Id", "invalid_session_id")
    error = refused(lambda: parse_session_key(value))
    assert (error.param, error.code) == ("X-Hermes-Session-Key", "invalid_session_key")


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
        error = outcome(field, body)
        assert error is None or error.param == "a"


def outcome(field: Callable[..., object], body: dict[str, Any]) -> ApiError | None:
    try:
        field(body, "a")
    except ApiError as error:
        return error
    return None
