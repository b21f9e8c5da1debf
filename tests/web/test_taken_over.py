"""Requests whose run another server takes over before it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hermes_trio.core.events import Text
from tests.support.asgi import Exchange
from tests.support.fakes import AppHarness, Pause, ScriptedAgentFactory
from tests.support.responses_api import RESPONSES, idle_harness

KEY = {"Idempotency-Key": "k"}
REQUESTS = [
    (RESPONSES, {"input": "Hi"}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
]


@asynccontextmanager
async def overtaken(path: str, body: Any) -> AsyncIterator[tuple[AppHarness, Exchange]]:
    """A request that is about to end when another server takes over its run."""
    pause = Pause()
    agent = ScriptedAgentFactory([Text("one"), pause, Text("two")], is_async=True)
    async with (
        idle_harness(agent) as harness,
        harness.client.post(path, body, KEY) as exchange,
    ):
        await pause.wait_reached()
        [taken] = await harness.store.take_over_runs("other")
        assert taken.ownership.node == "other"
        pause.go()
        yield harness, exchange


@pytest.mark.parametrize(("path", "body"), REQUESTS)
async def test_a_stream_breaks_off_without_an_end(path: str, body: dict[str, Any]) -> None:
    async with overtaken(path, {**body, "stream": True}) as (harness, exchange):
        answer = await exchange.end()
        assert not exchange.was_finished
        assert b"one" in answer.body
        assert b"[DONE]" not in answer.body
        assert b'finish_reason": "' not in answer.body
        assert b"response.completed" not in answer.body
        assert harness.ends == []


@pytest.mark.parametrize(("path", "body"), REQUESTS)
async def test_a_whole_reply_is_an_error(path: str, body: dict[str, Any]) -> None:
    async with overtaken(path, body) as (harness, exchange):
        answer = await exchange.end()
        assert (answer.status, answer.error["code"]) == (503, "run_taken_over")
        assert harness.ends == []
