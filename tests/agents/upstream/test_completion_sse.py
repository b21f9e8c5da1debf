"""Reading server-sent events from bytes in any pieces."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_trio.agents.upstream.completion import EventTooLong, SseDecoder


def read(*pieces: bytes, limit: int = 1_000) -> list[str]:
    reader = SseDecoder(limit)
    return [event for piece in pieces for event in reader.feed(piece)] + reader.close()


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\ndata: b\n\n", ["a", "b"]),
        (b"data:a\r\n\r\ndata:  b\r\n\r\n", ["a", " b"]),
        (b"data: a\r\rdata: b\r\r", ["a", "b"]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b": comment\nevent: x\nid: 1\nretry: 5\ndata: a\n\n", ["a"]),
        (b"event: ping\n\n\n\ndata: a\n\n", ["a"]),
        (b"data: a", ["a"]),
        (b"data: a\n", ["a"]),
        (b"data\n\n", [""]),
        (b"dataset: a\n\n", []),
        (b"", []),
        ("data: é🌍\n\n".encode(), ["é🌍"]),
        (b"data: \xff\n\n", ["\ufffd"]),
    ],
)
def test_whole_and_byte_by_byte(stream: bytes, events: list[str]) -> None:
    assert read(stream) == events
    assert read(*(stream[n : n + 1] for n in range(len(stream)))) == events


@settings(max_examples=50)
@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.data(),
)
def test_cuts_do_not_matter(texts: list[str], end: str, data: st.DataObject) -> None:
    stream = "".join(f"data: {text}{end}{end}" for text in texts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert read(*pieces, limit=10_000) == texts


@pytest.mark.parametrize(
    "pieces",
    [[b"x" * 101], [b"x" * 60] * 2, [b"data: " + b"x" * 60 + b"\n"] * 2, [b"data: x\n" * 60]],
)
def test_an_event_is_bounded(pieces: list[bytes]) -> None:
    with pytest.raises(EventTooLong, match="more than 100 bytes"):
        read(*pieces, limit=100)


def test_a_stream_is_not_bounded() -> None:
    assert len(read(*[b"data: " + b"x" * 60 + b"\n\n"] * 100, limit=100)) == 100
