"""The asynchronous OpenAI client, under Trio and under asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import openai
import pytest
import trio
from openai import AsyncOpenAI

from tests.e2e.sdk import MODEL, asked
from tests.support.server_process import ServerProcess, eventually
from tests.support.stored_records import turns

pytestmark = [
    pytest.mark.xdist_group("e2e-shared"),
    # The client leaves its own generators unclosed at the end of a stream, and Trio is strict about
    # that.
    pytest.mark.filterwarnings("ignore:Async generator '(openai|httpx2|httpcore2):ResourceWarning"),
]

Story = Callable[[AsyncOpenAI, str], Awaitable[None]]
SECONDS = 20


async def plain_loop(client: AsyncOpenAI, name: str) -> None:
    stream = await client.chat.completions.create(
        model=MODEL, messages=asked("/terminal echo hi\n/long 3"), stream=True
    )
    text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert "word1 word2 word3" in text


async def helper(client: AsyncOpenAI, name: str) -> None:
    async with client.chat.completions.stream(
        model=MODEL, messages=asked("/think so\n/long 3")
    ) as stream:
        message = (await stream.get_final_completion()).choices[0].message
    assert "word3" in (message.content or "")
    assert getattr(message, "reasoning_content", "") == "so"


async def failure(client: AsyncOpenAI, name: str) -> None:
    stream = await client.chat.completions.create(
        model=MODEL, messages=asked("/fail dead end"), stream=True
    )
    with pytest.raises(openai.APIError, match="dead end"):
        async for _ in stream:
            pass


async def whole(client: AsyncOpenAI, name: str) -> None:
    answer = await client.chat.completions.create(model=MODEL, messages=asked("/long 2"))
    assert answer.choices[0].message.content == "word1 word2 "


async def leaving(client: AsyncOpenAI, name: str) -> None:
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=asked("/long 100000"),
        stream=True,
        extra_headers={"X-Hermes-Session-Id": name},
    )
    async with stream:
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break


stories = pytest.mark.parametrize("story", [plain_loop, helper, failure, whole, leaving])


@asynccontextmanager
async def connected(server: ServerProcess) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=server.key) as client:
        yield client


def check_the_end(server: ServerProcess, story: Story, name: str) -> None:
    if story is leaving:
        eventually(
            lambda: [turn.reason for turn in turns(server, name)] == ["client_disconnected"], 1
        )


@stories
async def test_under_trio(server: ServerProcess, story: Story) -> None:
    with trio.fail_after(SECONDS):
        async with connected(server) as client:
            await story(client, "left-trio")
    check_the_end(server, story, "left-trio")


@stories
def test_under_asyncio(server: ServerProcess, story: Story) -> None:
    async def tell() -> None:
        async with connected(server) as client:
            await asyncio.wait_for(story(client, "left-asyncio"), SECONDS)

    asyncio.run(tell())
    check_the_end(server, story, "left-asyncio")


async def test_a_cancelled_reader_interrupts_the_agent(server: ServerProcess) -> None:
    async with connected(server) as client:
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=asked("/sleep 60"),
            stream=True,
            extra_headers={"X-Hermes-Session-Id": "cancelled"},
        )
        with trio.move_on_after(0.5) as scope:
            async for _ in stream:
                pass
        assert scope.cancelled_caught
        check_the_end(server, leaving, "cancelled")
