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

from hermes_trio.core.shorten import DEFAULT_LIMIT, MIN_LIMIT, encodable, shorten, shorten_json

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(st.characters())
    | st.text(st.characters(min_codepoint=0x10000, exclude_categories=()), min_size=50, max_size=200)
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
def test_the_copy_fits_encodes_and_leaves_the_original_alone(value: Any, limit: int, depth: int) -> None:
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
