"""The terminal view of a run, compared as text."""

from __future__ import annotations

import io
from typing import Any

import pytest

from hermes_trio.client.events import (
    ApprovalClosed,
    ApprovalPrompt,
    Body,
    ReasoningDelta,
    RunCancelled,
    RunCompleted,
    RunFailed,
    StreamEvent,
    TextDelta,
    ToolCallEnded,
    ToolCallHandedOver,
    ToolCallOutput,
    ToolCallStarted,
)
from hermes_trio.client.stream import Received
from hermes_trio.client.view import EMPTY_VIEW, View, replay_events
from hermes_trio.core.events import Choice

pytest.importorskip("rich")

from rich.console import Console

from hermes_trio.client import keyboard, terminal
from hermes_trio.client.terminal import LiveScreen

NOW = 1000.0


def view_of(*said: Body) -> View:
    return replay_events(
        tuple(StreamEvent(number, NOW - 2.5, body) for number, body in enumerate(said)), NOW - 2.5
    )


def drawn(renderable: Any, width: int = 40) -> str:
    console = Console(record=True, width=width, file=io.StringIO(), color_system=None)
    console.print(renderable)
    lines = console.export_text().splitlines()
    return "\n".join(line.rstrip() for line in lines)


def picture(*said: Body) -> str:
    view = view_of(*said)
    return drawn(terminal.render_blocks(view, view.blocks, NOW))


def test_a_running_card() -> None:
    assert picture(
        ToolCallStarted("a", "terminal", "make all"), ToolCallOutput("a", "one\ntwo\n")
    ) == ("⠋ terminal make all  2.5 s\n  one\n  two")


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        (ToolCallEnded("a", "t", "fine", 0.25), "✓ t go  0.2 s\n  fine"),
        (ToolCallEnded("a", "t", "", 61.0), "✓ t go  1 min 01 s"),
        (ToolCallEnded("a", "t", "no", 1.0, is_error=True), "✗ t go  1.0 s\n  no"),
        (ToolCallEnded("a", "t", "", 1.0, is_cancelled=True), "■ t go  1.0 s cancelled"),
        (ToolCallHandedOver("a", "t", '{"x": 1}'), '→ t {"x": 1}  0.0 s handed over'),
    ],
)
def test_a_finished_card(over: Body, expected: str) -> None:
    assert picture(ToolCallStarted("a", "t", "go"), over) == expected


def test_text_reasoning_and_an_answered_request() -> None:
    asked = ApprovalPrompt("q", "rm -rf \x1b[2J", "Danger.")
    shown = picture(
        ReasoningDelta("I wonder"), TextDelta("# Title\n\n- **one**\n"), asked, ApprovalClosed("q", "once", "client"),
        ApprovalPrompt("r", "ls"), ApprovalClosed("r", "deny", "timeout"),
    )  # fmt: skip
    assert "  I wonder" in shown
    assert "Title" in shown
    assert " • one" in shown
    assert "✓ approved once: rm -rf \\x1b[2J" in shown
    assert "✗ denied, timeout: ls" in shown
    assert "\x1b" not in shown


def test_a_question() -> None:
    asked = ApprovalPrompt("q", "rm \u202ex", "It cannot be undone.", (Choice.ONCE, Choice.DENY))
    assert drawn(terminal.render_question(asked)) == (
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
        (RunCompleted("x", tokens=35), "1.5 s · 35 tokens"),
        (RunCompleted("x", "max_tokens"), "1.5 s · incomplete: max_tokens"),
        (RunFailed("it \x1b[31mbroke"), "✗ failed: it [31mbroke"),
        (RunCancelled(), "■ stopped"),
    ],
)
def test_endings(end: Body, expected: str) -> None:
    assert drawn(terminal.render_ending(view_of(end), 1.5)) == expected


def test_a_run_without_an_ending() -> None:
    assert drawn(terminal.render_ending(EMPTY_VIEW, 1.5)) == ""


def test_the_status_line() -> None:
    assert drawn(terminal.render_status(3.0, False, NOW)) == "⠋ 3.0 s  Ctrl-C stops"
    assert (
        drawn(terminal.render_status(3.0, True, NOW + 0.1))
        == "⠙ 3.0 s  stopping; Ctrl-C again quits"
    )


def test_every_key_stands_for_a_choice() -> None:
    assert {*keyboard.KEYS.values()} == {*Choice}


# The live screen


def live(height: int = 8) -> tuple[LiveScreen, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, width=40, height=height, force_terminal=True, color_system=None)
    return LiveScreen(console, lambda: NOW), out


def test_finished_parts_are_printed_once() -> None:
    screen, out = live()
    first = view_of(TextDelta("settled\n\nmore"))
    for _ in range(3):
        screen.show(first, Received(StreamEvent(0, 0.0, TextDelta("")), ""))
        screen.tick(first)
    screen.notice("a \x1b[2Jnotice")
    last = view_of(TextDelta("settled\n\nmore"), RunCompleted("", tokens=3))
    screen.finish(last)
    text = out.getvalue()
    assert text.count("settled") == 1
    assert "a [2Jnotice" in text
    assert text.endswith("0.0 s · 3 tokens\n")


def test_the_live_part_fits_the_screen() -> None:
    screen, out = live(height=8)
    view = view_of(
        ToolCallStarted("a", "t"), TextDelta("```\n" + "\n".join(f"line{n}" for n in range(50)))
    )
    with screen.asking(ApprovalPrompt("q", "rm")):
        screen.stopping()
        screen.tick(view)
    text = out.getvalue()
    assert text.count("\n") < 8
    assert "The agent asks" in text
    assert "again quits" in text
    screen.finish(view)
