"""Text of others on a terminal of ours: nothing in it may move the cursor, clear the screen or hide what it says."""

from __future__ import annotations

import re

_KEPT = "\n\t"
# Control characters, and those that turn the direction of writing around.
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_HIDDEN = re.compile(
    r"[\u00ad\u115f\u1160\u180e\u200b-\u200d\u2060-\u2064\u3164\ufeff\uffa0\U000e0000-\U000e007f]"
)
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)
_LEFT_OUT = "…"


def printable(text: str) -> str:
    """Text without what a terminal would obey."""
    return _UNSAFE.sub("", text.replace("\r\n", "\n"))


def revealed(text: str) -> str:
    """The same for what somebody is to decide about: what cannot be seen is spelt out rather than left out."""
    return _HIDDEN.sub(_spelt, _UNSAFE.sub(_spelt, text))


def one_line(text: str, most: int) -> str:
    """A text in one line of at most so many characters."""
    line = " ".join(printable(text).split())
    return line if len(line) <= most else f"{line[: most - 1]}{_LEFT_OUT}"


def last_lines(text: str, most: int) -> str:
    """The end of a text; a mark tells that there is more before it."""
    lines = printable(text).rstrip("\n").split("\n")
    return "\n".join(lines if len(lines) <= most else [_LEFT_OUT, *lines[-most:]])


def settled(text: str) -> int:
    """How many characters at the beginning of a Markdown text will not look different when more is said.

    They end with a paragraph that is over, and never within a block of code.
    """
    end, fence, place = 0, "", 0
    for line in text.splitlines(keepends=True):
        place += len(line)
        if mark := _FENCE.match(line):
            fence = _after(fence, mark[1])
        elif not fence and not line.strip() and line.endswith("\n"):
            end = place
    return end


def _after(fence: str, mark: str) -> str:
    """The fence that is open after a line with one: it is closed by one of its kind that is as long."""
    if not fence:
        return mark
    return "" if mark.startswith(fence) else fence


def _spelt(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
