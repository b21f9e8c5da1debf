"""One model call over HTTP.

Streamed if the server can, and retried as long as the user has seen no output.

Before the first output, transient failures (a lost connection, a busy server) are retried on a
fresh connection. Afterwards nothing is retried, because a second answer would repeat or contradict
the first: the call ends as truncated, and the output so far stands.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2
import structlog
import trio
from attrs import evolve, frozen

from hermes_trio.agent.interface import AgentConfig
from hermes_trio.agents.upstream.completion import (
    EMPTY_COMPLETION,
    Completion,
    CompletionBuilder,
    Delta,
    EventTooLong,
    SseDecoder,
)
from hermes_trio.agents.upstream.errors import (
    CallFailed,
    CallProblem,
    CallRefused,
    ProblemKind,
    SecretMasker,
    malformed,
    parse_retry_after,
    problem_from_status,
)
from hermes_trio.agents.upstream.wire import ServerQuirks
from hermes_trio.tracing import model_call_span, outgoing_headers

log = structlog.get_logger(__name__)

DeltaHandler = Callable[[list[Delta]], Awaitable[None]]

MAX_BODY_BYTES = 32 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
# A server that does not stream is silent until its answer is complete, so the read timeout is that
# many times longer.
UNSTREAMED_TIMEOUT_FACTOR = 10
# for a stream to end after its last event, so that its connection can be reused
DRAIN_SECONDS = 0.25
MODELS_FRESH_SECONDS = 60.0  # a server may load other models at any time
# A server may be updated, or load a model differently. Trying again costs a refused request or two.
QUIRKS_FRESH_SECONDS = 300.0
MAX_QUIRKY_MODELS = 256  # clients may name any model
MODELS_TIMEOUT_SECONDS = 10.0
_DONE = "[DONE]"


class CallTruncated(Exception):
    """A model call failed after part of its output was shown, so it cannot be retried."""

    def __init__(self, problem: CallProblem, completion: Completion) -> None:
        super().__init__(problem.message)
        self.completion = completion


@frozen
class CallRetryPolicy:
    """How long to wait before a retry, in seconds."""

    first: float = 0.5
    longest: float = 8.0
    longest_requested: float = 60.0  # a call is given up if the server asks for a longer wait

    def delay(self, problem: CallProblem, retries: int) -> float:
        """Return the delay before the next attempt; infinity if there should be none."""
        if problem.retry_after >= 0:
            return (
                problem.retry_after if problem.retry_after <= self.longest_requested else math.inf
            )
        if problem.kind is ProblemKind.NETWORK and not retries:
            return 0.0  # usually a kept-alive connection that the server has closed
        return min(self.longest, self.first * 2.0**retries)


DEFAULT_RETRY_POLICY = CallRetryPolicy()


@frozen
class HttpClients:
    """The HTTP clients for one model server."""

    pooled: httpx2.AsyncClient  # reuses connections
    fresh: httpx2.AsyncClient  # opens a connection per request


class LearnedQuirks:
    """What was learned about the models of one server, for a while.

    By model, because one server may stand in front of many backends: that one model cannot stream
    says nothing about the others. After ``QUIRKS_FRESH_SECONDS`` a model is treated like a new one.
    """

    def __init__(self, initial: ServerQuirks) -> None:
        self._initial = initial
        # Models that differ, with the time until which that is taken for granted; oldest first.
        self._known: dict[str, tuple[ServerQuirks, float]] = {}

    def of(self, model: str) -> ServerQuirks:
        """Return what to try with a model."""
        quirks, stale_at = self._known.get(model, (self._initial, math.inf))
        if trio.current_time() < stale_at:
            return quirks
        return evolve(self._initial, is_retrial=not quirks.supports_streaming)

    def confirm(self, model: str, quirks: ServerQuirks) -> None:
        """Note what worked with a model. What was known already stays known for as long as before."""
        confirmed = evolve(quirks, is_retrial=False)
        known, stale_at = self._known.get(model, (self._initial, math.inf))
        if confirmed == known and trio.current_time() < stale_at:
            return
        self._known.pop(model, None)
        if confirmed != self._initial:
            self._known[model] = confirmed, trio.current_time() + QUIRKS_FRESH_SECONDS
        if len(self._known) > MAX_QUIRKY_MODELS:
            del self._known[next(iter(self._known))]


class ModelClient:
    """Calls the models of one server.

    All turns of a profile share it, and with it what is learned about the server.
    """

    def __init__(
        self,
        config: AgentConfig,
        clients: HttpClients,
        mask: SecretMasker,
        retry_policy: CallRetryPolicy = DEFAULT_RETRY_POLICY,
    ) -> None:
        self._url = chat_url(config.base_url)
        self._limits = config.limits
        self._clients, self._retry_policy = clients, retry_policy
        self.mask = mask
        models_path = f"{self._url.path.removesuffix('/chat/completions')}/models"
        self.models = UpstreamModels(self._url.copy_with(path=models_path), clients.pooled)
        self._quirks = LearnedQuirks(
            ServerQuirks(supports_streaming=config.options.get("stream") is not False)
        )

    async def call(self, body: Mapping[str, Any], on_deltas: DeltaHandler) -> Completion:
        """Make a model call, passing on its output as it arrives.

        Raises:
            CallFailed: there is no answer, and nothing was passed on.
            CallTruncated: the answer broke off after part of it was passed on.
        """
        url, model = self._url, _model_of(body)
        with model_call_span(model, url.host, url.port) as span:
            try:
                completion = await self._call(body, on_deltas)
            except CallTruncated as truncated:
                span.answered("", truncated.completion.usage)
                span.failed(type(truncated).__name__)
                raise
            except CallFailed as failed:
                span.failed(failed.problem.kind.value.replace(" ", "_"))
                raise
            span.answered(completion.finish, completion.usage)
            return completion

    async def _call(self, body: Mapping[str, Any], on_deltas: DeltaHandler) -> Completion:
        quirks, retries = self._quirks.of(_model_of(body)), 0
        while True:
            outcome = await self._attempt(quirks, body, on_deltas, retries)
            match outcome:
                case Completion():
                    return outcome
                case ServerQuirks():
                    quirks = outcome
                case _:
                    delay = self._retry_policy.delay(outcome, retries)
                    if retries >= self._limits.retries or math.isinf(delay):
                        raise CallFailed(outcome)
                    log.info("retrying a model call", problem=outcome.message, seconds=delay)
                    await trio.sleep(delay)
                    retries += 1

    async def _attempt(
        self, quirks: ServerQuirks, body: Mapping[str, Any], on_deltas: DeltaHandler, retries: int
    ) -> Completion | ServerQuirks | CallProblem:
        """Return the completion, other quirks to try, or a problem that may pass."""
        builder = CompletionBuilder()
        try:
            confirmed = await self._exchange(quirks, body, on_deltas, builder, retries)
        except CallRefused as refusal:
            other = quirks.after_refusal(refusal.status, refusal.text)
            return other if other != quirks else self._handle_problem(refusal.problem, builder)
        except CallFailed as failure:
            return self._handle_problem(failure.problem, builder)
        except httpx2.HTTPError as error:
            problem = _problem_from_exception(error, self._read_timeout(quirks), self._url)
            return self._handle_problem(problem, builder)
        self._quirks.confirm(_model_of(body), confirmed)
        return builder.completion

    def _handle_problem(
        self, problem: CallProblem, builder: CompletionBuilder
    ) -> Completion | CallProblem:
        """Return the completion if it is complete all the same, or the problem if a retry may succeed; else raise."""
        masked = evolve(problem, message=self.mask(problem.message))
        if builder.is_finished and problem.kind is ProblemKind.NETWORK:
            return builder.completion  # only the end of the stream is missing
        if builder.has_output:
            raise CallTruncated(masked, builder.completion)
        if not problem.is_transient:
            raise CallFailed(masked)
        return masked

    async def _exchange(
        self,
        quirks: ServerQuirks,
        body: Mapping[str, Any],
        on_deltas: DeltaHandler,
        builder: CompletionBuilder,
        retries: int,
    ) -> ServerQuirks:
        """Send one request and read its response.

        Return the quirks that the server has confirmed.
        """
        client = self._clients.fresh if retries else self._clients.pooled
        content = json.dumps(quirks.apply(body)).encode("ascii")
        limits = self._limits
        timeout = httpx2.Timeout(
            connect=limits.connect,
            read=self._read_timeout(quirks),
            write=limits.write,
            pool=limits.pool,
        )
        async with client.stream(
            "POST", self._url, content=content, timeout=timeout, headers=outgoing_headers()
        ) as response:
            if response.status_code != 200:
                raise await _refusal(response)
            media_type, _, _ = response.headers.get("content-type", "").partition(";")
            media_type = media_type.strip().lower()
            if media_type == "text/html":
                raise CallFailed(malformed("the response is a web page; check 'base_url'"))
            if not quirks.supports_streaming or media_type == "application/json":
                await _read_whole(response, on_deltas, builder)
                return evolve(quirks, supports_streaming=False)
            await _read_stream(response, on_deltas, builder)
            return quirks

    def _read_timeout(self, quirks: ServerQuirks) -> float:
        is_streamed = quirks.supports_streaming and not quirks.is_retrial
        return self._limits.read * (1 if is_streamed else UNSTREAMED_TIMEOUT_FACTOR)


def _model_of(body: Mapping[str, Any]) -> str:
    return str(body.get("model") or "")


# -- responses --


async def _read_whole(
    response: httpx2.Response, on_deltas: DeltaHandler, builder: CompletionBuilder
) -> None:
    body = await _read_body(response, MAX_BODY_BYTES)
    await on_deltas(builder.read(body.decode("utf-8", "replace")))
    if builder.completion == EMPTY_COMPLETION:
        raise CallFailed(malformed("the response has no answer"))


async def _read_stream(
    response: httpx2.Response, on_deltas: DeltaHandler, builder: CompletionBuilder
) -> None:
    decoder = SseDecoder()
    async with _raw_pieces(response) as pieces:
        async for piece in pieces:
            try:
                events = decoder.feed(piece)
            except EventTooLong as error:
                raise CallFailed(malformed(str(error))) from None
            if await _handle_events(events, on_deltas, builder):
                # Let the response end, so that its connection can be reused.
                with trio.move_on_after(DRAIN_SECONDS), suppress(httpx2.HTTPError):
                    await _skip(pieces)
                return
        if await _handle_events(decoder.close(), on_deltas, builder) or builder.is_finished:
            return
    raise CallFailed(CallProblem(ProblemKind.NETWORK, "The model server broke off its answer."))


async def _handle_events(
    events: list[str], on_deltas: DeltaHandler, builder: CompletionBuilder
) -> bool:
    """Pass on the deltas of the events, in one call; return True if the stream is done."""
    deltas: list[Delta] = []
    try:
        for data in events:
            if data.strip() == _DONE:
                return True
            deltas += builder.read(data)
        return False
    finally:
        # Also before an error is raised: what came before it is output. A cancellation here
        # replaces the error.
        if deltas:
            await on_deltas(deltas)  # noqa: ASYNC102


async def _refusal(response: httpx2.Response) -> CallRefused:
    try:
        body = await _read_body(response, MAX_ERROR_BYTES)
    except CallFailed:
        body = b""  # too long to be an error message
    retry_after = parse_retry_after(response.headers.get("retry-after", ""), time.time())
    status = response.status_code
    return CallRefused(
        problem_from_status(status, body, retry_after), status, body.decode("utf-8", "replace")
    )


@asynccontextmanager
async def _raw_pieces(response: httpx2.Response) -> AsyncIterator[AsyncIterator[bytes]]:
    """Yield an iterator over the bytes of a body as they arrive.

    If the reader stops early, the generators inside httpx2 are left suspended. Iterating on in a
    cancelled scope finalizes all of them here and now.
    """
    pieces = response.aiter_raw()
    try:
        yield pieces
    finally:
        with trio.CancelScope(shield=True, deadline=-math.inf):
            await _skip(pieces)


async def _read_body(response: httpx2.Response, limit: int) -> bytes:
    """Read a whole body.

    Raises:
        CallFailed: it is longer than the limit.
    """
    body = bytearray()
    async with _raw_pieces(response) as pieces:
        async for piece in pieces:
            body += piece
            if len(body) > limit:
                raise CallFailed(malformed(f"the response has more than {limit} bytes"))
    return bytes(body)


async def _skip(pieces: AsyncIterator[bytes]) -> None:
    async for _ in pieces:
        pass


def _problem_from_exception(
    error: httpx2.HTTPError, silence: float, url: httpx2.URL
) -> CallProblem:
    match error:
        case httpx2.ReadTimeout():
            message = f"The model server was silent for {silence:g} s."
        case httpx2.ConnectError() | httpx2.ConnectTimeout() | httpx2.ProxyError():
            host = f"{url.host}:{url.port or url.scheme}"
            message = f"The model server cannot be reached at {host}: {_root_message(error)}"
        case _:
            message = (
                f"The connection to the model server was lost: {str(error) or type(error).__name__}"
            )
    return CallProblem(ProblemKind.NETWORK, message.removesuffix(": "))


def _root_message(error: BaseException) -> str:
    """Return the operating system's message, below the layers of the library."""
    while below := error.__cause__ or error.__context__:
        error = below
    if isinstance(
        error, BaseExceptionGroup
    ):  # all addresses were tried: the last one stands for all
        return str(error.exceptions[-1]).rpartition(": ")[2]
    return str(error)


