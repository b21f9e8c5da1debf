"""The threads that tools run in. They are apart from Trio's own: tools that hang must not keep the store from one."""

from __future__ import annotations

import trio

MOST = 100
"""So many calls run in threads at once; others wait."""

_limiter: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("threads of tools")


def tool_threads() -> trio.CapacityLimiter:
    """The limiter of this server. A thread that was left behind keeps its place until it ends."""
    limiter = _limiter.get(trio.CapacityLimiter(MOST))
    _limiter.set(limiter)
    return limiter
