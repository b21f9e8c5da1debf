"""Sessions as values."""

from __future__ import annotations

from hermes_trio.core.messages import (
    Message,
)
from hermes_trio.core.sessions import build_preview


def test_the_preview_of_a_message_with_an_image_is_its_text() -> None:
    parts = ({"type": "image_url"}, {"type": "text", "text": "Look\nhere"})
    assert build_preview([Message("assistant", "no"), Message("user", parts)]) == "Look here"
