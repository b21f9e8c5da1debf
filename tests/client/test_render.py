"""How a run looks: pictures of it, as text."""

from __future__ import annotations

import io
from typing import Any

import pytest

from hermes_trio.client.events import (
    Answered,
    Body,
    CallBegan,
    CallOver,
    CallPrinted,
    Cancelled,
    Completed,
    Event,
    Failed,
    HandedOver,
    Question,
    TextSaid,
    Thought,
)
from hermes_trio.client.state import EMPTY, View, replayed
from hermes_trio.client.stream import Heard
from hermes_trio.core.events import Choice

pytest.importorskip("rich")

from rich.console import Console

from hermes_trio.client import render
from hermes_trio.client.terminal import LiveScreen

NOW = 1000.0


def view_of(*said: Body) -> View:
    return replayed(tuple(Event(number, NOW - 2.5, body) for number, body in enumerate(said)), NOW - 2.5)


def drawn(renderable: Any, width: int = 40) -> str:
    console = Console(record=True, width=width, file=io.StringIO(), color_system=None)
    console.print(renderable)
    lines = console.export_text().splitlines()
    return "\n".join(line.rstrip() for line in lines)


def picture(*said: Body) -> str:
    view = view_of(*said)
    return drawn(render.blocks(view, view.blocks, NOW))


def test_a_running_card() -> None:
    assert picture(CallBegan("a", "terminal", "make all"), CallPrinted("a", "one\ntwo\n")) == (
        "⠋ terminal make all  2.5 s\n  one\n  two"
    )


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        (CallOver("a", "t", "fine", 0.25), "✓ t go  0.2 s\n  fine"),
        (CallOver("a", "t", "", 61.0), "✓ t go  1 min 01 s"),
        (CallOver("a", "t", "no", 1.0, is_error=True), "✗ t go  1.0 s\n  no"),
        (CallOver("a", "t", "", 1.0, is_cancelled=True), "■ t go  1.0 s cancelled"),
        (HandedOver("a", "t", '{"x": 1}'), '→ t {"x": 1}  0.0 s handed over'),
    ],
)
def test_a_card_that_is_over(over: Body, expected: str) -> None:
    assert picture(CallBegan("a", "t", "go"), over) == expected


def test_text_reasoning_and_an_answered_question() -> None:
    asked = Question("q", "rm -rf \x1b[2J", "Danger.")
    shown = picture(
        Thought("I wonder"), TextSaid("# Title\n\n- **one**\n"), asked, Answered("q", "once", "client"),
        Question("r", "ls"), Answered("r", "deny", "timeout"),
    )  # fmt: skip
    assert "  I wonder" in shown
    assert "Title" in shown
    assert " • one" in shown
    assert "✓ approved once: rm -rf \\x1b[2J" in shown
    assert "✗ denied, timeout: ls" in shown
    assert "\x1b" not in shown


def test_a_question() -> None:
    asked = Question("q", "rm \u202ex", "It cannot be undone.", (Choice.ONCE, Choice.DENY))
    assert drawn(render.question(asked)) == (
        "╭─ The agent asks ─────────────────────╮\n"
        "│ It cannot be undone.                 │\n"
        "│ rm \\u202ex                           │\n"
        "│                                      │\n"
        "│ o once   d deny                      │\n"
        "╰──────────────────────────────────────╯"
    )


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (Completed("x", tokens=35), "1.5 s · 35 tokens"),
        (Completed("x", "max_tokens"), "1.5 s · incomplete: max_tokens"),
        (Failed("it \x1b[31mbroke"), "✗ failed: it [31mbroke"),
        (Cancelled(), "■ stopped"),
    ],
)
def test_endings(end: Body, expected: str) -> None:
    assert drawn(render.ending(view_of(end), 1.5)) == expected


def test_there_is_no_ending_yet() -> None:
    assert drawn(render.ending(EMPTY, 1.5)) == ""


def test_the_status_line() -> None:
    assert drawn(render.status(3.0, False, NOW)) == "⠋ 3.0 s  Ctrl-C stops"
    assert drawn(render.status(3.0, True, NOW + 0.1)) == "⠙ 3.0 s  stopping; Ctrl-C again quits"


def test_every_key_stands_for_a_choice() -> None:
    assert {*render.KEYS.values()} == {*Choice}


# The live screen


def live(height: int = 8) -> tuple[LiveScreen, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, width=40, height=height, force_terminal=True, color_system=None)
    return LiveScreen(console, lambda: NOW), out


def test_what_is_over_is_printed_once() -> None:
    screen, out = live()
    first = view_of(TextSaid("settled\n\nmore"))
    for _ in range(3):
        screen.show(first, Heard(Event(0, 0.0, TextSaid("")), ""))
        screen.tick(first)
    screen.notice("a \x1b[2Jnotice")
    last = view_of(TextSaid("settled\n\nmore"), Completed("", tokens=3))
    screen.finish(last)
    text = out.getvalue()
    assert text.count("settled") == 1
    assert "a [2Jnotice" in text
    assert text.endswith("0.0 s · 3 tokens\n")


def test_the_moving_part_fits_the_screen() -> None:
    screen, out = live(height=8)
    view = view_of(CallBegan("a", "t"), TextSaid("```\n" + "\n".join(f"line{n}" for n in range(50))))
    with screen.asking(Question("q", "rm")):
        screen.stopping()
        screen.tick(view)
    text = out.getvalue()
    assert text.count("\n") < 8
    assert "The agent asks" in text
    assert "again quits" in text
    screen.finish(view)
