"""``POST /v1/chat/completions``."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial

from attrs import evolve, frozen
from quart import Response, request
from werkzeug.datastructures import Headers

from hermes_trio.agent.contract import TurnRequest
from hermes_trio.core.dialects.chat import ChatOptions, ChatStream
from hermes_trio.core.dialects.chat_batch import ChatCollector
from hermes_trio.core.errors import ApiError, bad_request
from hermes_trio.core.messages import Message
from hermes_trio.core.stamp import Stamp
from hermes_trio.runs.run import Order, open_run
from hermes_trio.schema.chat import ChatRequest, parse_chat
from hermes_trio.schema.fields import SESSION_ID_HEADER, SESSION_KEY_HEADER, session_id, session_key
from hermes_trio.web.errors import json_response
from hermes_trio.web.headers import STREAM_HEADERS
from hermes_trio.web.media import inline_media
from hermes_trio.web.options import Site
from hermes_trio.web.stream_body import Reader, StreamBody
from hermes_trio.web.visit import visit_of

Start = Callable[[], AbstractAsyncContextManager[Reader]]


@frozen
class SessionNames:
    """What the client's headers say about the session."""

    given_id: str
    key: str

    @classmethod
    def of(cls, headers: Headers) -> SessionNames:
        """Read and check them."""
        return cls(
            session_id(_text(headers, SESSION_ID_HEADER)), session_key(_text(headers, SESSION_KEY_HEADER))
        )

    def answer(self, used_id: str) -> dict[str, str]:
        """The headers of the reply."""
        echo = {SESSION_KEY_HEADER: self.key} if self.key else {}
        return {SESSION_ID_HEADER: used_id, **echo}


def _text(headers: Headers, name: str) -> str:
    """Quart reads headers as Latin-1 and writes them as UTF-8; only UTF-8 comes back as it was sent."""
    try:
        return headers.get(name, "").encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        raise bad_request(f"Invalid {name}: it is not UTF-8.", name, "invalid_header") from None


async def chat_completions(site: Site) -> Response:
    """Run one turn, streamed or in one piece."""
    slot = visit_of(request.scope).take(site.admission.admit())  # type: ignore[arg-type]  # a dictionary
    chat = parse_chat(await _body())
    names = SessionNames.of(request.headers)
    turn = await _turn(site, chat, names)
    stamp = Stamp(turn.run_id, site.services.wall_clock(), turn.model)
    start = partial(open_run, site.services, Order(stamp, turn, slot))
    headers = names.answer(turn.session_id)
    if chat.stream:
        return _streamed(site, start, ChatStream(stamp, _stream_options(site, chat)), headers)
    return await _whole(site, start, ChatCollector(stamp), headers)


async def _body() -> bytes:
    data = await request.get_data(as_text=False)
    assert isinstance(data, bytes)  # Quart's types do not know that the argument decides
    return data


async def _turn(site: Site, chat: ChatRequest, names: SessionNames) -> TurnRequest:
    principal = visit_of(request.scope).principal.name  # type: ignore[arg-type]
    return TurnRequest(
        run_id=f"chatcmpl-{secrets.token_hex(15)[:29]}",
        session_id=names.given_id or chat.derived_session_id,
        message=chat.message,
        history=await _history(site, chat, principal, names.given_id),
        instructions=chat.instructions,
        model=chat.model or site.options.model_name,
        session_key=names.key,
        principal=principal,
        options=chat.options,
    )


async def _history(site: Site, chat: ChatRequest, principal: str, given_id: str) -> tuple[Message, ...]:
    """The stored transcript of a session that the client names; otherwise what the client sent along."""
    return await site.services.store.messages(principal, given_id) if given_id else chat.history


def _stream_options(site: Site, chat: ChatRequest) -> ChatOptions:
    mode = site.options.open_webui_status
    is_open_webui = any(name.lower().startswith("x-openwebui-") for name in request.headers.keys())  # noqa: SIM118
    return ChatOptions(chat.include_usage, mode == "on" or (mode == "auto" and is_open_webui))


def _streamed(site: Site, start: Start, dialect: ChatStream, headers: dict[str, str]) -> Response:
    body = StreamBody(start, dialect, site.options.keepalive_seconds)
    response = Response(body, 200, {**STREAM_HEADERS, **headers})
    response.timeout = None  # Quart's limit counts the whole stream; ours are the run's
    return response


async def _whole(site: Site, start: Start, collector: ChatCollector, headers: dict[str, str]) -> Response:
    async with start() as changes:
        async for batch in changes:
            collector.take(batch)
    answer = await inline_media(collector.answer, site.services.workspace)
    if collector.outcome.session_id:
        headers = {**headers, SESSION_ID_HEADER: collector.outcome.session_id}
    try:
        reply = collector.reply(answer)
    except ApiError as error:
        raise evolve(error, headers={**headers, **error.headers}) from None
    return json_response(reply.body, 200, {**headers, **reply.headers})
