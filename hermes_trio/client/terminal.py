"""The live terminal: finished blocks are printed, what still changes is redrawn below them.

Needs rich.

The functions that render are pure; the time is an argument.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markdown import Markdown
from rich.padding import Padding
from rich.panel import Panel
from rich.segment import Segment, Segments
from rich.text import Text

from hermes_trio.client.events import ApprovalPrompt, RunCancelled, RunCompleted, RunFailed
from hermes_trio.client.keyboard import key_hints
from hermes_trio.client.screen import escape_hidden, last_lines, one_line, sanitize_text
from hermes_trio.client.stream import Received
from hermes_trio.client.view import (
    START,
    ApprovalBlock,
    Block,
    CardState,
    ReasoningBlock,
    TextBlock,
    ToolCard,
    View,
    split_blocks,
)
from hermes_trio.core.events import Choice

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAMES_PER_SECOND = 10
_PREVIEW = 100
_LINES_RUNNING = 6
_LINES_DONE = 8
_INDENT = (0, 0, 0, 2)

_SIGNS: Mapping[CardState, tuple[str, str]] = {
    CardState.DONE: ("✓", "green"),
    CardState.FAILED: ("✗", "red"),
    CardState.CANCELLED: ("■", "yellow"),
    CardState.HANDED_OVER: ("→", "yellow"),
}


def render_blocks(view: View, shown: Iterable[Block], now: float) -> Group:
    """Render blocks of a view, one below the other."""
    return Group(*(_block(view, block, now) for block in shown))


def _block(view: View, block: Block, now: float) -> RenderableType:
    match block:
        case TextBlock(text):
            return Markdown(sanitize_text(text), hyperlinks=False, code_theme="ansi_dark")
        case ReasoningBlock(text):
            return Padding(Text(sanitize_text(text).strip(), style="dim italic"), _INDENT)
        case ToolCard():
            return _card(block, view.elapsed(block, now), now)
        case ApprovalBlock():
            return _decision(block)


def _card(card: ToolCard, elapsed: float, now: float) -> RenderableType:
    is_running = card.state is CardState.RUNNING
    sign, style = (_spinner(now), "cyan") if is_running else _SIGNS[card.state]
    head = Text.assemble((f"{sign} ", style), (one_line(card.tool, _PREVIEW), "bold"))
    if card.preview:
        head.append(f" {one_line(card.preview, _PREVIEW)}")
    head.append(f"  {format_seconds(elapsed if is_running else card.seconds)}", style="dim")
    if card.state in {CardState.CANCELLED, CardState.HANDED_OVER}:
        head.append(f" {card.state}", style=style)
    shown = (
        last_lines(card.printed, _LINES_RUNNING)
        if is_running
        else last_lines(card.result, _LINES_DONE)
    )
    return Group(head, Padding(Text(shown, style="dim"), _INDENT)) if shown else head


def _decision(block: ApprovalBlock) -> Text:
    is_denied = block.choice == Choice.DENY
    by = "" if block.by in {"", "client"} else f", {block.by}"
    sign, style = (
        ("✗ denied", "red") if is_denied else (f"✓ approved {one_line(block.choice, 20)}", "green")
    )
    return Text.assemble(
        (f"{sign}{by}: ", style), one_line(escape_hidden(block.question.command), _PREVIEW)
    )


def render_question(question: ApprovalPrompt) -> Panel:
    """Render an approval request, with the keys that decide it."""
    keys = key_hints(question.choices)
    description = (
        [Text(sanitize_text(question.description).strip())] if question.description else []
    )
    body = Group(
        *description,
        Text(escape_hidden(question.command), style="bold"),
        Text(""),
        Text(keys, style="cyan"),
    )
    return Panel(body, title="The agent asks", title_align="left", border_style="yellow")


def render_status(elapsed: float, is_stopping: bool, now: float) -> Text:
    """Render the last line while a run is in progress."""
    what = "stopping; Ctrl-C again quits" if is_stopping else "Ctrl-C stops"
    return Text.assemble(
        (f"{_spinner(now)} ", "cyan"), (f"{format_seconds(elapsed)}  {what}", "dim")
    )


def render_ending(view: View, elapsed: float) -> Text:
    """Render the line after the end of a run."""
    match view.end:
        case RunCompleted(_, reason, tokens):
            counted = f" · {tokens} tokens" if tokens else ""
            cut = f" · incomplete: {one_line(reason, _PREVIEW)}" if reason else ""
            return Text(
                f"{format_seconds(elapsed)}{counted}{cut}", style="yellow" if reason else "dim"
            )
        case RunFailed(error, _):
            return Text(f"✗ failed: {sanitize_text(error)}", style="red")
        case RunCancelled():
            return Text("■ stopped", style="yellow")
        case _:
            return Text("")


def format_seconds(elapsed: float) -> str:
    """Format a duration."""
    if elapsed < 60:
        return f"{elapsed:.1f} s"
    minutes, rest = divmod(int(elapsed), 60)
    return f"{minutes} min {rest:02} s"


def _spinner(now: float) -> str:
    return FRAMES[int(now * FRAMES_PER_SECOND) % len(FRAMES)]


_SPARE_LINES = 1


class LiveScreen:
    """Displays a turn on a terminal.

    Only ``tick`` draws, because events may come faster than can be seen.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.time) -> None:
        self._console, self._clock = console, clock
        self._began = clock()
        self._mark = START
        self._is_stopping = False
        self._asked: tuple[ApprovalPrompt, ...] = ()
        self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False,
                          redirect_stderr=False)  # fmt: skip

    @property
    def frames_per_second(self) -> float:
        """The speed of the spinner."""
        return FRAMES_PER_SECOND

    def show(self, view: View, received: Received, /) -> None:
        """Do nothing: the next tick draws it."""

    def tick(self, view: View) -> None:
        """Print finished blocks, and draw the others."""
        if not self._live.is_started:
            self._live.start()
        now = self._clock()
        parts = split_blocks(view, self._mark)
        if parts.printed:
            self._console.print(render_blocks(view, parts.printed, now))
        self._mark = parts.mark
        asked = [render_question(question) for question in self._asked]
        status = render_status(now - self._began, self._is_stopping, now)
        # Of the other blocks, only as many of the last lines as fit: lines that scrolled away
        # cannot be redrawn.
        taken = sum(len(self._console.render_lines(each, pad=False)) for each in asked)
        room = max(1, self._console.height - taken - 1 - _SPARE_LINES)
        rest = self._console.render_lines(render_blocks(view, parts.rest, now), pad=False)[-room:]
        end = Segments([segment for line in rest for segment in (*line, Segment.line())])
        self._live.update(Group(end, *asked, status), refresh=True)

    @contextmanager
    def asking(self, question: ApprovalPrompt) -> Iterator[None]:
        """Display an approval request inside a block."""
        self._asked = (question,)
        try:
            yield
        finally:
            self._asked = ()

    def notice(self, text: str) -> None:
        """Print a line."""
        self._console.print(Text(sanitize_text(text), style="yellow"))

    def stopping(self) -> None:
        """Display it in the status line."""
        self._is_stopping = True

    def finish(self, view: View) -> None:
        """Print everything that is left, and the outcome."""
        self._live.stop()
        now = self._clock()
        parts = split_blocks(view, self._mark)
        if parts.printed or parts.rest:
            self._console.print(render_blocks(view, (*parts.printed, *parts.rest), now))
        if view.is_over:
            self._console.print(render_ending(view, now - self._began))
