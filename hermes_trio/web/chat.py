"""``POST /v1/chat/completions``."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from attrs import evolve
from quart import Response

from hermes_trio.agent.contract import TurnRequest
from hermes_trio.core.dialects.chat import ChatOptions, ChatStream
from hermes_trio.core.dialects.chat_batch import ChatCollector
from hermes_trio.core.errors import ApiError
from hermes_trio.core.messages import Message
from hermes_trio.core.record import RunHeader
from hermes_trio.core.stamp import Stamp
from hermes_trio.runs.presence import INTERRUPT
from hermes_trio.runs.spec import RunSpec
from hermes_trio.schema.chat import ChatRequest, parse_chat
from hermes_trio.schema.fields import SESSION_ID_HEADER
from hermes_trio.web.asked import body, principal, visit
from hermes_trio.web.errors import json_response
from hermes_trio.web.ids import random_hex
from hermes_trio.web.media import inline_media
from hermes_trio.web.options import Site
from hermes_trio.web.places import enter, named
from hermes_trio.web.profiles import choose
from hermes_trio.web.sessions import SessionNames
from hermes_trio.web.sse import collect, sse_response
from hermes_trio.web.starting import Started, admitted_first, start
from hermes_trio.web.visit import Visit


async def chat_completions(site: Site) -> Response:
    """Run one turn, streamed or in one piece."""
    admitted_first(site)
    raw = await body()
    chat = parse_chat(raw)
    names = SessionNames.of(visit())
    run_id = f"chatcmpl-{random_hex(15)[:29]}"
    started = await start(site, run_id, raw, partial(_order, site, chat, names))
    header = started.header
    headers = {**names.answer(header.session_id), **started.headers()}
    if chat.stream:
        return sse_response(site, started.open, ChatStream(header.stamp, _stream_options(header)), headers)
    workspace = site.services.environment(choose(site, chat.model).profile).workspace
    return await _whole(started, workspace, headers)


async def _order(site: Site, chat: ChatRequest, names: SessionNames, run_id: str) -> RunSpec:
    current = visit()
    slot, chosen = current.slot(site.admission), choose(site, chat.model)
    # A derived session is not entered: its transcript is not read, and clients that begin alike must not wait.
    place = await enter(site, named(names.given_id, SESSION_ID_HEADER)) if names.given_id else None
    turn = TurnRequest(
        run_id=run_id,
        session_id=names.given_id or chat.derived_session_id,
        message=chat.message,
        history=await _history(site, chat, names.given_id),
        instructions=chat.instructions,
        model=chosen.model,
        session_key=names.key,
        principal=current.principal.name,
        profile=chosen.profile,
        options=chat.options,
    )
    return RunSpec(
        _header(site, chat, turn, current), turn, slot, place, policy=INTERRUPT, can_ask=chat.stream
    )


def _header(site: Site, chat: ChatRequest, turn: TurnRequest, visit: Visit) -> RunHeader:
    return RunHeader(
        principal=visit.scope,
        stamp=Stamp(turn.run_id, site.services.wall_clock(), turn.model),
        kind="chat",
        session_id=turn.session_id,
        messages=chat.messages,
        instructions=chat.instructions,
        request={"include_usage": chat.include_usage, "status_line": _wants_status_line(site, visit)},
    )


async def _history(site: Site, chat: ChatRequest, given_id: str) -> tuple[Message, ...]:
    """The stored transcript of a session that the client names; otherwise what the client sent along."""
    if not given_id:
        return chat.history
    stored = await site.services.store.messages(principal(), given_id)
    return stored if chat.message else (*stored, *chat.messages)


def _wants_status_line(site: Site, visit: Visit) -> bool:
    mode = site.options.open_webui_status
    if mode != "auto":
        return mode == "on"
    # One search for all names: none of them holds a line end.
    return "\nx-openwebui-" in "\n".join(["", *visit.headers])


def _stream_options(header: RunHeader) -> ChatOptions:
    """As the first request had them: a replay is the same to the byte."""
    return ChatOptions(header.request["include_usage"], header.request["status_line"])


async def _whole(started: Started, workspace: Path, headers: dict[str, str]) -> Response:
    collector = ChatCollector(started.header.stamp)
    async with started.open() as changes:
        await collect(changes, collector.take)
    answer = await inline_media(collector.answer, workspace)
    if collector.outcome.session_id:
        headers = {**headers, SESSION_ID_HEADER: collector.outcome.session_id}
    try:
        reply = collector.reply(answer)
    except ApiError as error:
        raise evolve(error, headers={**headers, **error.headers}) from None
    return json_response(reply.body, 200, {**headers, **reply.headers})
