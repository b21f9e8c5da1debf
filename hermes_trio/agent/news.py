"""What those who wait for news share: the channel through which it comes, and an event for as long as nobody waits."""

from __future__ import annotations

import trio

open_news = trio.open_memory_channel[None]
"""Parametrised once: that takes longer than to make a channel."""

NOBODY_WAITS = trio.Event()
"""In place of an event as long as there is no need of one."""
NOBODY_WAITS.set()
