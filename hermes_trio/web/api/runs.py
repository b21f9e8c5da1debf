"""The Runs API: start a run in the background, list, inspect, follow and stop runs.

A run started here is detached from its request and stored from its beginning, so every client of
the principal can follow its events, from any point and any number of times, until its log expires.

Runs started by other APIs are listed, followed and stopped here too, unless their client asked not
to store them.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from attrs import evolve, frozen
from quart import Blueprint, Response, request

from hermes_trio.core.changes import Change, Ended
from hermes_trio.core.dialects.runs import (
    CLOSED,
    FROM_THE_START,
    RunsStream,
    end_object,
    ends_in_states,
    final_state,
    run_object,
    status_after,
)
from hermes_trio.core.errors import ApiError, bad_request
from hermes_trio.core.outcome import Reason
from hermes_trio.core.records import (
    NEWEST,
    OLDEST,
    EndedRun,
    LiveRun,
    NoRun,
    RunCursor,
    RunEnd,
    RunHeader,
    RunPage,
    RunQuery,
)
from hermes_trio.core.run_status import RunStatus
from hermes_trio.core.state import RunState
from hermes_trio.runs.disconnects import DETACH
from hermes_trio.runs.log import ChangeReader, Subscriber, load_changes
from hermes_trio.runs.run import Run
from hermes_trio.runs.spec import Persistence
from hermes_trio.schema.front_ends import read_client_ids
from hermes_trio.schema.parsing import parse_session_headers
from hermes_trio.schema.runs import RunRequest, parse_run, require_user_message
from hermes_trio.web.api.responses import turn_input
from hermes_trio.web.errors import NO_STORE, json_response
from hermes_trio.web.history import (
    find_session_target,
    load_history,
    lock_session,
    new_session_target,
    resolve_references,
    session_target,
)
from hermes_trio.web.request import (
    app_state,
    current_request,
    int_param,
    last_event_id,
    last_seq,
    principal,
)
from hermes_trio.web.sse import sse_response
from hermes_trio.web.start_run import (
    NewRun,
    RunKind,
    StartedRun,
    TurnInput,
    events_expired,
    find_run,
    load_log,
    read_turn,
    start_run,
    stop_elsewhere,
)

RUNS = RunKind("runs", "run_", 32)

ENDED_STATUSES = frozenset({"completed", "failed", "cancelled"})
LIVE_STATUSES = frozenset({"queued", "running", "waiting_for_approval", "stopping"})
KINDS = frozenset({"chat", "responses", "runs", "sessions", "cron", "whatsapp"})
RUNNING = RunStatus(RunState.RUNNING)  # assumed of a live run that another process executes
MAX_RECENT = 64  # changes of a live run that a list looks at, as a list may hold many runs

blueprint = Blueprint("runs", __name__, url_prefix="/v1/runs")


# -- starting a run --


@blueprint.post("")
async def create_run() -> Response:
    """Start a run, and respond as soon as the store has it."""
    fingerprint, asked = await read_turn(parse_run)
    headers = current_request().headers
    started = await start_run(
        NewRun(
            RUNS,
            fingerprint,
            parse_session_headers(headers),
            partial(_load_input, asked),
            persistence=Persistence.FULL,
            on_disconnect=DETACH,
            is_background=True,
            can_ask=True,
            ids=read_client_ids(headers, asked.responses_request.ids),
        )
    )
    return json_response(
        {"run_id": started.header.run_id, "status": "started"}, 202, started.headers
    )


async def _load_input(asked: RunRequest, run_id: str) -> TurnInput:
    asked = evolve(asked, responses_request=await resolve_references(asked.responses_request))
    require_user_message(asked.responses_request)
    # The session that the client names, else that of the run it continues, else a new one.
    continues = asked.responses_request
    if asked.session_id:
        target = session_target(asked.session_id, "session_id")
    elif continues.previous_response_id and not continues.explicit_history:
        target = await find_session_target(continues)
    else:
        target = new_session_target(run_id)
    lock = await lock_session(target)
    history = await load_history(asked.responses_request, target.session_id)
    history = evolve(history, session_id=asked.session_id or history.session_id)
    return turn_input(run_id, asked.responses_request, history, lock)


# -- one run --


@blueprint.get("/<run_id>")
async def get_run(run_id: str) -> Response:
    """Return a run in its current state."""
    run = _find_live(run_id)
    if run is not None:
        # Before the store is asked: what memory says must not be newer than what the store says.
        latest, status = run.log.recent(), run.status
        return json_response(run_object(await _find(run_id), latest, status))
    found = await _find(run_id)
    changes = await load_log(run_id) if isinstance(found, LiveRun) else []
    if changes and isinstance(changes[-1], Ended):  # it ended between the two reads
        found = await _find(run_id)
    return json_response(run_object(found, changes, status_after(changes)))


@blueprint.get("/<run_id>/events")
async def stream_events(run_id: str) -> Response:
    """Stream the events of a run, live or ended, after any one of them."""
    event_id = last_event_id()
    after = last_seq(event_id, FROM_THE_START)
    found = await _find(run_id)
    started = await _open_events(run_id)
    if event_id and isinstance(found, EndedRun) and not await _has_events(found.header, after):
        # A browser reconnects even after a stream that ended well; only 204 stops it.
        return Response(b"", 204)
    return sse_response(started, RunsStream(started.header, after))


async def _has_events(header: RunHeader, after: int) -> bool:
    """Return whether an ended run has events after a number."""
    stream, position = RunsStream(header, after), 0
    frames = stream.opening()
    while frames in (b"", CLOSED):
        store = app_state().services.store
        changes = await load_changes(store, principal(), header.run_id, position)
        if not changes:
            return False
        position += len(changes)
        frames = stream.render(changes)
    return True


async def _open_events(run_id: str) -> StartedRun:
    """Find a run to be read from its beginning.

    A live one that is not stored, if memory still has its beginning.
    """
    run = _find_live(run_id)
    if run is None or run.is_stored or not _is_listed(run):
        return await find_run(run_id)
    if run.log.base > 0:
        raise events_expired()
    reader = run.log.subscribe()  # at once: a moment later its beginning may be gone
    current_request().on_close(reader.close)
    return StartedRun(run.header, partial(_open_reader, reader))


@asynccontextmanager
async def _open_reader(reader: Subscriber) -> AsyncIterator[ChangeReader]:
    yield reader


@blueprint.post("/<run_id>/ticket")
async def create_ticket(run_id: str) -> Response:
    """Issue a ticket that opens the run's event stream without a key, as ``EventSource`` needs it."""
    await _find(run_id)
    context, state = current_request(), app_state()
    expires_at = math.ceil(state.services.wall_clock() + state.options.ticket_seconds)
    ticket = state.tickets.issue(context.principal, expires_at, context.profile, run_id)
    return json_response(
        {
            "object": "hermes.run.ticket",
            "run_id": run_id,
            "ticket": ticket,
            "expires_at": expires_at,
        },
        headers=NO_STORE,
    )


