"""How a run looks on a terminal: values in, things that rich can draw out. The time is given, nothing here moves by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.panel import Panel
from rich.text import Text

from hermes_trio.client.events import Cancelled, Completed, Failed, Question
from hermes_trio.client.state import Block, Card, CardState, Mused, Said, Settled, View
from hermes_trio.client.text import last_lines, one_line, printable, revealed
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
KEYS: Mapping[str, Choice] = {
    "o": Choice.ONCE,
    "s": Choice.SESSION,
    "a": Choice.ALWAYS,
    "d": Choice.DENY,
    "y": Choice.ONCE,
    "n": Choice.DENY,
}
_LABELS: Mapping[Choice, str] = {
    Choice.ONCE: "o once",
    Choice.SESSION: "s in this session",
    Choice.ALWAYS: "a always",
    Choice.DENY: "d deny",
}


def blocks(view: View, shown: Iterable[Block], now: float) -> Group:
    """Some blocks of a view, one below the other."""
    return Group(*(_block(view, block, now) for block in shown))


def _block(view: View, block: Block, now: float) -> RenderableType:
    match block:
        case Said(text):
            return Markdown(printable(text), hyperlinks=False, code_theme="ansi_dark")
        case Mused(text):
            return Padding(Text(printable(text).strip(), style="dim italic"), _INDENT)
        case Card():
            return _card(block, view.elapsed(block, now), now)
        case Settled():
            return _settled(block)


def _card(card: Card, elapsed: float, now: float) -> RenderableType:
    is_running = card.state is CardState.RUNNING
    sign, style = (_spinner(now), "cyan") if is_running else _SIGNS[card.state]
    head = Text.assemble((f"{sign} ", style), (one_line(card.tool, _PREVIEW), "bold"))
    if card.preview:
        head.append(f" {one_line(card.preview, _PREVIEW)}")
    head.append(f"  {seconds(elapsed if is_running else card.seconds)}", style="dim")
    if card.state in {CardState.CANCELLED, CardState.HANDED_OVER}:
        head.append(f" {card.state}", style=style)
    shown = last_lines(card.printed, _LINES_RUNNING) if is_running else last_lines(card.result, _LINES_DONE)
    return Group(head, Padding(Text(shown, style="dim"), _INDENT)) if shown else head


def _settled(settled: Settled) -> Text:
    is_denied = settled.choice == Choice.DENY
    by = "" if settled.by in {"", "client"} else f", {settled.by}"
    sign, style = (
        ("✗ denied", "red") if is_denied else (f"✓ approved {one_line(settled.choice, 20)}", "green")
    )
    return Text.assemble((f"{sign}{by}: ", style), one_line(revealed(settled.question.command), _PREVIEW))


def question(asked: Question) -> Panel:
    """What the agent wants to do, and the keys that decide it."""
    keys = "   ".join(_LABELS[choice] for choice in asked.choices)
    told = [Text(printable(asked.description).strip())] if asked.description else []
    body = Group(*told, Text(revealed(asked.command), style="bold"), Text(""), Text(keys, style="cyan"))
    return Panel(body, title="The agent asks", title_align="left", border_style="yellow")


def status(elapsed: float, is_stopping: bool, now: float) -> Text:
    """The last line while a run goes on."""
    what = "stopping; Ctrl-C again quits" if is_stopping else "Ctrl-C stops"
    return Text.assemble((f"{_spinner(now)} ", "cyan"), (f"{seconds(elapsed)}  {what}", "dim"))


def ending(view: View, elapsed: float) -> Text:
    """The last line of all."""
    match view.end:
        case Completed(_, reason, tokens):
            counted = f" · {tokens} tokens" if tokens else ""
            cut = f" · incomplete: {one_line(reason, _PREVIEW)}" if reason else ""
            return Text(f"{seconds(elapsed)}{counted}{cut}", style="yellow" if reason else "dim")
        case Failed(error, _):
            return Text(f"✗ failed: {printable(error)}", style="red")
        case Cancelled():
            return Text("■ stopped", style="yellow")
        case _:
            return Text("")


def seconds(elapsed: float) -> str:
    """A duration for people."""
    if elapsed < 60:
        return f"{elapsed:.1f} s"
    minutes, rest = divmod(int(elapsed), 60)
    return f"{minutes} min {rest:02} s"


def _spinner(now: float) -> str:
    return FRAMES[int(now * FRAMES_PER_SECOND) % len(FRAMES)]
