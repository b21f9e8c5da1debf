"""What the result of ``run_conversation`` means. Pure: a mapping in, a :class:`~hermes_trio.core.events.Result` out.

Results that end early lack most keys, and the flags contradict each other: a turn that was interrupted in the middle
of its answer says ``completed`` too. So everything is read with a default, and the first rule that matches counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes_trio.core.events import Result, Verdict
from hermes_trio.core.messages import Usage
from hermes_trio.core.shorten import safe_str


def to_result(raw: Mapping[str, Any], usage: Usage, session_id: str = "") -> Result:
    """The result of a turn.

    Args:
        raw: what ``run_conversation`` returned.
        usage: the tokens of the turn.
        session_id: the session that the agent moved to; "" if it stayed.
    """
    verdict = verdict_of(raw)
    return Result(
        text=_answer(raw, verdict),
        verdict=verdict,
        error=_complaint(raw, verdict),
        usage=usage,
        session_id=session_id,
    )


def verdict_of(raw: Mapping[str, Any]) -> Verdict:
    """How the turn ended."""
    rules = (
        (Verdict.INTERRUPTED, raw.get("interrupted")),
        (Verdict.FAILED, raw.get("failed")),
        (Verdict.TRUNCATED, raw.get("partial") and "truncat" in _text(raw, "error").lower()),
        (Verdict.INCOMPLETE, raw.get("partial") or not raw.get("completed")),
    )
    return next((verdict for verdict, holds in rules if holds), Verdict.COMPLETED)


def usage_of(agent: object) -> Usage:
    """The tokens that an agent has counted. A new agent is made for every turn, so they are the turn's."""
    return Usage(
        input_tokens=_count(agent, "session_prompt_tokens"),
        output_tokens=_count(agent, "session_completion_tokens"),
        cached_tokens=_count(agent, "session_cache_read_tokens"),
        cache_write_tokens=_count(agent, "session_cache_write_tokens"),
        reasoning_tokens=_count(agent, "session_reasoning_tokens"),
    )


def _answer(raw: Mapping[str, Any], verdict: Verdict) -> str:
    """The final answer, for the case that it was never streamed.

    The final text of a turn that was interrupted is a note about the interrupt, or what was streamed. That of one that
    ended early may be its own error; then it belongs there.
    """
    final = _text(raw, "final_response")
    is_note = verdict is Verdict.INTERRUPTED or (
        verdict is not Verdict.COMPLETED and final == _text(raw, "error")
    )
    return "" if is_note else final


def _complaint(raw: Mapping[str, Any], verdict: Verdict) -> str:
    if verdict is Verdict.COMPLETED:
        return ""
    keys = ("interrupt_message",) if verdict is Verdict.INTERRUPTED else ("error", "failure_reason")
    said = next(filter(None, (_text(raw, key) for key in keys)), "")
    return said or _text(raw, "turn_exit_reason")


def _text(raw: Mapping[str, Any], key: str) -> str:
    value = raw.get(key)
    return "" if value is None else safe_str(value)


def _count(agent: object, name: str) -> int:
    value = getattr(agent, name, 0)
    return value if isinstance(value, int) and value > 0 else 0