@blueprint.post("/<run_id>/stop")
async def stop_run(run_id: str) -> Response:
    """Ask a run to stop; one that has ended stays as it is."""
    run = _find_live(
        run_id
    )  # before the store is asked: a run leaves the registry when its end is stored
    found = await _find(run_id)
    if isinstance(found, EndedRun):
        return json_response({"run_id": run_id, "status": final_state(found.outcome)})
    if run is None:
        await stop_elsewhere(found.header)
    else:
        run.stop(Reason.STOP_REQUESTED)
    return json_response({"run_id": run_id, "status": RunState.STOPPING})


async def _find(run_id: str) -> LiveRun | EndedRun:
    """Find a run in the store; one that is stored only at its end, in the registry."""
    run = _find_live(run_id)
    if run is not None and _is_listed(run) and not run.is_stored:
        return LiveRun(run.header)
    found = await app_state().services.store.find_run(principal(), run_id)
    if isinstance(found, NoRun) or not found.header.is_stored:
        raise ApiError(404, f"There is no run '{run_id}'.", param="run_id", code="run_not_found")
    return found


def _find_live(run_id: str) -> Run | None:
    return app_state().services.registry.find(principal(), run_id)


# -- the list of runs --
#
# The store has the runs that have ended and those stored from their beginning, and knows which of
# them wait. Of live runs the registry knows more: chat turns that are stored only at their end, and
# which runs are stopping. A page merges both.


@frozen
class _ListedRun:
    """A run in a list: as the store has it, or live, with what the registry knows."""

    run: LiveRun | RunEnd
    status: RunStatus = RUNNING  # of a live run
    latest: tuple[Change, ...] = ()

    @property
    def cursor(self) -> RunCursor:
        return _cursor(self.run.header)

    def to_object(self) -> dict[str, Any]:
        if isinstance(self.run, RunEnd):
            return end_object(self.run)
        return run_object(self.run, self.latest, self.status)


@frozen
class _ListQuery:
    """The runs that a client asks for."""

    query: RunQuery
    statuses: frozenset[str]

    def matches(self, listed: _ListedRun) -> bool:
        """Return whether a live run belongs into the list."""
        header, query = listed.run.header, self.query
        return (
            self.has_status(listed)
            and query.session_id in {"", header.session_id}
            and (not query.kinds or header.kind in query.kinds)
            and self.is_after(listed.cursor, query.after)
        )

    def has_status(self, listed: _ListedRun) -> bool:
        """Return whether a run has one of the statuses; of ended ones, the store returns no others."""
        return isinstance(listed.run, RunEnd) or listed.status.state in self.statuses

    def is_after(self, cursor: RunCursor, other: RunCursor) -> bool:
        """Return whether a run comes after another in the order of the list."""
        return cursor < other if self.query.newest_first else cursor > other


