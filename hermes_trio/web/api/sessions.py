"""The Sessions API: transcripts to list, rename, read, branch and delete, and turns in them.

Every run belongs to a session, whichever API started it, so all transcripts are found here. Turns
are runs like all others: stored from their beginning, idempotent, and their streams can be resumed.
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import Any

from quart import Blueprint, Response, request

from hermes_trio.core.dialects.sessions import (
    FROM_THE_START,
    SOURCE,
    SessionCollector,
    SessionStream,
    frames_after,
    match_object,
    message_object,
    session_object,
)
from hermes_trio.core.errors import ApiError, bad_request
from hermes_trio.core.messages import Message, join_continued
from hermes_trio.core.outcome import Reason
from hermes_trio.core.records import EndedRun, NoRun, RunHeader, RunQuery
from hermes_trio.core.sessions import (
    MessageSearch,
    NoSession,
    Session,
    SessionBusy,
    SessionExists,
    SessionFork,
    SessionQuery,
    TitleTaken,
    search_words,
)
from hermes_trio.runs.spec import Persistence
from hermes_trio.schema.front_ends import read_client_ids
from hermes_trio.schema.parsing import parse_session_headers
from hermes_trio.schema.sessions import (
    SessionChatRequest,
    parse_fork,
    parse_session,
    parse_session_chat,
    parse_session_update,
)
from hermes_trio.web.errors import json_response
from hermes_trio.web.history import lock_session, session_target
from hermes_trio.web.media import reply_with_media
from hermes_trio.web.request import (
    MAX_INTEGER,
    app_state,
    bool_param,
    current_request,
    int_param,
    last_event_id,
    last_seq,
    parse_body,
    principal,
)
from hermes_trio.web.sse import collected_response, sse_response
from hermes_trio.web.start_run import (
    NewRun,
    RunKind,
    StartedRun,
    TurnInput,
    disconnect_policy,
    end_elsewhere,
    find_run,
    load_log,
    read_turn,
    start_run,
)

SESSIONS = RunKind("sessions", "run_", 32)

DEFAULT_PAGE = 50
MAX_PAGE = 200
MAX_MESSAGES = 1000
MAX_LIVE_RUNS = 100  # of a session, on other nodes

DEFAULT_MATCHES = 20
MAX_MATCHES = 100
MAX_QUERY = 200  # characters
SEARCHED_AT_ONCE = 25  # sessions
MAX_SEARCHED = 1000  # sessions, by one request

blueprint = Blueprint("sessions", __name__, url_prefix="/api")


# -- sessions --


@blueprint.get("/sessions")
async def list_sessions() -> Response:
    """List sessions, latest activity first."""
    limit = min(_lenient_int_param("limit", DEFAULT_PAGE, 1), MAX_PAGE)
    offset = _lenient_int_param("offset", 0, 0)
    source = request.args.get("source", "")
    kind = "" if source == SOURCE else source
    parent = request.args.get("parent", "")
    query = SessionQuery(limit, offset, kind, bool_param("include_children"), parent)
    page = await app_state().services.store.list_sessions(principal(), query)
    return json_response(
        {
            "object": "list",
            "data": [session_object(session) for session in page.sessions],
            "limit": limit,
            "offset": offset,
            "has_more": page.has_more,
        }
    )


def _lenient_int_param(name: str, default: int, low: int) -> int:
    """Read an integer from the query string.

    An invalid one counts as absent, as on the Hermes API server.
    """
    try:
        return min(int_param(name, default, low, 10**18), MAX_INTEGER)
    except ApiError:
        return default


@blueprint.post("/sessions")
async def create_session() -> Response:
    """Create a session."""
    services = app_state().services
    asked = await parse_body(parse_session)
    now = services.wall_clock()
    session = Session(
        principal=principal(),
        session_id=asked.session_id or _new_id(),
        kind=SESSIONS.name,
        created_at=now,
        updated_at=now,
        model=asked.model,
        title=asked.title,
        system_prompt=asked.system_prompt,
    )
    return _created_response(await services.store.create_session(session), session.session_id)


def _new_id() -> str:
    return f"api_{int(app_state().services.wall_clock())}_{secrets.token_hex(4)}"


def _created_response(
    made: Session | NoSession | SessionExists | TitleTaken, session_id: str
) -> Response:
    if isinstance(made, SessionExists):
        raise ApiError(
            409, f"There is a session '{session_id}' already.", param="id", code="session_exists"
        )
    return _session_response(made, session_id, 201)


def _session_response(
    session: Session | NoSession | TitleTaken, session_id: str, status: int = 200
) -> Response:
    if isinstance(session, NoSession):
        raise _not_found(session_id)
    if isinstance(session, TitleTaken):
        raise bad_request("Another session has this title.", "title", "invalid_title")
    return json_response({"object": "hermes.session", "session": session_object(session)}, status)


@blueprint.get("/sessions/<session_id>")
async def get_session(session_id: str) -> Response:
    """Return a session, without its messages."""
    return _session_response(await _find(session_id), session_id)


@blueprint.patch("/sessions/<session_id>")
async def update_session(session_id: str) -> Response:
    """Change the title of a session, or end it."""
    services = app_state().services
    change = await parse_body(parse_session_update)
    found = await services.store.update_session(
        principal(), session_id, change, services.wall_clock()
    )
    return _session_response(found, session_id)


@blueprint.delete("/sessions/<session_id>")
async def delete_session(session_id: str) -> Response:
    """Delete a session and its runs; live runs are stopped first."""
    await _find(session_id)
    # Stop the live runs and wait for their ends, which each run bounds in time.
    live = app_state().services.registry.in_session(principal(), session_id)
    for run in live:
        run.stop(Reason.STOP_REQUESTED)
    for run in live:
        await run.ended.wait()
    if app_state().services.cluster is not None:
        for header in await _find_live_elsewhere(session_id):
            await end_elsewhere(header)
    deleted = await app_state().services.store.delete_session(principal(), session_id)
    if isinstance(deleted, NoSession):
        raise _not_found(session_id)
    if isinstance(deleted, SessionBusy):
        message = f"A run is in progress in session '{session_id}'."
        raise ApiError(409, message, param="session_id", code="session_busy")
    return json_response({"object": "hermes.session.deleted", "id": session_id, "deleted": True})


async def _find_live_elsewhere(session_id: str) -> list[RunHeader]:
    """Return the live runs of a session that other nodes execute."""
    query = RunQuery(limit=MAX_LIVE_RUNS, ends=frozenset(), session_id=session_id)
    page = await app_state().services.store.list_runs(principal(), query)
    return [run.header for run in page.runs]


@blueprint.get("/sessions/<session_id>/messages")
async def list_messages(session_id: str) -> Response:
    """List the messages of a session, with cursor pagination."""
    limit = int_param("limit", MAX_MESSAGES, 1, MAX_MESSAGES)
    after = int_param("after", 0, 0, MAX_INTEGER)
    await _find(session_id)
    page = await app_state().services.store.list_messages(principal(), session_id, after, limit)
    shown = [message_object(stored, session_id) for stored in page.messages]
    return json_response(
        {"object": "list", "session_id": session_id, "data": shown, "has_more": page.has_more}
    )


@blueprint.post("/sessions/<session_id>/fork")
async def fork_session(session_id: str) -> Response:
    """Branch a session."""
    services = app_state().services
    asked = await parse_body(parse_fork)
    child = asked.session_id or _new_id()
    now = services.wall_clock()
    if asked.before:
        source = await _find(session_id)
        if asked.before > source.counters.message_count:
            message = f"There is no message {asked.before} in session '{session_id}'."
            raise bad_request(message, "before", "invalid_message_id")
    made = await services.store.fork_session(
        SessionFork(principal(), session_id, child, asked.title, now, asked.before, asked.model)
    )
    return _created_response(made, session_id if isinstance(made, NoSession) else child)


async def _find(session_id: str) -> Session:
    found = await app_state().services.store.find_session(principal(), session_id)
    if isinstance(found, NoSession):
        raise _not_found(session_id)
    return found


def _not_found(session_id: str) -> ApiError:
    message = f"There is no session '{session_id}'."
    return ApiError(404, message, param="session_id", code="session_not_found")


@blueprint.get("/messages/search")
async def search_messages() -> Response:
    """Search the messages of all sessions, those with the latest activity first.

    One request searches a bounded number of sessions.
    """
    text = request.args.get("q", "")
    words = search_words(text)
    if not words or len(text) > MAX_QUERY:
        message = f"'q' must be the words to look for, in at most {MAX_QUERY} characters."
        raise bad_request(message, "q", "invalid_query")
    limit = int_param("limit", DEFAULT_MATCHES, 1, MAX_MATCHES)
    offset = first = int_param("offset", 0, 0, MAX_INTEGER)
    data: list[dict[str, Any]] = []
    has_more = True
    while has_more and len(data) < limit and offset < first + MAX_SEARCHED:
        query = MessageSearch(words, offset, SEARCHED_AT_ONCE, limit - len(data))
        page = await app_state().services.store.search_messages(principal(), query)
        data += [match_object(found, each, words) for found, hits in page.found for each in hits]
        offset, has_more = offset + page.searched, page.has_more
    return json_response(
        {
            "object": "list",
            "data": data,
            "has_more": has_more,
            "next_offset": offset if has_more else None,
        }
    )


# -- turns --


@blueprint.post("/sessions/<session_id>/chat")
async def chat(session_id: str) -> Response:
    """Run one turn, and respond when it has ended."""
    started = await _start(session_id, is_streamed=False)
    collector = SessionCollector(started.header, app_state().options.agent_failure_status)
    # Media only here: the events of a stream are the same forever, and files are not.
    make_reply = partial(reply_with_media, collector, started.header.stamp.model)
    return await collected_response(started, collector, make_reply)


@blueprint.post("/sessions/<session_id>/chat/stream")
async def chat_stream(session_id: str) -> Response:
    """Run one turn, and stream it."""
    started = await _start(session_id, is_streamed=True)
    return sse_response(started, SessionStream(started.header))


async def _start(session_id: str, is_streamed: bool) -> StartedRun:
    fingerprint, asked = await read_turn(parse_session_chat)
    headers = current_request().headers
    return await start_run(
        NewRun(
            SESSIONS,
            fingerprint,
            parse_session_headers(headers),
            partial(_load_input, session_id, asked),
            persistence=Persistence.FULL,
            on_disconnect=disconnect_policy(),
            can_ask=is_streamed,
            ids=read_client_ids(headers),
        )
    )


async def _load_input(session_id: str, asked: SessionChatRequest, _: str) -> TurnInput:
    session = await _find(session_id)
    lock = await lock_session(session_target(session_id, "session_id"))
    return TurnInput(
        session_id=session_id,
        message=asked.message,
        history=join_continued(
            await app_state().services.store.load_messages(principal(), session_id)
        ),
        instructions="\n\n".join(filter(None, (session.system_prompt, asked.system_message))),
        model=session.model,
        messages=(Message("user", asked.message),),
        session_lock=lock,
    )


@blueprint.get("/sessions/<session_id>/chat/stream")
async def resume_chat_stream(session_id: str) -> Response:
    """Stream a turn, live or ended, after any one of its events."""
    event_id = last_event_id()
    after = last_seq(event_id, FROM_THE_START)
    run_id = request.args.get("run_id", "")
    if not run_id:
        raise bad_request("'run_id' is required.", "run_id")
    await _find(session_id)
    found = await app_state().services.store.find_run(principal(), run_id)
    turn = (SESSIONS.name, session_id)
    if isinstance(found, NoRun) or (found.header.kind, found.header.session_id) != turn:
        message = f"There is no run '{run_id}' in session '{session_id}'."
        raise ApiError(404, message, param="run_id", code="run_not_found")
    started = await find_run(found.header.run_id)
    if event_id and isinstance(found, EndedRun):
        rest = frames_after(found.header, await load_log(found.header.run_id), after)
        if not rest:
            # A browser reconnects even after a stream that ended well; only 204 stops it.
            return Response(b"", 204)
    return sse_response(started, SessionStream(started.header, after))
