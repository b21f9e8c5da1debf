"""``/api/sessions``: transcripts as things to be listed, named, read, branched and deleted.

Every run belongs to a session, whichever API started it, so what was said anywhere is found here.
"""

from __future__ import annotations

from quart import Response, request

from hermes_trio.core.dialects.session_object import SOURCE, message_object, session_object
from hermes_trio.core.errors import ApiError, bad_request
from hermes_trio.core.outcome import Reason
from hermes_trio.core.sessions import (
    NoSession,
    Session,
    SessionBusy,
    SessionExists,
    SessionQuery,
    TitleTaken,
)
from hermes_trio.schema.sessions import parse_fork, parse_session, parse_session_update
from hermes_trio.web.asked import body, is_on, principal, whole_number
from hermes_trio.web.errors import json_response
from hermes_trio.web.ids import random_hex
from hermes_trio.web.options import Site

KIND = "sessions"
PAGE = 50
MAX_PAGE = 200
MAX_MESSAGES = 1000
ENOUGH = 2**53


async def list_sessions(site: Site) -> Response:
    """Sessions, the one with the latest activity first."""
    limit = min(_lenient("limit", PAGE, 1), MAX_PAGE)
    offset = _lenient("offset", 0, 0)
    source = request.args.get("source", "")
    kind = "" if source == SOURCE else source
    query = SessionQuery(limit, offset, kind, is_on("include_children"))
    page = await site.services.store.list_sessions(principal(), query)
    shown = [session_object(session) for session in page.sessions]
    head = {"object": "list", "data": shown, "limit": limit, "offset": offset}
    return json_response({**head, "has_more": page.has_more})


def _lenient(name: str, default: int, low: int) -> int:
    """A number of the query; what is none, or is too small, counts as not given, as with today's server."""
    try:
        return min(whole_number(name, default, low, 10**18), ENOUGH)
    except ApiError:
        return default


async def create_session(site: Site) -> Response:
    """Make a session."""
    asked = parse_session(await body())
    now = site.services.wall_clock()
    wanted = Session(
        principal=principal(),
        session_id=asked.session_id or _new_id(site),
        kind=KIND,
        created_at=now,
        updated_at=now,
        model=asked.model,
        title=asked.title,
        system_prompt=asked.system_prompt,
    )
    return _made(await site.services.store.create_session(wanted), wanted.session_id)


def _new_id(site: Site) -> str:
    return f"api_{int(site.services.wall_clock())}_{random_hex(4)}"


def _made(made: Session | NoSession | SessionExists | TitleTaken, session_id: str) -> Response:
    if isinstance(made, SessionExists):
        raise ApiError(409, f"There is a session '{session_id}' already.", param="id", code="session_exists")
    return _shown(made, session_id, 201)


def _shown(session: Session | NoSession | TitleTaken, session_id: str, status: int = 200) -> Response:
    if isinstance(session, NoSession):
        raise not_found(session_id)
    if isinstance(session, TitleTaken):
        raise bad_request("Another session has this title.", "title", "invalid_title")
    return json_response({"object": "hermes.session", "session": session_object(session)}, status)


async def get_session(site: Site, session_id: str) -> Response:
    """A session, without its messages."""
    return _shown(await find_session(site, session_id), session_id)


async def update_session(site: Site, session_id: str) -> Response:
    """Give a session another title, or end it."""
    change = parse_session_update(await body())
    now = site.services.wall_clock()
    found = await site.services.store.update_session(principal(), session_id, change, now)
    return _shown(found, session_id)


async def delete_session(site: Site, session_id: str) -> Response:
    """Forget a session and the runs in it; those that are live are stopped first."""
    await find_session(site, session_id)
    await _stop_all(site, session_id)
    gone = await site.services.store.delete_session(principal(), session_id)
    if isinstance(gone, NoSession):
        raise not_found(session_id)
    if isinstance(gone, SessionBusy):
        message = f"A run is in progress in session '{session_id}'."
        raise ApiError(409, message, param="session_id", code="session_busy")
    return json_response({"object": "hermes.session.deleted", "id": session_id, "deleted": True})


async def _stop_all(site: Site, session_id: str) -> None:
    """Returns when the runs have ended; each of them bounds how long that takes."""
    live = site.services.registry.in_session(principal(), session_id)
    for run in live:
        run.stop(Reason.STOP_REQUESTED)
    for run in live:
        await run.ended.wait()


async def list_messages(site: Site, session_id: str) -> Response:
    """The transcript of a session, page by page."""
    limit = whole_number("limit", MAX_MESSAGES, 1, MAX_MESSAGES)
    after = whole_number("after", 0, 0, ENOUGH)
    await find_session(site, session_id)
    page = await site.services.store.message_page(principal(), session_id, after, limit)
    shown = [message_object(stored, session_id) for stored in page.messages]
    head = {"object": "list", "session_id": session_id, "data": shown}
    return json_response({**head, "has_more": page.has_more})


async def fork_session(site: Site, session_id: str) -> Response:
    """Branch a session."""
    asked = parse_fork(await body())
    child, now = asked.session_id or _new_id(site), site.services.wall_clock()
    made = await site.services.store.fork_session(principal(), session_id, child, asked.title, now)
    return _made(made, session_id if isinstance(made, NoSession) else child)


async def find_session(site: Site, session_id: str) -> Session:
    """A session of the asking principal.

    Raises:
        ApiError: 404.
    """
    found = await site.services.store.find_session(principal(), session_id)
    if isinstance(found, NoSession):
        raise not_found(session_id)
    return found


def not_found(session_id: str) -> ApiError:
    """There is no such session, or it is somebody else's."""
    message = f"There is no session '{session_id}'."
    return ApiError(404, message, param="session_id", code="session_not_found")
