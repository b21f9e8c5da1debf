"""Splitting a text: nothing is lost, nothing is too long, and cuts are where a reader pauses."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.channels.splitting import FENCE, Part, split_text, width

PIECES = st.sampled_from(
    ["word", " ", "\n", "\n\n", ". ", "```", "`", "````", "```py\n", "😀", "é", "\ud83d", "\ude00",
     "x" * 37, "。", "…", "\t", "* item\n"]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=200).map("".join)
LIMITS = st.integers(min_value=24, max_value=120)


def texts_of(text: str, limit: int) -> list[str]:
    return [part.text for part in split_text(text, limit)]


@given(TEXTS, LIMITS)
def test_the_bodies_are_the_text_and_no_part_is_too_long(text: str, limit: int) -> None:
    parts = split_text(text, limit)
    assert "".join(part.body for part in parts) == text
    assert all(width(part.text) <= limit for part in parts)
    assert all(part.body for part in parts) or not text


@given(TEXTS, LIMITS)
def test_no_surrogate_pair_is_cut(text: str, limit: int) -> None:
    for first, second in pairwise(split_text(text, limit)):
        assert (first.body[-1], second.body[0]) != ("\ud83d", "\ude00")


@given(st.lists(PIECES.filter(lambda piece: "`" not in piece), max_size=200).map("".join), LIMITS)
def test_without_code_the_parts_are_the_text(text: str, limit: int) -> None:
    assert "".join(texts_of(text, limit)) == text


@given(TEXTS.filter(lambda text: "`" * 8 not in text), LIMITS)
def test_code_is_closed_and_reopened(text: str, limit: int) -> None:
    parts = split_text(text, limit)
    assert all(part.is_closed == following.is_reopened for part, following in pairwise(parts))
    assert not parts[-1].is_closed
    # A run of three or more begins or ends a block of code.
    assert all(len(_runs(part.text)) % 2 == 0 for part in parts[:-1])


def _runs(text: str) -> list[str]:
    return [run for run in "".join(c if c == "`" else " " for c in text).split() if len(run) >= 3]


def test_a_short_text_is_one_part() -> None:
    assert split_text("a" * 4096, 4096) == (Part("a" * 4096),)
    assert split_text("", 4096) == (Part(""),)


def test_characters_of_two_units_count_twice() -> None:
    assert [width(part) <= 100 for part in texts_of("😀" * 200, 100)] == [True] * 5


@pytest.mark.parametrize(
    ("end", "others"),
    [
        ("\n\n", ["\n", ". ", " "]),
        ("\n", [". ", " "]),
        (". ", [" "]),
        ("。", ["a"]),
        (" ", ["a"]),
    ],
)
def test_the_best_end_in_the_second_half_wins(end: str, others: list[str]) -> None:
    text = f"{'a' * 60}{end}{'b' * 8}{'b'.join(others)}{'c' * 80}"
    assert texts_of(text, 100)[0] == f"{'a' * 60}{end}"


def test_an_end_in_the_first_half_is_too_early() -> None:
    text = f"{'a' * 20}\n\n{'b' * 50} {'c' * 90}"
    assert texts_of(text, 100)[0] == f"{'a' * 20}\n\n{'b' * 50} "


def test_a_block_of_code_is_continued_in_a_block() -> None:
    code = "".join(f"line {number}\n" for number in range(30))
    parts = texts_of(f"Look:\n```\n{code}```\nDone.", 100)
    assert len(parts) == 3
    assert parts[0].startswith("Look:\n```\nline 0\n")
    assert all(part.count(FENCE) == 2 for part in parts)
    assert all(part.startswith("```\nline") for part in parts[1:-1])
    assert parts[-1].endswith("```\nDone.")


def test_a_long_text_takes_time_in_proportion() -> None:
    """A megabyte of fences and spaces must not hold up the event loop for long."""
    text = "``` \n" * 100_000 + " " * 500_000
    assert "".join(part.body for part in split_text(text, 4096)) == text