def chat_url(base_url: str) -> httpx2.URL:
    """Return the URL of the chat-completions endpoint.

    A query string, which some clouds need, is kept.

    Raises:
        httpx2.InvalidURL: the base URL is not a URL.
    """
    url = httpx2.URL(base_url)
    path = url.path.rstrip("/").removesuffix("/chat/completions")
    return url.copy_with(path=f"{path}/chat/completions")


# -- models --


class UpstreamModels:
    """The models of one server, fetched on demand and cached for a while."""

    def __init__(self, url: httpx2.URL, client: httpx2.AsyncClient) -> None:
        self._url, self._client = url, client
        self._names: tuple[str, ...] = ()
        self._stale_at = 0.0
        self._lock = trio.Lock()

    async def choose(self, requested: str) -> str:
        """Return the requested model if the server has it, else the server's first.

        Servers reject model names that they do not know. If the server does not list its models,
        the requested name is returned.
        """
        async with self._lock:
            if trio.current_time() >= self._stale_at:
                names: tuple[str, ...] = ()
                try:
                    response = await self._client.get(self._url, timeout=MODELS_TIMEOUT_SECONDS)
                    if response.status_code == 200:
                        names = _model_ids(json.loads(response.content))
                except (httpx2.HTTPError, ValueError, RecursionError) as error:
                    log.info(
                        "the model server does not list its models", error=type(error).__name__
                    )
                self._names = names
                self._stale_at = trio.current_time() + (MODELS_FRESH_SECONDS if names else 0.0)
        return requested if requested in self._names or not self._names else self._names[0]


def _model_ids(payload: Any) -> tuple[str, ...]:
    """Return the ids in a list of models; empty if it has an unexpected form."""
    data = payload.get("data") if isinstance(payload, dict) else None
    models = data if isinstance(data, list) else []
    ids = (model.get("id") for model in models if isinstance(model, dict))
    return tuple(name for name in ids if isinstance(name, str) and name)
