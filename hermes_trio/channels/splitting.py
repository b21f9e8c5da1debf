"""Splitting a long text into messages, at places where a reader would pause. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right

from attrs import frozen

Fences = tuple[tuple[int, int], ...]  # where each begins and ends

FENCE = "```"
_OPENING = f"{FENCE}\n"
_CLOSING = f"\n{FENCE}"
_FENCES = re.compile(r"`{3,}")
# What ends where a text may be cut, the best first.
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")
_LINE = re.compile(r"\n+")
# The escapes are closing quotation marks, and the full-width marks that end sentences.
_SENTENCE = re.compile(r"[.!?…][\"'\u201d\u2019)\]*_]*\s+|[\u3002\uff01\uff1f]")
_WORD = re.compile(r"\s+")


@frozen
class Part:
    """A part of a text. The bodies of all parts, joined, are the text."""

    body: str
    is_reopened: bool = False  # it begins within a block of code
    is_closed: bool = False  # it ends within one, which the next part reopens

    @property
    def text(self) -> str:
        """The part as it is sent: a block of code that was cut is closed and reopened."""
        closing = ""
        if self.is_closed:
            closing = FENCE if self.body.endswith("\n") else _CLOSING
        return f"{_OPENING if self.is_reopened else ''}{self.body}{closing}"


def width(text: str) -> int:
    """Return the length of a text in UTF-16 code units, which is how strict servers count."""
    return len(text) + sum(character > "\uffff" for character in text)


def split_text(text: str, limit: int) -> tuple[Part, ...]:
    """Split a text into parts of at most ``limit`` UTF-16 code units each.

    Cuts at the end of a paragraph, line, sentence or word, whichever comes first in this order,
    within the second half of what fits; in the middle of a word only where there is no other place.
    A surrogate pair and a fence are never cut.
    """
    if width(text) <= limit:
        return (Part(text),)
    room = limit - len(_OPENING) - len(_CLOSING)
    fences = tuple(found.span() for found in _FENCES.finditer(text))
    parts: list[Part] = []
    start, is_inside = 0, False
    while start < len(text):
        end = _longest(text, start, room)
        if end < len(text):
            end = _best_cut(text, start, _before_fence(fences, start, end), fences)
            end = _behind_closing_fence(fences, end)
        ends_inside = _is_inside(fences, end)
        parts.append(Part(text[start:end], is_inside, ends_inside and end < len(text)))
        start, is_inside = end, ends_inside
    return tuple(parts)


def _longest(text: str, start: int, limit: int) -> int:
    """Return the end of the longest part that fits."""
    end = min(start + limit, len(text))
    while (excess := width(text[start:end]) - limit) > 0:
        end -= (excess + 1) // 2
    is_pair = end < len(text) and _is_high(text[end - 1]) and _is_low(text[end])
    return end - 1 if is_pair and end - 1 > start else end


def _is_high(character: str) -> bool:
    return "\ud800" <= character <= "\udbff"


def _is_low(character: str) -> bool:
    return "\udc00" <= character <= "\udfff"


def _before_fence(fences: Fences, start: int, end: int) -> int:
    """Move an end out of the fence that it would cut, unless the fence alone does not fit."""
    number = bisect_left(fences, (end, 0)) - 1  # of the last fence that begins before the end
    if number >= 0:
        first, last = fences[number]
        if start < first and end < last:
            return first
    return end


def _behind_closing_fence(fences: Fences, end: int) -> int:
    """Take a fence that follows into the part: the next one would begin with an empty block."""
    number = bisect_left(fences, (end, 0))
    if number % 2 == 1 and number < len(fences):
        first, last = fences[number]
        if first == end and last - first <= len(_CLOSING):
            return last
    return end


def _is_inside(fences: Fences, position: int) -> bool:
    """Return whether a position is within a block of code: behind an odd number of fences."""
    return bisect_right(fences, position, key=lambda fence: fence[1]) % 2 == 1


def _best_cut(text: str, start: int, end: int, fences: Fences) -> int:
    least = start + (end - start) // 2
    choices = (
        (_PARAGRAPH, False),
        (_LINE, False),
        (_SENTENCE, False),
        (_LINE, True),
        (_WORD, False),
        (_WORD, True),
    )
    for pattern, is_code in choices:
        cuts = [found.end() for found in pattern.finditer(text, least, end)]
        for cut in reversed(cuts):
            if cut > start and (is_code or not _is_inside(fences, cut)):
                return cut
    return end
