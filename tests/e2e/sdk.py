"""Helpers that all tests of the OpenAI clients share."""

from __future__ import annotations

from typing import Any

MODEL = "hermes-agent"


def asked(text: str) -> list[Any]:
    """The messages of a second turn: the demo agent introduces itself in the first one."""
    return [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": text},
    ]
