"""Capture: nothing is lost below the limit, and nothing grows beyond it."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.tools.terminal import _OutputCapture


def captured(pieces: list[bytes], limit: int) -> tuple[_OutputCapture, str]:
    heard: list[str] = []
    capture = _OutputCapture(limit, heard.append)
    for piece in pieces:
        capture.add(piece)
    capture.close()
    assert all(heard)
    return capture, "".join(heard)


@given(st.lists(st.binary(max_size=20)), st.integers(0, 60))
def test_both_ends_are_kept_however_it_comes(pieces: list[bytes], limit: int) -> None:
    whole = b"".join(pieces).decode("utf-8", "replace")
    capture, heard = captured(pieces, limit)
    assert heard == whole[:limit]
    assert capture.is_cut == (len(whole) > limit)
    if not capture.is_cut:
        assert capture.text == whole
        return
    found = re.fullmatch(
        r"(.*)\n\[\.\.\. (\d+) characters left out \.\.\.\]\n(.*)", capture.text, re.DOTALL
    )
    assert found is not None
    head, left_out, tail = found.groups()
    assert whole == head + whole[len(head) : len(head) + int(left_out)] + tail
    assert len(head) + len(tail) == limit


@given(st.text(), st.integers(1, 5))
def test_characters_are_never_torn(text: str, step: int) -> None:
    data = text.encode()
    capture, heard = captured(
        [data[start : start + step] for start in range(0, len(data), step)], 10_000
    )
    assert capture.text == heard == text
