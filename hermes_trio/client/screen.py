"""Screens that display a run: the interface, plain text and JSON lines.

The live terminal is in ``terminal``.

Text from a model or a tool is sanitized first: nothing in it may move the cursor, clear the screen
or hide what it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from attrs import define

from hermes_trio.client.events import ApprovalPrompt, RunCompleted, RunFailed
from hermes_trio.client.keyboard import key_hints
from hermes_trio.client.stream import Received
from hermes_trio.client.view import START, PrintPosition, TextBlock, View

_MAX_NOTICE_CHARS = 500


class Screen(Protocol):
    """Displays one turn."""

    @property
    def frames_per_second(self) -> float:
        """How often to call ``tick``; 0 for never."""
        ...

    def show(self, view: View, received: Received, /) -> None:
        """Display one more event."""
        ...

    def tick(self, view: View) -> None:
        """Redraw, because time has passed."""
        ...

    def notice(self, text: str) -> None:
        """Display a message that is not part of the run."""
        ...

    def stopping(self) -> None:
        """Display that the run was asked to stop."""
        ...

    def finish(self, view: View) -> None:
        """Display the end."""
        ...


@define
class _Plain:
    """The common part of both: notices go to stderr, and nothing is redrawn."""

    out: TextIO
    err: TextIO

    @property
    def frames_per_second(self) -> float:
        return 0.0

    def tick(self, view: View) -> None:
        """Do nothing."""

    def notice(self, text: str) -> None:
        self.err.write(f"{one_line(text, _MAX_NOTICE_CHARS)}\n")
        self.err.flush()

    def stopping(self) -> None:
        self.notice("stopping; Ctrl-C again quits")


@define
class JsonLines(_Plain):
    """Writes every event as it was received, one per line."""

    def show(self, _view: View, received: Received, /) -> None:
        # Between two tokens of JSON a space is as good as a line break, and within a string there
        # is none.
        line = received.data.replace("\n", " ")
        self.out.write(f"{line}\n")
        self.out.flush()

    def finish(self, view: View) -> None:
        """Do nothing: every event has been written."""


@define
class PlainText(_Plain):
    """Writes only the answer, as it arrives."""

    mark: PrintPosition = START

    @contextmanager
    def asking(self, question: ApprovalPrompt) -> Iterator[None]:
        """Display an approval request inside a block."""
        self.out.flush()
        description = one_line(question.description, _MAX_NOTICE_CHARS)
        reason = f"{description}\n" if description else ""
        command = escape_hidden(question.command)
        self.err.write(f"\nThe agent asks:\n{reason}{command}\n{key_hints(question.choices)}\n")
        self.err.flush()
        yield

    def show(self, view: View, _received: Received, /) -> None:
        written = False
        for place in range(self.mark.block, len(view.blocks)):
            block = view.blocks[place]
            begin = self.mark.character if place == self.mark.block else 0
            if isinstance(block, TextBlock) and block.text[begin:]:
                self._write(block.text[begin:], gap=begin == 0 and _has_text_before(view, place))
                self.mark, written = PrintPosition(place, len(block.text)), True
        if written:
            self.out.flush()

    def _write(self, text: str, gap: bool) -> None:
        shown = sanitize_text(text) if self.out.isatty() else text
        self.out.write(f"\n\n{shown.lstrip()}" if gap else shown)

    def finish(self, view: View) -> None:
        if _has_text_before(view, len(view.blocks)):
            self.out.write("\n")
            self.out.flush()
        match view.end:
            case RunFailed(error, _):
                self.notice(f"failed: {error}")
            case RunCompleted(_, reason, _) if reason:
                self.notice(f"incomplete: {reason}")
            case _:
                pass


def _has_text_before(view: View, place: int) -> bool:
    return any(isinstance(block, TextBlock) for block in view.blocks[:place])


# -- text for a terminal --

# Control characters, and those that turn the direction of writing around.
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_HIDDEN = re.compile(
    r"[\u00ad\u115f\u1160\u180e\u200b-\u200d\u2060-\u2064\u3164\ufeff\uffa0\U000e0000-\U000e007f]"
)
_ELLIPSIS = "…"


def sanitize_text(text: str) -> str:
    """Remove the characters that a terminal would obey."""
    return _UNSAFE.sub("", text.replace("\r\n", "\n"))


def escape_hidden(text: str) -> str:
    """Escape control and invisible characters, for text that a person decides about."""
    return _HIDDEN.sub(_escape, _UNSAFE.sub(_escape, text))


def one_line(text: str, most: int) -> str:
    """Return a text as one line of at most ``most`` characters."""
    line = " ".join(sanitize_text(text).split())
    return line if len(line) <= most else f"{line[: most - 1]}{_ELLIPSIS}"


def last_lines(text: str, most: int) -> str:
    """Return the last lines of a text, after an ellipsis if some were left out."""
    lines = sanitize_text(text).rstrip("\n").split("\n")
    return "\n".join(lines if len(lines) <= most else [_ELLIPSIS, *lines[-most:]])


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
