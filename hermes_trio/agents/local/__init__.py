"""A model in a local file: a child process serves it, and the tool loop of ``upstream`` calls that.

``program`` is what the child runs, ``child`` starts and stops one, ``supervisor`` restarts it, and ``provider`` connects
the tool loop to it.
"""

from __future__ import annotations

from hermes_trio.agents.local.provider import provider

__all__ = ["provider"]
