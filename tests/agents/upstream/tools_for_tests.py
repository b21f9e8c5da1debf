"""Tools that the server finds by name."""

from __future__ import annotations

import trio

from hermes_trio.tools.base import ToolError, tool

STEP = 50  # times that the other tasks may go on


@tool
async def paced(steps: int) -> str:
    """Take a number of steps."""
    for _ in range(steps * STEP):
        await trio.lowlevel.checkpoint()
    return f"took {steps}"


@tool
async def failing() -> str:
    """Fail."""
    raise ToolError("not today")
