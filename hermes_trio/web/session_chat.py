"""Turns in a session: ``/api/sessions/{session_id}/chat``, in one piece or streamed, and streams that are picked up again.

They are runs like all others: kept from their beginning, idempotent, and others may continue them.
"""

from __future__ import annotations

from functools import partial

from attrs import evolve, frozen
from quart import Response, request

from hermes_trio.agent.contract import TurnRequest
from hermes_trio.core.dialects.session import FROM_THE_START, SessionStream, frames_after
from hermes_trio.core.dialects.session_batch import SessionCollector
from hermes_trio.core.errors import ApiError, bad_request
from hermes_trio.core.messages import Message
from hermes_trio.core.record import EndedRun, LiveRun, NoRun, RunHeader
from hermes_trio.core.sessions import Session
from hermes_trio.core.stamp import Stamp
from hermes_trio.runs.presence import DisconnectPolicy
from hermes_trio.runs.spec import Persistence, RunSpec
from hermes_trio.schema.fields import SESSION_ID_HEADER
from hermes_trio.schema.sessions import SessionChatRequest, parse_session_chat
from hermes_trio.web.asked import asker, body, last_event_id, last_seq, principal, visit
from hermes_trio.web.errors import json_response
from hermes_trio.web.ids import random_hex
from hermes_trio.web.media import inline_media
from hermes_trio.web.options import Site
from hermes_trio.web.places import enter, named
from hermes_trio.web.profiles import choose
from hermes_trio.web.session_api import KIND, find_session
from hermes_trio.web.sessions import SessionNames
from hermes_trio.web.sse import collect, sse_response
from hermes_trio.web.starting import Started, admitted_first, find, policy, start
from hermes_trio.web.turns import logged

ID_PREFIX = "run_"


@frozen
class Manner:
    """How a turn is listened to."""

    on_disconnect: DisconnectPolicy
    can_ask: bool


async def chat(site: Site, session_id: str) -> Response:
    """Run one turn, and answer when it has ended."""
    started, headers = await _start(site, session_id, is_streamed=False)
    collector = SessionCollector(started.header)
    async with started.open() as changes:
        await collect(changes, collector.take)
    if collector.outcome.session_id:
        headers = {**headers, SESSION_ID_HEADER: collector.outcome.session_id}
    # Only here: the events of a stream are the same for ever, and files are not.
    workspace = site.services.environment(choose(site, started.header.stamp.model).profile).workspace
    answer = await inline_media(collector.answer, workspace)
    try:
        reply = collector.reply(answer)
    except ApiError as error:
        raise evolve(error, headers={**headers, **error.headers}) from None
    return json_response(reply.body, 200, {**headers, **reply.headers})


async def chat_stream(site: Site, session_id: str) -> Response:
    """Run one turn, and tell of it as it happens."""
    started, headers = await _start(site, session_id, is_streamed=True)
    return sse_response(site, started.open, SessionStream(started.header), headers)


async def _start(site: Site, session_id: str, is_streamed: bool) -> tuple[Started, dict[str, str]]:
    admitted_first(site)
    raw = await body()
    asked, names = parse_session_chat(raw), SessionNames.of(visit())
    run_id = f"{ID_PREFIX}{random_hex(16)}"
    manner = Manner(policy(site), can_ask=is_streamed)
    make_order = partial(_order, site, session_id, asked, names, manner)
    started = await start(site, run_id, raw, make_order)
    return started, {**names.answer(session_id), **started.headers()}


async def _order(
    site: Site,
    session_id: str,
    asked: SessionChatRequest,
    names: SessionNames,
    manner: Manner,
    run_id: str,
) -> RunSpec:
    slot = visit().slot(site.admission)
    session = await find_session(site, session_id)
    place, chosen = await enter(site, named(session_id, "session_id")), choose(site, session.model)
    turn = TurnRequest(
        run_id=run_id,
        session_id=session_id,
        message=asked.message,
        history=await site.services.store.messages(principal(), session_id),
        instructions=_instructions(session, asked),
        model=chosen.model,
        session_key=names.key,
        principal=asker(),
        profile=chosen.profile,
    )
    return RunSpec(
        _header(site, turn), turn, slot, place, Persistence.FULL, manner.on_disconnect, manner.can_ask
    )


def _instructions(session: Session, asked: SessionChatRequest) -> str:
    return "\n\n".join(filter(None, (session.system_prompt, asked.system_message)))


def _header(site: Site, turn: TurnRequest) -> RunHeader:
    return RunHeader(
        principal=principal(),
        stamp=Stamp(turn.run_id, site.services.wall_clock(), turn.model),
        kind=KIND,
        session_id=turn.session_id,
        messages=(Message("user", turn.message),),
        instructions=turn.instructions,
    )


async def chat_events(site: Site, session_id: str) -> Response:
    """The stream of a turn, live or ended, from any point on."""
    last = last_event_id()
    after = last_seq(last, FROM_THE_START)
    found = await _find_run(site, session_id)
    started = await find(site, found.header.run_id)
    if last and isinstance(found, EndedRun) and await _has_all(site, found.header, after):
        # A browser comes back even after a stream that ended well; only this tells it that it need not.
        return Response(b"", 204)
    return sse_response(site, started.open, SessionStream(started.header, after), {})


async def _find_run(site: Site, session_id: str) -> LiveRun | EndedRun:
    """The turn that the query names, which must be one of this session."""
    run_id = request.args.get("run_id", "")
    if not run_id:
        raise bad_request("'run_id' is required.", "run_id")
    await find_session(site, session_id)
    found = await site.services.store.find_run(principal(), run_id)
    if isinstance(found, NoRun) or (found.header.kind, found.header.session_id) != (KIND, session_id):
        message = f"There is no run '{run_id}' in session '{session_id}'."
        raise ApiError(404, message, param="run_id", code="run_not_found")
    return found


async def _has_all(site: Site, header: RunHeader, after: int) -> bool:
    """Whether nothing comes after an event."""
    return not frames_after(header, await logged(site, header.run_id), after)
