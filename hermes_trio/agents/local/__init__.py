"""A model in a file, on this machine: a child process serves it, the tool loop of ``upstream`` talks to that.

``program`` is what the child runs, ``child`` starts and ends one, ``keeper`` keeps one up, ``provider`` puts the loop in
front of it.
"""

from __future__ import annotations

from hermes_trio.agents.local.provider import provider

__all__ = ["provider"]