@blueprint.get("")
async def list_runs() -> Response:
    """List runs, by default newest first, with cursor pagination."""
    services, owner = app_state().services, principal()
    query = await _parse_query()
    # The registry first: a run that ends between the two reads is then found in both, not in
    # neither.
    live = {
        run.header.run_id: _ListedRun(LiveRun(run.header), run.status, run.log.recent(MAX_RECENT))
        for run in services.registry.list_for(owner)
        if _is_listed(run)
    }
    # Enough to fill the page when the runs that the registry knows more about are taken out.
    enlarged = evolve(query.query, limit=query.query.limit + len(live))
    page = await services.store.list_runs(owner, enlarged)
    merged = [await _with_approvals(listed) for listed in _merge(query, live, page)]
    found = [listed for listed in merged if query.has_status(listed)]
    shown = [listed.to_object() for listed in found[: query.query.limit]]
    has_more = page.has_more or len(found) > len(shown)
    ids = [run["run_id"] for run in shown] or [None]
    return json_response(
        {
            "object": "list",
            "data": shown,
            "first_id": ids[0],
            "last_id": ids[-1],
            "has_more": has_more,
        }
    )


async def _with_approvals(listed: _ListedRun) -> _ListedRun:
    """Complete a run that another process executes: if it waits, its log says what for."""
    is_known = listed.status is not RUNNING
    if is_known or not (isinstance(listed.run, LiveRun) and listed.run.is_waiting):
        return listed
    changes = await load_log(listed.run.header.run_id)
    if not changes or isinstance(changes[-1], Ended):  # it ended between the two reads
        return listed
    return evolve(listed, status=status_after(changes), latest=tuple(changes[-MAX_RECENT:]))


def _is_listed(run: Run) -> bool:
    """Return whether the registry answers for a live run.

    Once it has ended the store does, and until the store has accepted it nothing may reveal it.
    """
    return run.has_begun and run.header.is_stored and not run.log.is_closed


def _merge(query: _ListQuery, live: dict[str, _ListedRun], page: RunPage) -> list[_ListedRun]:
    """Merge a page of the store with the live runs, each run once, in order."""
    stored = [
        _ListedRun(run)
        for run in page.runs
        if isinstance(run, RunEnd) or run.header.run_id not in live
    ]
    known = {listed.cursor for listed in stored}
    found = [
        listed for listed in live.values() if listed.cursor not in known and query.matches(listed)
    ]
    if page.has_more:  # what comes after the last run of the page is for the next page
        end = _cursor(page.runs[-1].header)
        found = [listed for listed in found if not query.is_after(listed.cursor, end)]
    return sorted(
        [*stored, *found], key=lambda listed: listed.cursor, reverse=query.query.newest_first
    )


async def _parse_query() -> _ListQuery:
    newest_first = "asc" not in _words_param("order", frozenset({"asc", "desc"}))
    statuses = (
        _words_param("status", LIVE_STATUSES | ENDED_STATUSES) or LIVE_STATUSES | ENDED_STATUSES
    )
    is_running, is_waiting = (state in statuses for state in (RunState.RUNNING, RunState.WAITING))
    query = RunQuery(
        after=await _find_cursor(newest_first),
        limit=int_param("limit", 20, 1, 100),
        newest_first=newest_first,
        live=is_running or is_waiting,
        waiting=None if is_running and is_waiting else is_waiting,
        ends=ends_in_states(statuses),
        kinds=_words_param("kind", KINDS),
        session_id=request.args.get("session_id", ""),
    )
    return _ListQuery(query, statuses)


def _words_param(name: str, known: frozenset[str]) -> frozenset[str]:
    """Read a comma-separated list of known words; empty if the parameter is absent."""
    words = frozenset(word.strip() for word in request.args.get(name, "").split(",")) - {""}
    if not words <= known:
        raise bad_request(f"'{name}' must be one of {', '.join(sorted(known))}.", name)
    return words


async def _find_cursor(newest_first: bool) -> RunCursor:
    run_id = request.args.get("after", "")
    if not run_id:
        return NEWEST if newest_first else OLDEST
    run = _find_live(run_id)
    if run is not None and _is_listed(run):
        return _cursor(run.header)
    found = await app_state().services.store.find_run(principal(), run_id)
    if isinstance(found, NoRun) or not found.header.is_stored:
        raise ApiError(404, f"There is no run '{run_id}'.", param="after", code="run_not_found")
    return _cursor(found.header)


def _cursor(header: RunHeader) -> RunCursor:
    return RunCursor(header.stamp.created_at, header.run_id)
