"""The Runs API: start a run, let it go on by itself, look at it, follow its events, stop it.

A run is detached from the request that starts it and kept from its beginning, so its events can be followed by anybody
of the same principal, from any point on and as often as wanted, until the log is forgotten.

What another API started can be looked at, followed and stopped here too, unless its client asked not to store it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from attrs import evolve
from quart import Response

from hermes_trio.core.changes import Ended
from hermes_trio.core.dialects.runs import FROM_THE_START, RunsStream
from hermes_trio.core.dialects.runs_object import end_status, run_object, standing_of
from hermes_trio.core.errors import ApiError
from hermes_trio.core.lifecycle import RunState
from hermes_trio.core.outcome import Reason
from hermes_trio.core.record import EndedRun, LiveRun, NoRun
from hermes_trio.runs.log import ChangeReader, Subscriber
from hermes_trio.runs.presence import DETACH
from hermes_trio.runs.replay import load_changes
from hermes_trio.runs.run import Run
from hermes_trio.runs.spec import Persistence, RunSpec
from hermes_trio.schema.runs import RunRequest, parse_run
from hermes_trio.web.asked import body, last_event_id, last_seq, principal, visit
from hermes_trio.web.errors import json_response
from hermes_trio.web.ids import random_hex
from hermes_trio.web.options import Site
from hermes_trio.web.past import find_past, new_session, session_of
from hermes_trio.web.places import Session, enter, named
from hermes_trio.web.run_list import is_shown
from hermes_trio.web.sessions import SessionNames
from hermes_trio.web.sse import sse_response
from hermes_trio.web.starting import Started, admitted_first, events_expired, find, start
from hermes_trio.web.turns import header_of, logged, turn_of

ID_PREFIX = "run_"
KIND = "runs"


async def create_run(site: Site) -> Response:
    """Start a run, and answer as soon as the store knows of it."""
    admitted_first(site)
    raw = await body()
    wanted = parse_run(raw)
    names = SessionNames.of(visit())
    run_id = f"{ID_PREFIX}{random_hex(16)}"
    started = await start(site, run_id, raw, partial(_order, site, wanted, names))
    headers = {**names.answer(started.header.session_id), **started.headers()}
    return json_response({"run_id": started.header.run_id, "status": "started"}, 202, headers)


async def _order(site: Site, wanted: RunRequest, names: SessionNames, run_id: str) -> RunSpec:
    slot, asked = visit().slot(site.admission), wanted.asked
    session = await _session(site, wanted, run_id)
    place = await enter(site, session)
    past = await find_past(site, asked, session.session_id)
    past = evolve(past, session_id=wanted.session_id or past.session_id)
    turn = turn_of(site, asked, past, names, run_id)
    header = evolve(header_of(site, KIND, asked, turn, past.parent), background=True)
    return RunSpec(header, turn, slot, place, Persistence.FULL, DETACH, can_ask=True)


async def _session(site: Site, wanted: RunRequest, run_id: str) -> Session:
    """The one that the client names, else that of the run it continues, else one of its own."""
    if wanted.session_id:
        return named(wanted.session_id, "session_id")
    is_chained = wanted.asked.previous_response_id and not wanted.asked.explicit_history
    return await session_of(site, wanted.asked) if is_chained else new_session(run_id)


async def get_run(site: Site, run_id: str) -> Response:
    """A run as it stands."""
    run = _running(site, run_id)
    if run is None:
        return json_response(await _as_logged(site, run_id))
    # Now: it must not be newer than what the store says.
    latest, standing = run.log.recent(), run.standing
    return json_response(run_object(await _find(site, run_id), latest, standing))


async def _as_logged(site: Site, run_id: str) -> dict[str, Any]:
    """A run that has ended, or is none of this process."""
    found = await _find(site, run_id)
    changes = await logged(site, run_id) if isinstance(found, LiveRun) else []
    return run_object(found, changes, standing_of(changes))


async def run_events(site: Site, run_id: str) -> Response:
    """The events of a run, live or ended, from any point on."""
    header = last_event_id()
    after = last_seq(header, FROM_THE_START)
    found = await _find(site, run_id)
    started = await _listen(site, run_id)
    if header and isinstance(found, EndedRun) and await _is_last(site, run_id, after):
        # A browser comes back even after a stream that ended well; only this tells it that it need not.
        return Response(b"", 204)
    return sse_response(site, started.open, RunsStream(started.header, after), {})


async def _is_last(site: Site, run_id: str, seq: int) -> bool:
    """Whether an event tells the end. After ``run.started``, event N + 1 tells of change number N."""
    changes = await load_changes(site.services.store, principal(), run_id, seq - 1) if seq > 0 else ()
    return bool(changes) and isinstance(changes[0], Ended)


async def stop_run(site: Site, run_id: str) -> Response:
    """Ask a run to stop; one that has ended stays as it is."""
    run = _running(site, run_id)  # before the store is asked: a run leaves only when its end is there
    found = await _find(site, run_id)
    if isinstance(found, EndedRun):
        return json_response({"run_id": run_id, "status": end_status(found.outcome)})
    if run is None:
        raise ApiError(409, "The run is not within reach of this server.", code="run_not_here")
    run.stop(Reason.STOP_REQUESTED)
    return json_response({"run_id": run_id, "status": RunState.STOPPING})


async def _find(site: Site, run_id: str) -> LiveRun | EndedRun:
    """A run as the store has it; of one that the store is to know only at its end, as the registry has it."""
    run = _running(site, run_id)
    if run is not None and is_shown(run) and not run.is_kept:
        return LiveRun(run.header)
    found = await site.services.store.find_run(principal(), run_id)
    if isinstance(found, NoRun) or not found.header.is_stored:
        raise ApiError(404, f"There is no run '{run_id}'.", param="run_id", code="run_not_found")
    return found


def _running(site: Site, run_id: str) -> Run | None:
    return site.services.registry.find(principal(), run_id)


async def _listen(site: Site, run_id: str) -> Started:
    """A run to be listened to from its beginning; a live one that is not kept, only if its beginning is still there."""
    run = _running(site, run_id)
    if run is None or run.is_kept or not is_shown(run):
        return await find(site, run_id)
    if run.log.base > 0:
        raise events_expired()
    reader = run.log.subscribe()  # now: a moment later its beginning may be gone
    visit().when_over(reader.close)
    return Started(run.header, partial(_overheard, reader))


@asynccontextmanager
async def _overheard(reader: Subscriber) -> AsyncIterator[ChangeReader]:
    yield reader
