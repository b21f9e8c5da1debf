"""The live terminal: what is over is printed, what still changes is drawn again below it. Needs rich."""

from __future__ import annotations

import os
import select
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import trio
from attrs import frozen
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.segment import Segment, Segments
from rich.text import Text

from hermes_trio.client import render
from hermes_trio.client.events import Question
from hermes_trio.client.layout import START, split
from hermes_trio.client.state import View
from hermes_trio.client.stream import Heard
from hermes_trio.client.text import printable
from hermes_trio.core.events import Choice

_SPARE_LINES = 1


class LiveScreen:
    """A turn on a terminal. Drawing is left to ``tick``: events may come faster than anybody can see."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.time) -> None:
        self._console, self._clock = console, clock
        self._began = clock()
        self._mark = START
        self._is_stopping = False
        self._asked: tuple[Question, ...] = ()
        self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False,
                          redirect_stderr=False)  # fmt: skip

    @property
    def frames_per_second(self) -> float:
        """As often as the spinner turns."""
        return render.FRAMES_PER_SECOND

    def show(self, view: View, heard: Heard, /) -> None:
        """What was heard is drawn at the next tick."""

    def tick(self, view: View) -> None:
        """Print what is over and draw the rest."""
        if not self._live.is_started:
            self._live.start()
        now = self._clock()
        parts = split(view, self._mark)
        if parts.printed:
            self._console.print(render.blocks(view, parts.printed, now))
        self._mark = parts.mark
        asked = [render.question(question) for question in self._asked]
        status = render.status(now - self._began, self._is_stopping, now)
        drawn = Group(self._end_of(render.blocks(view, parts.rest, now), asked), *asked, status)
        self._live.update(drawn, refresh=True)

    @contextmanager
    def asking(self, question: Question) -> Iterator[None]:
        """Show a question for the length of a block."""
        self._asked = (question,)
        try:
            yield
        finally:
            self._asked = ()

    def notice(self, text: str) -> None:
        """A line that stays."""
        self._console.print(Text(printable(text), style="yellow"))

    def stopping(self) -> None:
        """The status line tells it."""
        self._is_stopping = True

    def finish(self, view: View) -> None:
        """Print all that is left."""
        self._live.stop()
        now = self._clock()
        parts = split(view, self._mark)
        if parts.printed or parts.rest:
            self._console.print(render.blocks(view, (*parts.printed, *parts.rest), now))
        if view.is_over:
            self._console.print(render.ending(view, now - self._began))

    def _end_of(self, drawn: RenderableType, below: Sequence[RenderableType]) -> Segments:
        """As many of the last lines as fit: what scrolled away could not be drawn again."""
        taken = sum(len(self._console.render_lines(each, pad=False)) for each in below)
        room = max(1, self._console.height - taken - 1 - _SPARE_LINES)
        lines = self._console.render_lines(drawn, pad=False)[-room:]
        return Segments([segment for line in lines for segment in (*line, Segment.line())])


@frozen
class Keyboard:
    """Single keys from a terminal."""

    fd: int

    async def ask(self, screen: LiveScreen, question: Question) -> Choice:
        """Let the person decide. What was typed before the question is there to be seen does not count."""
        termios.tcflush(self.fd, termios.TCIFLUSH)
        with screen.asking(question):
            return await self._choose(question)

    async def _choose(self, question: Question) -> Choice:
        while True:
            await trio.lowlevel.wait_readable(self.fd)
            typed = self._read()
            if not typed:
                return Choice.DENY  # the terminal is gone
            choice = render.KEYS.get(typed.decode("ascii", "replace").lower())
            if choice in question.choices:
                return choice

    def _read(self) -> bytes:
        """All that there is: what comes together is an arrow key or was pasted, and means nothing here."""
        ready, _, _ = select.select([self.fd], [], [], 0)
        return os.read(self.fd, 64) if ready else b"?"


@contextmanager
def single_keys(fd: int) -> Iterator[Keyboard]:
    """A terminal that gives keys at once and does not show them; Ctrl-C stays what it is."""
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd, termios.TCSADRAIN)
        yield Keyboard(fd)
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
