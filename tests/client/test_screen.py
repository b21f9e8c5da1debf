"""Untrusted text has no effect on a terminal.

Frames come out whole; what is printed once is never printed again.
"""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.client.events import (
    MAX_FRAME_BYTES,
    Body,
    FrameTooLong,
    ReasoningDelta,
    RunCompleted,
    SseParser,
    StreamEvent,
    TextDelta,
    ToolCallEnded,
    ToolCallStarted,
)
from hermes_trio.client.screen import escape_hidden, last_lines, one_line, sanitize_text
from hermes_trio.client.view import (
    EMPTY_VIEW,
    START,
    Block,
    ReasoningBlock,
    TextBlock,
    ToolCard,
    apply_event,
    replay_events,
    split_blocks,
    stable_prefix,
)

NASTY = "\x1b[2J\x07\x9b31m\u202eevil\u2066\r\x00\u2028"


@given(st.text())
def test_control_sequences_are_removed(text: str) -> None:
    for shown in (sanitize_text(text), escape_hidden(text), one_line(text, 20)):
        assert not [
            char
            for char in shown
            if unicodedata.category(char) in {"Cc", "Cs"} and char not in "\n\t"
        ]


def test_plain_text_stays_as_it_is() -> None:
    text = "Grüße\n\tan 日本 👩\u200d🔬"
    assert sanitize_text(text) == text
    assert sanitize_text("a\r\nb") == "a\nb"
    assert sanitize_text(NASTY) == "[2J31mevil"


def test_invisible_characters_are_escaped_in_approval_requests() -> None:
    assert escape_hidden("rm\u200b -rf \u202ex\x1b[8m") == "rm\\u200b -rf \\u202ex\\x1b[8m"


def test_one_line_and_last_lines() -> None:
    assert one_line(" a\n b ", 10) == "a b"
    assert one_line("abcdef", 4) == "abc…"
    assert last_lines("a\nb\nc\n", 3) == "a\nb\nc"
    assert last_lines("a\nb\nc\nd", 2) == "…\nc\nd"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("one", ""),
        ("one\n\ntwo", "one\n\n"),
        ("one\n\n```\ncode\n\nmore", "one\n\n"),
        ("```\ncode\n\nmore\n```\n\nend", "```\ncode\n\nmore\n```\n\n"),
        ("````\n```\n\n````\n\nend", "````\n```\n\n````\n\n"),
        ("~~~\n```\n\n", ""),
        ("one\n \n", "one\n \n"),
    ],
)
def test_the_stable_prefix_of_a_markdown_text(text: str, expected: str) -> None:
    assert text[: stable_prefix(text)] == expected


# Frames


@given(
    st.lists(st.text(alphabet="ab:ä€ ", max_size=5), max_size=6),
    st.sampled_from(["\n", "\r\n"]),
    st.data(),
)
def test_frames_are_parsed_at_any_chunk_boundary(
    said: list[str], end: str, data: st.DataObject
) -> None:
    lines = (f": comment{end}id: 1{end}data: {text}{end}{end}" for text in said)
    stream = "".join(lines).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    frames, found = SseParser(), []
    for begin, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += frames.feed(stream[begin:stop])
    assert found == said


def test_an_incomplete_frame_is_ignored() -> None:
    assert SseParser().feed(b"data: a\ndata: b\n\ndata: c\n") == ["a\nb"]


def test_a_frame_is_limited_in_size() -> None:
    frames = SseParser()
    with pytest.raises(FrameTooLong):
        frames.feed(
            b"data: " + b"x" * (MAX_FRAME_BYTES // 2) + b"\n" + b"data: " + b"x" * MAX_FRAME_BYTES
        )


# What is printed for good

pieces = st.sampled_from(["a", "\n", "\n\n", "```\n", "b c", " "])
told = st.one_of(
    st.builds(TextDelta, pieces),
    st.builds(ReasoningDelta, pieces),
    st.builds(ToolCallStarted, st.sampled_from("xy"), st.just("t")),
    st.builds(ToolCallEnded, st.sampled_from("xy"), st.just("t")),
)


@given(st.lists(told, max_size=30))
def test_everything_is_printed_once_and_in_order(
    said: list[TextDelta | ReasoningDelta | ToolCallStarted | ToolCallEnded],
) -> None:
    view, mark, printed = EMPTY_VIEW, START, list[Block]()
    for number, body in enumerate([*said, RunCompleted()]):
        view = apply_event(view, StreamEvent(number, 0.0, body), 0.0)
        parts = split_blocks(view, mark)
        mark, printed = parts.mark, [*printed, *parts.printed]
    assert parts.rest == ()
    assert shape(printed) == shape(view.blocks)


def shape(blocks: object) -> list[str]:
    """The blocks without white space; neighbours of one kind count as one."""
    found: list[str] = []
    assert isinstance(blocks, list | tuple)
    for block in blocks:
        name = type(block).__name__
        text = (
            "".join(block.text.split())
            if isinstance(block, TextBlock | ReasoningBlock)
            else block.call_id
        )
        if text and found and found[-1].startswith(f"{name}:") and not isinstance(block, ToolCard):
            found[-1] += text
        elif text:
            found.append(f"{name}:{text}")
    return found


def test_a_running_call_holds_back_what_follows() -> None:
    said: list[Body] = [TextDelta("a\n\n"), ToolCallStarted("x", "t"), TextDelta("b\n\n")]
    view = replay_events(tuple(StreamEvent(number, 0.0, body) for number, body in enumerate(said)))
    parts = split_blocks(view)
    assert parts.printed == (TextBlock("a\n\n"),)
    assert [type(block) for block in parts.rest] == [ToolCard, TextBlock]
