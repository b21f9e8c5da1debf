"""Values shortened, copied into JSON types, and buffered in bounded memory."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_trio.core.shorten import (
    DEFAULT_LIMIT,
    MIN_LIMIT,
    HeadTailBuffer,
    encodable,
    safe_str,
    shorten,
    shorten_json,
    to_jsonable,
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(st.characters())
    | st.text(
        st.characters(min_codepoint=0x10000, exclude_categories=()), min_size=50, max_size=200
    )
)


values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=12)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=12)
    ),
    max_leaves=40,
)


class Broken:
    """Cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("abc", 3, "abc"),
        ("", 0, ""),
        ("a" * 100, 40, "a" * 11 + "... [89 characters left out]"),
        ("abc", 2, "ab"),
        ("abc", 0, ""),
        ("abc", -1, ""),
    ],
)
def test_shorten(text: str, limit: int, expected: str) -> None:
    assert shorten(text, limit) == expected


@settings(deadline=None)
@given(st.text(max_size=200), st.integers(-10, 200))
def test_shorten_keeps_the_limit_and_tells_the_truth(text: str, limit: int) -> None:
    shown = shorten(text, limit)
    assert len(shown) <= max(limit, 0) or shown == text == ""
    head, mark, note = shown.partition("... [")
    if shown != text and mark and "... [" not in text:
        assert len(head) + int(note.split()[0]) == len(text)
        assert text.startswith(head)


def test_lone_surrogates_are_replaced() -> None:
    assert encodable("a\ud800b😀") == "a?b😀"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (5, 5),
        (1.5, 1.5),
        ("a\udfff", "a?"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (2**64, str(2**64)),
        ([10**5000], ["[integer of 16610 bits]"]),
        ((1, 2), [1, 2]),
        ({1: {"a": []}}, {"1": {"a": []}}),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (b"x", "b'x'"),
        (Broken(), "<Broken>"),
        ({"k": Broken()}, {"k": "<Broken>"}),
    ],
)
def test_small_values_are_kept_in_json_types(value: Any, expected: Any) -> None:
    assert shorten_json(value) == expected


def test_depth_is_bounded() -> None:
    assert shorten_json([[[[1]]]], depth=3) == [[["..."]]]
    assert shorten_json([[[[]]]], depth=3) == [[[[]]]]
    assert shorten_json({"a": [1]}, depth=0) == "..."
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    assert shorten_json(cyclic, depth=2) == [["..."]]


def test_only_what_is_long_is_cut() -> None:
    args = {"path": "a.py", "content": "x" * 100_000, "tags": ["a", "b"]}
    shown = shorten_json(args)
    assert (shown["path"], shown["tags"]) == ("a.py", ["a", "b"])
    assert shown["content"].endswith("characters left out]")
    assert DEFAULT_LIMIT - 200 < len(json.dumps(shown)) <= DEFAULT_LIMIT


def test_long_containers_say_what_is_missing() -> None:
    shown = shorten_json(list(range(10_000)))
    assert shown[:3] == [0, 1, 2]
    assert shown[-1] == f"[{10_000 - len(shown) + 1} items left out]"
    shown = shorten_json({str(n): n for n in range(10_000)})
    assert (shown["0"], shown["..."]) == (0, f"[{10_000 - len(shown) + 1} items left out]")
    assert shorten_json([1] * 100, 64) == "[100 items left out]"
    assert shorten_json(dict.fromkeys(range(100)), 64) == "[100 items left out]"


def test_long_keys_are_cut() -> None:
    (key,) = shorten_json({"k" * 1_000: 1})
    assert key.startswith("kkk")
    assert len(key) < 120


@settings(deadline=None)
@given(values, st.integers(0, 2_000), st.integers(0, 6))
def test_the_copy_fits_encodes_and_leaves_the_original_alone(
    value: Any, limit: int, depth: int
) -> None:
    before = copy.deepcopy(value)
    shown = shorten_json(value, limit, depth)
    assert repr(value) == repr(before)
    assert len(json.dumps(shown, allow_nan=False)) <= max(limit, MIN_LIMIT)
    assert msgspec.json.encode(shown)
    assert depth_of(shown) <= depth + 1  # an empty container may stand at the edge
    assert shorten_json(shown, max(limit, MIN_LIMIT), depth + 1) == shown


def depth_of(value: Any) -> int:
    if isinstance(value, Mapping):
        value = list(value.values())
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


def test_huge_values_cost_no_more_than_the_budget() -> None:
    row = list(range(1_000))
    shown = shorten_json({"rows": [row] * 100_000, "text": "é" * 5_000_000})
    assert len(json.dumps(shown)) <= DEFAULT_LIMIT


class Mute:
    """Cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


odd = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(),
        st.binary(),
        st.just(Mute()),
    ),
    lambda inner: st.one_of(
        st.lists(inner),
        st.tuples(inner),
        st.dictionaries(st.one_of(st.integers(), st.text()), inner),
    ),
    max_leaves=10,
)


@given(odd)
def test_a_plain_copy_is_json(value: object) -> None:
    json.dumps(to_jsonable(value), allow_nan=False)


def test_a_plain_copy_cannot_be_changed_from_outside() -> None:
    original = {"list": [1, {"a": {2}}]}
    copy = to_jsonable(original)
    original["list"].append(3)
    assert copy == {"list": [1, {"a": [2]}]}


def test_what_is_too_deep_or_odd_becomes_text() -> None:
    assert to_jsonable(nested(100)) != nested(100)
    assert to_jsonable(float("nan")) == "nan"
    assert to_jsonable({"n": 16**2000}) == {"n": "0x1" + "0" * 2000}
    assert safe_str(Mute()) == "<Mute>"


@given(st.lists(st.text("abc", max_size=30), max_size=20), st.integers(0, 100))
def test_the_two_ends_are_kept(pieces: list[str], limit: int) -> None:
    printed, whole = HeadTailBuffer(limit), "".join(pieces)
    for piece in pieces:
        printed.add(piece)
    if len(whole) <= limit:
        assert printed.text == whole
    else:
        head, tail = whole[: limit // 2], whole[len(whole) - (limit - limit // 2) :]
        assert printed.text == f"{head}\n[... {len(whole) - limit} characters left out ...]\n{tail}"
