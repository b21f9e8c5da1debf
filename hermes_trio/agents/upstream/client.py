"""One model call: asked over HTTP, streamed if the server can, tried again while nobody has seen anything of it.

The first word that the user sees is the border. Before it, whatever may pass (a lost connection, a busy server) is
tried again on a fresh connection. After it nothing is ever asked again, because a second answer would repeat the
first one or contradict it: the call is broken, and what was said stays.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx2
import structlog
import trio
from attrs import evolve, frozen

from hermes_trio.agent.interface import AgentConfig
from hermes_trio.agents.upstream.answer import NO_ANSWER, Answer, Assembly, Delta
from hermes_trio.agents.upstream.body import pieces_of, run_out, whole_body
from hermes_trio.agents.upstream.names import ModelNames
from hermes_trio.agents.upstream.problems import (
    CallFailed,
    CallRefused,
    Kind,
    Problem,
    Scrub,
    malformed,
    of_status,
    retry_after,
)
from hermes_trio.agents.upstream.sse import EventReader, EventTooLong
from hermes_trio.agents.upstream.ways import Ways

log = structlog.get_logger(__name__)

Hear = Callable[[list[Delta]], Awaitable[None]]

MAX_WHOLE_BYTES = 32 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
WHOLE_PATIENCE = (
    10  # a whole answer is silent for as long as a stream speaks: its read limit is so many times longer
)
DONE = "[DONE]"


class CallBroken(Exception):
    """A model call ended in the middle: some of it was seen, so it is not made again."""

    def __init__(self, problem: Problem, answer: Answer) -> None:
        super().__init__(problem.message)
        self.answer = answer


@frozen
class Patience:
    """How long to wait before another try, in seconds."""

    first: float = 0.5
    longest: float = 8.0
    longest_asked: float = 60.0  # a server that asks for more is not waited for

    def wait(self, problem: Problem, tries: int) -> float:
        """The time before the next try; infinite if there should be none."""
        if problem.wait >= 0:
            return problem.wait if problem.wait <= self.longest_asked else math.inf
        if problem.kind is Kind.NETWORK and not tries:
            return 0.0  # most often a connection that was kept too long
        return min(self.longest, self.first * 2.0**tries)


DEFAULT_PATIENCE = Patience()


@frozen
class Lines:
    """The connections to one server."""

    kept: httpx2.AsyncClient  # connections are used again
    fresh: httpx2.AsyncClient  # each request has its own


class ModelClient:
    """Calls one model. Shared by all turns of a profile: what it learns about the server holds for all."""

    def __init__(
        self, config: AgentConfig, lines: Lines, scrub: Scrub, patience: Patience = DEFAULT_PATIENCE
    ) -> None:
        self._url = chat_url(config.base_url)
        self._limits = config.limits
        self._lines, self._patience = lines, patience
        self.scrub = scrub
        self.names = ModelNames(self._url.copy_with(path=_models_path(self._url.path)), lines.kept)
        self._ways = Ways(streams=config.options.get("stream") is not False)

    async def call(self, body: Mapping[str, Any], hear: Hear) -> Answer:
        """Ask, and pass on what is said as it comes.

        Raises:
            CallFailed: there is no answer, and nothing was passed on.
            CallBroken: the answer ended in the middle.
        """
        ways, tries = self._ways, 0
        while True:
            outcome = await self._attempt(ways, body, hear, tries)
            match outcome:
                case Answer():
                    return outcome
                case Ways():
                    ways = outcome
                case _:
                    await self._rest(outcome, tries)
                    tries += 1

    async def _rest(self, problem: Problem, tries: int) -> None:
        wait = self._patience.wait(problem, tries)
        if tries >= self._limits.retries or math.isinf(wait):
            raise CallFailed(problem)
        log.info("a model call is made again", problem=problem.message, seconds=wait)
        await trio.sleep(wait)

    async def _attempt(
        self, ways: Ways, body: Mapping[str, Any], hear: Hear, tries: int
    ) -> Answer | Ways | Problem:
        """The answer, another way to ask, or a problem that may pass."""
        assembly = Assembly()
        try:
            proven = await self._exchange(ways, body, hear, assembly, tries)
        except CallRefused as refusal:
            other = ways.after(refusal.status, refusal.text)
            return other if other != ways else self._weighed(refusal.problem, assembly)
        except CallFailed as failure:
            return self._weighed(failure.problem, assembly)
        except httpx2.HTTPError as error:
            return self._weighed(_of_exception(error, self._read_limit(ways), self._url), assembly)
        self._ways = proven
        return assembly.answer

    def _weighed(self, problem: Problem, assembly: Assembly) -> Answer | Problem:
        """What is to be done about a problem."""
        clean = evolve(problem, message=self.scrub(problem.message))
        if assembly.is_finished and problem.kind is Kind.NETWORK:
            return assembly.answer  # all was said; the connection did not wait for its proper end
        if assembly.has_spoken:
            raise CallBroken(clean, assembly.answer)
        if not problem.is_transient:
            raise CallFailed(clean)
        return clean

    async def _exchange(
        self, ways: Ways, body: Mapping[str, Any], hear: Hear, assembly: Assembly, tries: int
    ) -> Ways:
        """One request and its answer; returns the ways that the server obeyed."""
        line = self._lines.fresh if tries else self._lines.kept
        content = json.dumps(ways.apply(body)).encode("ascii")
        async with line.stream("POST", self._url, content=content, timeout=self._timeout(ways)) as response:
            if response.status_code != 200:
                raise await _refusal(response)
            if _is_page(response):
                raise CallFailed(malformed("what came is a web page; check 'base_url'"))
            if not ways.streams or _is_json(response):
                await _read_whole(response, hear, assembly)
                return evolve(ways, streams=False)
            await _read_stream(response, hear, assembly)
            return ways

    def _timeout(self, ways: Ways) -> httpx2.Timeout:
        limits = self._limits
        return httpx2.Timeout(
            connect=limits.connect, read=self._read_limit(ways), write=limits.write, pool=limits.pool
        )

    def _read_limit(self, ways: Ways) -> float:
        return self._limits.read * (1 if ways.streams else WHOLE_PATIENCE)


async def _read_whole(response: httpx2.Response, hear: Hear, assembly: Assembly) -> None:
    body = await whole_body(response, MAX_WHOLE_BYTES)
    await hear(assembly.read(body.decode("utf-8", "replace")))
    if assembly.answer == NO_ANSWER:
        raise CallFailed(malformed("there is no answer in it"))


async def _read_stream(response: httpx2.Response, hear: Hear, assembly: Assembly) -> None:
    reader = EventReader()
    async with pieces_of(response) as pieces:
        async for piece in pieces:
            if await _take(_fed(reader, piece), hear, assembly):
                await run_out(pieces)
                return
        if await _take(reader.close(), hear, assembly) or assembly.is_finished:
            return
    raise CallFailed(Problem(Kind.NETWORK, "The model's server ended its answer in the middle."))


def _fed(reader: EventReader, piece: bytes) -> list[str]:
    try:
        return reader.feed(piece)
    except EventTooLong as error:
        raise CallFailed(malformed(str(error))) from None


async def _take(events: list[str], hear: Hear, assembly: Assembly) -> bool:
    """Pass on what the events say, all at once; returns whether the stream said that it is done."""
    deltas: list[Delta] = []
    try:
        for data in events:
            if data.strip() == DONE:
                return True
            deltas += assembly.read(data)
        return False
    finally:
        # Also before an error is told: what came before it was said. A cancellation here replaces the error.
        if deltas:
            await hear(deltas)  # noqa: ASYNC102


async def _refusal(response: httpx2.Response) -> CallRefused:
    try:
        body = await whole_body(response, MAX_ERROR_BYTES)
    except CallFailed:
        body = b""  # nobody would read all that
    wait = retry_after(response.headers.get("retry-after", ""), time.time())
    status = response.status_code
    return CallRefused(of_status(status, body, wait), status, body.decode("utf-8", "replace"))


def _is_json(response: httpx2.Response) -> bool:
    return _content_type(response) == "application/json"


def _is_page(response: httpx2.Response) -> bool:
    return _content_type(response) == "text/html"


def _content_type(response: httpx2.Response) -> str:
    kind, _, _ = response.headers.get("content-type", "").partition(";")
    return str(kind).strip().lower()


def _of_exception(error: httpx2.HTTPError, silence: float, url: httpx2.URL) -> Problem:
    match error:
        case httpx2.ReadTimeout():
            said = f"The model's server was silent for {silence:g} s."
        case httpx2.ConnectError() | httpx2.ConnectTimeout() | httpx2.ProxyError():
            said = (
                f"The model's server cannot be reached at {url.host}:{url.port or url.scheme}: {_why(error)}"
            )
        case _:
            said = f"The connection to the model's server broke: {str(error) or type(error).__name__}"
    return Problem(Kind.NETWORK, said.removesuffix(": "))


def _why(error: BaseException) -> str:
    """What the system said, below the layers of the library."""
    while below := error.__cause__ or error.__context__:
        error = below
    if isinstance(error, BaseExceptionGroup):  # every address was tried: the last one speaks for all
        return str(error.exceptions[-1]).rpartition(": ")[2]
    return str(error)


def _models_path(chat_path: str) -> str:
    return f"{chat_path.removesuffix('/chat/completions')}/models"


def chat_url(base_url: str) -> httpx2.URL:
    """Where chat completions are asked for. A query, which some clouds want, stays at the end.

    Raises:
        httpx2.InvalidURL: this is no address.
    """
    url = httpx2.URL(base_url)
    path = url.path.rstrip("/").removesuffix("/chat/completions")
    return url.copy_with(path=f"{path}/chat/completions")
