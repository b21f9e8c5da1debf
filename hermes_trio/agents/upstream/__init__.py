"""A tool loop on any OpenAI-compatible chat-completions endpoint.

``wire`` writes requests and ``answer`` reads answers, both pure; ``client`` makes one model call, ``calling`` runs tools,
``loop`` puts them together into a turn, ``provider`` holds what turns share.
"""

from __future__ import annotations

from hermes_trio.agents.upstream.provider import provider

__all__ = ["provider"]
