"""The ways in which a model's server wants to be asked, found out by its refusals and remembered. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve, frozen

REFUSALS = frozenset({400, 404, 405, 415, 422, 501})


@frozen
class Ways:
    """How to ask."""

    streams: bool = True
    counts: bool = True  # a stream may be asked for its usage
    token_limit: str = "max_tokens"  # noqa: S105 - the name of a field

    def apply(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The request, asked in these ways."""
        asked = {**body, "stream": self.streams}
        if self.streams and self.counts:
            asked["stream_options"] = {"include_usage": True}
        if "max_tokens" in asked:
            asked[self.token_limit] = asked.pop("max_tokens")
        return asked

    def after(self, status: int, text: str) -> Ways:
        """What to try after a refusal; the same ways if the refusal is about something else."""
        if status not in REFUSALS:
            return self
        words = text.lower()
        if "max_completion_tokens" in words and self.token_limit == "max_tokens":  # noqa: S105
            return evolve(self, token_limit="max_completion_tokens")  # noqa: S106
        if not self.streams or "stream" not in words:
            return self
        if self.counts and ("stream_options" in words or "include_usage" in words):
            return evolve(self, counts=False)
        return evolve(self, streams=False)
