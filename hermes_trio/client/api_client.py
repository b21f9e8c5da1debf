"""Requests to a server: start and stop runs, answer approval requests, and read sessions."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import quote

import httpx2
import trio
from attrs import field, frozen

from hermes_trio import __version__
from hermes_trio.client.events import SseParser

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0
CLOSE_SECONDS = 2.0
_MISUSE = frozenset({400, 401, 403, 404, 405, 413})
_MAX_MESSAGE_CHARS = 500


@frozen
class Target:
    """The server to talk to."""

    url: str  # without a final slash; may hold the prefix of a profile
    key: str = field(repr=False)
    verify: Any = True  # as httpx2 takes it
    is_local: bool = False  # on this machine: proxies are ignored


@frozen
class RequestRefused(Exception):
    """The server answered with an error."""

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
class ServerUnreachable(Exception):
    """There was no answer."""

    message: str
    was_sent: bool = True  # or may have been sent

    def __str__(self) -> str:
        return self.message


@frozen
class TurnPrompt:
    """The input of one turn."""

    text: str
    idempotency_key: str  # a repeated request with the same key starts no second run
    session: str = ""
    model: str = ""


@frozen
class ApiClient:
    """Makes requests to one server."""

    target: Target
    http: httpx2.AsyncClient

    async def start(self, prompt: TurnPrompt) -> str:
        """Start a turn, and return the id of its run.

        Raises:
            RequestRefused: the server refused it.
            ServerUnreachable: it may or may not have started; the same prompt can be sent again.
        """
        headers = {"Idempotency-Key": prompt.idempotency_key}
        if not prompt.session:
            body = {"input": prompt.text, **({"model": prompt.model} if prompt.model else {})}
            answer = await self.call("POST", "/v1/runs", body, headers)
            return str(answer.get("run_id", ""))
        # Only the stream of a session continues its transcript. It is closed after the first event;
        # the run goes on.
        path = f"/api/sessions/{quote(prompt.session, safe='')}/chat/stream"
        headers["X-Hermes-On-Disconnect"] = "detach"
        parser = SseParser()
        async with self.stream("POST", path, {"message": prompt.text}, headers) as chunks:
            async for chunk in chunks:
                for data in parser.feed(chunk):
                    return str(_parse_object(data.encode()).get("run_id", ""))
        raise ServerUnreachable("the stream ended before it began")

    async def open_session(self, session: str, model: str) -> str:
        """Create a session unless it exists, and return its id. "" lets the server choose one.

        Raises:
            RequestRefused, ServerUnreachable: as for a turn; also if the session exists with
            another model.
        """
        wanted = {name: value for name, value in (("id", session), ("model", model)) if value}
        try:
            made = await self.call("POST", "/api/sessions", wanted)
        except RequestRefused as refusal:
            if refusal.code != "session_exists":
                raise
            made = await self.call("GET", f"/api/sessions/{quote(session, safe='')}")
        found = made.get("session", {})
        if model and (has := str(found.get("model") or "")) != model:
            what = f"model {has}" if has else "the model that is served"
            message = f"session {session} has {what}; leave --model out, or take another session"
            raise RequestRefused(400, message)
        return str(found.get("id", session))

    async def user_messages(self, session: str) -> list[str]:
        """Return the messages of the user in a session, oldest first."""
        page = await self.call("GET", f"/api/sessions/{quote(session, safe='')}/messages")
        users = [message for message in page.get("data", []) if message.get("role") == "user"]
        return [message["content"] for message in users if isinstance(message.get("content"), str)]

    async def stop(self, run_id: str) -> None:
        """Ask a run to stop.

        Raises:
            RequestRefused, ServerUnreachable: as for a turn.
        """
        await self.call("POST", f"/v1/runs/{run_id}/stop")

    async def answer(self, run_id: str, approval_id: str, choice: str) -> None:
        """Answer an approval request.

        Raises:
            RequestRefused, ServerUnreachable: as for a turn. It may have been answered already.
        """
        await self.call(
            "POST", f"/v1/runs/{run_id}/approval", {"approval_id": approval_id, "choice": choice}
        )

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] = {},
    ) -> dict[str, Any]:
        """Make a request, and return its JSON answer.

        Raises:
            RequestRefused: the status is not a success.
            ServerUnreachable: no answer came, or it is not a JSON object.
        """
        async with self._streaming(method, path, body, headers) as answer:
            return _parse_object(await answer.aread())

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] = {},
    ) -> AsyncIterator[AsyncIterable[bytes]]:
        """Make a request whose answer is read in chunks, and can be left at any point.

        Raises:
            RequestRefused: the status is not a success.
            ServerUnreachable: no answer came, or it broke off.
        """
        async with (
            self._streaming(method, path, body, headers) as answer,
            _pieces_of(answer) as pieces,
        ):
            yield pieces

    @asynccontextmanager
    async def _streaming(
        self, method: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]
    ) -> AsyncIterator[httpx2.Response]:
        sent = {"Authorization": f"Bearer {self.target.key}", **headers}
        try:
            request = self.http.build_request(
                method, f"{self.target.url}{path}", json=body, headers=sent
            )
            answer = await self.http.send(request, stream=True)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.InvalidURL) as error:
            message = f"{self.target.url} cannot be reached ({_describe(error)}): is the server running? Start it with hermes-trio serve"
            raise ServerUnreachable(message, was_sent=False) from error
        except httpx2.TransportError as error:
            raise ServerUnreachable(_describe(error)) from error
        try:
            if answer.status_code >= 300:
                raise _refusal(answer, await answer.aread())
            yield answer
        except httpx2.TransportError as error:
            raise ServerUnreachable(_describe(error)) from error
        finally:
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                await answer.aclose()


@asynccontextmanager
async def open_client(
    target: Target, silence_seconds: float = ANSWER_SECONDS
) -> AsyncIterator[ApiClient]:
    """Open a client of one server, which may be silent for ``silence_seconds``."""
    limits = httpx2.Timeout(silence_seconds, connect=CONNECT_SECONDS)
    async with httpx2.AsyncClient(
        headers={"User-Agent": f"hermes-trio-chat/{__version__}"},
        timeout=limits,
        verify=target.verify,
        trust_env=not target.is_local,
    ) as http:
        yield ApiClient(target, http)


@asynccontextmanager
async def _pieces_of(answer: httpx2.Response) -> AsyncIterator[AsyncGenerator[bytes, None]]:
    """Iterate over the body of an answer.

    The library leaks an iterator if iteration stops early. So the connection is closed and the
    iterators are run to their end, which is then near.
    """
    pieces = answer.aiter_bytes()
    try:
        yield pieces
    finally:
        with (
            trio.move_on_after(CLOSE_SECONDS, shield=True),
            suppress(httpx2.HTTPError, httpx2.StreamError),
        ):
            await answer.aclose()
            async for _piece in pieces:
                pass


def _parse_object(content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ServerUnreachable(
            "the answer is not a JSON object: is this the address of a hermes-trio server?"
        )
    return value


def _refusal(answer: httpx2.Response, content: bytes) -> RequestRefused:
    try:
        error = json.loads(content)["error"]
        message, code = str(error["message"]), str(error.get("code") or "")
    except (ValueError, TypeError, KeyError, AttributeError):
        message, code = f"the server answered with status {answer.status_code}", ""
    wait = answer.headers.get("Retry-After", "")
    return RequestRefused(
        answer.status_code, message[:_MAX_MESSAGE_CHARS], code, float(wait) if wait.isdigit() else 0
    )


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__
