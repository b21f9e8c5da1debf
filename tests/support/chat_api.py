"""Read chat streams, and check each piece against the SDK's types."""

from __future__ import annotations

from typing import Any

import msgspec
from openai.types.chat import ChatCompletionChunk

from hermes_trio.schema import replies
from tests.support.asgi import HttpResponse
from tests.support.sse import Frame

PROGRESS = "hermes.tool.progress"


def chunks(answer: HttpResponse) -> list[dict[str, Any]]:
    """Return the chunks of a whole stream, in order, and check its form."""
    assert answer.status == 200
    frames = [frame for frame in answer.frames if not frame.comment]
    assert frames[-1].is_done
    assert [frame.is_done for frame in frames].count(True) == 1
    found: list[dict[str, Any]] = [checked(frame) for frame in frames[:-1] if not is_failure(frame)]
    heads = {(chunk["id"], chunk["created"], chunk["model"]) for chunk in found}
    assert len(heads) == 1
    return found


def is_failure(frame: Frame) -> bool:
    """Return whether a frame reports a failure: it has no name and no other content."""
    if frame.is_done or "error" not in frame.json:
        return False
    assert (frame.event, list(frame.json)) == ("", ["error"])
    msgspec.convert(frame.json, replies.ErrorEnvelope)
    return True


def failure(answer: HttpResponse) -> dict[str, Any]:
    """Return the one error of a stream, which precedes the finish chunk."""
    frames = [frame for frame in answer.frames if not frame.comment]
    [place] = [n for n, frame in enumerate(frames) if is_failure(frame)]
    assert frames[place + 1].json == finish(answer)
    error: dict[str, Any] = frames[place].json["error"]
    return error


def checked(frame: Frame) -> Any:
    """Return the chunk of a frame, validated against the SDK's type and the OpenAPI document."""
    chunk = frame.json
    known = [choice for choice in chunk["choices"] if choice["finish_reason"] != "error"]
    ChatCompletionChunk.model_validate({**chunk, "choices": known}, strict=True)
    msgspec.convert(chunk, replies.ChatChunk)
    assert frame.event == (PROGRESS if "toolCallId" in chunk else _aside(chunk))
    return chunk


def _aside(chunk: dict[str, Any]) -> str:
    """Return the name of an event that is neither a part of the answer nor tool progress."""
    if "approval" not in chunk:
        return ""
    return (
        "hermes.approval.request" if "choices" in chunk["approval"] else "hermes.approval.responded"
    )


def delta(chunk: dict[str, Any]) -> dict[str, Any]:
    """Return the delta of a chunk."""
    choice: dict[str, Any] = chunk["choices"][0]
    assert choice["index"] == 0
    return dict(choice["delta"])


def deltas(answer: HttpResponse) -> list[dict[str, Any]]:
    """Return the non-empty deltas of all chunks with a choice."""
    return [delta(chunk) for chunk in chunks(answer) if chunk["choices"] and delta(chunk)]


def said(answer: HttpResponse, name: str = "content") -> str:
    """Return all text, or all reasoning."""
    return "".join(added.get(name, "") for added in deltas(answer))


def progress(answer: HttpResponse) -> list[dict[str, Any]]:
    """Return the tool progress events, without the fields of a chunk."""
    told = [chunk for chunk in chunks(answer) if "toolCallId" in chunk]
    assert all(
        chunk["choices"] == [{"index": 0, "delta": {}, "finish_reason": None}] for chunk in told
    )
    head = {"id", "object", "created", "model", "choices", "usage"}
    return [{name: value for name, value in chunk.items() if name not in head} for chunk in told]


def finish(answer: HttpResponse) -> dict[str, Any]:
    """Return the one chunk with a finish reason; only a usage chunk may follow it."""
    ends = [
        chunk
        for chunk in chunks(answer)
        if chunk["choices"] and chunk["choices"][0]["finish_reason"]
    ]
    assert len(ends) == 1
    assert delta(ends[0]) == {}
    after = chunks(answer)[chunks(answer).index(ends[0]) + 1 :]
    assert all(not chunk["choices"] for chunk in after)
    return ends[0]


def reason(answer: HttpResponse) -> str:
    """Return the finish reason."""
    return str(finish(answer)["choices"][0]["finish_reason"])
