"""The bytes of a chat stream and of a chat reply, as hermes_trio writes them.

Only the standard library.
"""

from __future__ import annotations

import json

_HEAD = (
    '"id": "chatcmpl-0123456789abcdef0123456789abc", "object": "chat.completion.chunk", '
    '"created": 1700000000, "model": "hermes-agent"'
)
_BEFORE = f'data: {{{_HEAD}, "choices": [{{"index": 0, "delta": {{"content": '
_AFTER = '}, "finish_reason": null}]}\n\n'

ROLE = f'data: {{{_HEAD}, "choices": [{{"index": 0, "delta": {{"role": "assistant"}}, "finish_reason": null}}]}}\n\n'.encode()
FINISH = (
    f'data: {{{_HEAD}, "choices": [{{"index": 0, "delta": {{}}, "finish_reason": "stop"}}], '
    '"usage": {"prompt_tokens": 3, "completion_tokens": 100, "total_tokens": 103}}\n\ndata: [DONE]\n\n'
).encode()
KEEPALIVE = b": keepalive\n\n"


def text_frame(text: str) -> bytes:
    """Return the frame of a piece of text."""
    return f"{_BEFORE}{json.dumps(text)}{_AFTER}".encode("ascii")


def reply(text: str) -> bytes:
    """Return a whole reply."""
    message = {"role": "assistant", "content": text}
    return json.dumps(
        {
            "id": "chatcmpl-0123456789abcdef0123456789abc",
            "object": "chat.completion",
            "created": 1700000000,
            "model": "hermes-agent",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 100, "total_tokens": 103},
        }
    ).encode()
