"""Requests to a server: start a run, stop it, answer its questions, look at sessions and models."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import quote

import httpx2
import trio
from attrs import field, frozen

from hermes_trio.client.sse import Frames

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0
CLOSE_SECONDS = 2.0
_MISUSE = frozenset({400, 401, 403, 404, 405, 413})
_MESSAGE_CHARACTERS = 500


@frozen
class Target:
    """The server to talk to."""

    url: str  # without a final slash; may hold the prefix of a profile
    key: str = field(repr=False)
    verify: Any = True  # as httpx2 takes it
    is_near: bool = False  # on this machine: no proxy of the environment is asked on the way


@frozen
class Refused(Exception):
    """The server said no."""

    status: int
    message: str
    code: str = ""
    retry_after: float = 0.0

    def __str__(self) -> str:
        return self.message

    @property
    def is_misuse(self) -> bool:
        """Whether the same request can never succeed."""
        return self.status in _MISUSE


@frozen
class Unreachable(Exception):
    """No answer came."""

    message: str
    was_sent: bool = True  # or may have been

    def __str__(self) -> str:
        return self.message


@frozen
class Ask:
    """One turn."""

    text: str
    once_key: str  # a repeated request with the same key starts nothing new
    session: str = ""
    model: str = ""


@frozen
class Caller:
    """Talks to one server."""

    target: Target
    http: httpx2.AsyncClient

    async def start(self, ask: Ask) -> str:
        """Start a turn, and return the id of its run.

        Raises:
            Refused: the server does not want it.
            Unreachable: nobody knows whether it began; the same ask may be repeated.
        """
        return await (self._start_in_session(ask) if ask.session else self._start_run(ask))

    async def _start_run(self, ask: Ask) -> str:
        model = {"model": ask.model} if ask.model else {}
        body = {"input": ask.text, **model}
        answer = await self.call("POST", "/v1/runs", body, {"Idempotency-Key": ask.once_key})
        return str(answer.get("run_id", ""))

    async def _start_in_session(self, ask: Ask) -> str:
        """A turn of a session has the whole transcript before it. Its stream is left at once: it goes on by itself."""
        path = f"/api/sessions/{quote(ask.session, safe='')}/chat/stream"
        headers = {"Idempotency-Key": ask.once_key, "X-Hermes-On-Disconnect": "detach"}
        async with self.pieces("POST", path, {"message": ask.text}, headers) as pieces:
            return await _first_run_id(pieces)

    async def open_session(self, session: str, model: str) -> str:
        """Make a session unless it is there; returns its id. "" lets the server choose one.

        Raises:
            Refused, Unreachable: as for a turn; also if the session is there and has another model.
        """
        wanted = {name: value for name, value in (("id", session), ("model", model)) if value}
        try:
            made = await self.call("POST", "/api/sessions", wanted)
        except Refused as refusal:
            if refusal.code != "session_exists":
                raise
            made = await self.call("GET", f"/api/sessions/{quote(session, safe='')}")
        found = made.get("session", {})
        _same_model(session, str(found.get("model") or ""), model)
        return str(found.get("id", session))

    async def said_in(self, session: str) -> list[str]:
        """What the user said in a session, oldest first."""
        page = await self.call("GET", f"/api/sessions/{quote(session, safe='')}/messages")
        users = [message for message in page.get("data", []) if message.get("role") == "user"]
        return [message["content"] for message in users if isinstance(message.get("content"), str)]

    async def stop(self, run_id: str) -> None:
        """Ask a run to stop.

        Raises:
            Refused, Unreachable: as for a turn.
        """
        await self.call("POST", f"/v1/runs/{run_id}/stop")

    async def answer(self, run_id: str, approval_id: str, choice: str) -> None:
        """Answer a question.

        Raises:
            Refused, Unreachable: as for a turn. Somebody else may have been faster.
        """
        await self.call("POST", f"/v1/runs/{run_id}/approval", {"approval_id": approval_id, "choice": choice})

    async def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] = {}
    ) -> dict[str, Any]:
        """One request with a JSON answer.

        Raises:
            Refused: the status is not a success.
            Unreachable: no answer came, or it is no JSON object.
        """
        async with self._streaming(method, path, body, headers) as answer:
            return _object(await _whole(answer))

    @asynccontextmanager
    async def pieces(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] = {}
    ) -> AsyncIterator[AsyncIterable[bytes]]:
        """One request whose answer is read as it comes, and may be left at any point.

        Raises:
            Refused: the status is not a success.
            Unreachable: no answer came, or it broke off.
        """
        async with self._streaming(method, path, body, headers) as answer, _pieces_of(answer) as pieces:
            yield pieces

    @asynccontextmanager
    async def _streaming(
        self, method: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]
    ) -> AsyncIterator[httpx2.Response]:
        sent = {"Authorization": f"Bearer {self.target.key}", **headers}
        try:
            request = self.http.build_request(method, f"{self.target.url}{path}", json=body, headers=sent)
            answer = await self.http.send(request, stream=True)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.InvalidURL) as error:
            raise _nobody(self.target, error) from error
        except httpx2.TransportError as error:
            raise Unreachable(_told(error)) from error
        try:
            if answer.status_code >= 300:
                raise _refusal(answer, await _whole(answer))
            yield answer
        except httpx2.TransportError as error:
            raise Unreachable(_told(error)) from error
        finally:
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                await answer.aclose()


@asynccontextmanager
async def open_caller(target: Target, silence_seconds: float = ANSWER_SECONDS) -> AsyncIterator[Caller]:
    """Connections to one server, which may be silent for so long."""
    limits = httpx2.Timeout(silence_seconds, connect=CONNECT_SECONDS)
    async with httpx2.AsyncClient(timeout=limits, verify=target.verify, trust_env=not target.is_near) as http:
        yield Caller(target, http)


@asynccontextmanager
async def _pieces_of(answer: httpx2.Response) -> AsyncIterator[AsyncGenerator[bytes, None]]:
    """The body of an answer.

    The iterators of the library leave one of theirs behind when they are closed early. So the connection is closed and
    they are iterated to their end, which is then near.
    """
    pieces = answer.aiter_bytes()
    try:
        yield pieces
    finally:
        with trio.move_on_after(CLOSE_SECONDS, shield=True), suppress(httpx2.HTTPError, httpx2.StreamError):
            await answer.aclose()
            async for _piece in pieces:
                pass


async def _first_run_id(pieces: AsyncIterable[bytes]) -> str:
    frames = Frames()
    async for piece in pieces:
        for data in frames.feed(piece):
            return str(_object(data.encode()).get("run_id", ""))
    raise Unreachable("the stream ended before it began")


async def _whole(answer: httpx2.Response) -> bytes:
    return await answer.aread()


def _object(content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise Unreachable("the answer is no JSON object: is this the address of a hermes-trio server?")
    return value


def _refusal(answer: httpx2.Response, content: bytes) -> Refused:
    try:
        error = json.loads(content)["error"]
        message, code = str(error["message"]), str(error.get("code") or "")
    except (ValueError, TypeError, KeyError, AttributeError):
        message, code = f"the server answered with status {answer.status_code}", ""
    wait = answer.headers.get("Retry-After", "")
    return Refused(
        answer.status_code, message[:_MESSAGE_CHARACTERS], code, float(wait) if wait.isdigit() else 0
    )


def _same_model(session: str, found: str, wanted: str) -> None:
    if wanted and found != wanted:
        has = f"model {found}" if found else "the model that is served"
        raise Refused(400, f"session {session} has {has}; leave --model out, or take another session")


def _nobody(target: Target, error: Exception) -> Unreachable:
    why = f"{target.url} cannot be reached ({_told(error)}): is the server running? Start it with hermes-trio serve"
    return Unreachable(why, was_sent=False)


def _told(error: Exception) -> str:
    return str(error) or type(error).__name__
