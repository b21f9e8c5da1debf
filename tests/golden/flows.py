"""Add flows to the corpus: scenarios of more than one request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from attrs import frozen

from tests.golden.agent import Script, Step, say
from tests.golden.dialects import (
    CHAT,
    HI,
    HI_STREAM,
    INPUT,
    INPUT_STREAM,
    MESSAGE,
    RESPONSES,
    SESSIONS,
)
from tests.golden.scenario_run import Flow, Scenario, ScenarioRun
from tests.golden.scripts import RICH


@frozen
class Route:
    """A way to start a turn."""

    path: str
    body: dict[str, Any]
    is_streamed: bool


ROUTES = {
    "chat-streamed": Route(CHAT, HI_STREAM, True),
    "chat-batch": Route(CHAT, HI, False),
    "responses-streamed": Route(RESPONSES, INPUT_STREAM, True),
    "responses-batch": Route(RESPONSES, INPUT, False),
    "session-streamed": Route(f"{SESSIONS}/golden/chat/stream", MESSAGE, True),
    "session-batch": Route(f"{SESSIONS}/golden/chat", MESSAGE, False),
}
STREAMED = ("chat-streamed", "responses-streamed", "session-streamed")
BATCH = ("chat-batch", "responses-batch", "session-batch")

RouteFlow = Callable[[Route, ScenarioRun], Awaitable[None]]
FLOWS: list[Scenario] = []


def scenario(name: str, **options: Any) -> Callable[[Flow], Flow]:
    """Add a flow to the corpus."""

    def add(flow: Flow) -> Flow:
        FLOWS.append(Scenario(name, flow.__doc__ or "", flow, options))
        return flow

    return add


def on_each_route(name: str, *routes: str, **options: Any) -> Callable[[RouteFlow], RouteFlow]:
    """Add a flow for some routes, or all of them."""

    def add(flow: RouteFlow) -> RouteFlow:
        for route in routes or ROUTES:
            about = f"{flow.__doc__} By {route}."
            FLOWS.append(Scenario(f"{name}-{route}", about, partial(flow, ROUTES[route]), options))
        return flow

    return add


async def make_session(play: ScenarioRun) -> None:
    """The session that the routes name."""
    await play.post("session", SESSIONS, {"id": "golden", "system_prompt": "Be brief."})


def held_after(steps: int, script: tuple[Step, ...] = RICH) -> Script:
    """A script that stops after some steps."""
    return say(*script[:steps], ("hold", "here"), *script[steps:])
