"""Session chat, in one piece: the same changes as the stream, collected into one reply."""

from __future__ import annotations

from typing import Any

from hermes_trio.core.dialects.chat_batch import ChatCollector
from hermes_trio.core.dialects.responses_object import usage_block
from hermes_trio.core.dialects.session import message_id
from hermes_trio.core.dialects.session_object import end_flags
from hermes_trio.core.record import RunHeader


class SessionCollector(ChatCollector):
    """Changes in, one reply out. What is an error in Chat Completions is one here."""

    def __init__(self, header: RunHeader) -> None:
        super().__init__(header.stamp)
        self._header = header

    def _body(self, answer: str) -> dict[str, Any]:
        return {
            "object": "hermes.session.chat.completion",
            "session_id": self.outcome.session_id or self._header.session_id,
            "run_id": self._header.run_id,
            "message": {"id": message_id(self._header), "role": "assistant", "content": answer},
            "usage": usage_block(self.outcome.usage),
            **end_flags(self.outcome),
        }
