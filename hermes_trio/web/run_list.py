"""``GET /v1/runs``: the runs of a principal, whatever API started them, page by page.

The store knows the runs that have ended and those that were kept from their beginning; of live ones the registry knows
more: the chat turns that are saved only at their end, and which runs wait or are stopping. A page is made of both.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve, frozen
from quart import Response, request

from hermes_trio.core.changes import Change
from hermes_trio.core.dialects.runs_object import end_object, ends_of, run_object
from hermes_trio.core.errors import ApiError, bad_request
from hermes_trio.core.lifecycle import RunState
from hermes_trio.core.progress import Standing
from hermes_trio.core.record import (
    NEWEST,
    OLDEST,
    LiveRun,
    NoRun,
    RunEnd,
    RunHeader,
    RunPage,
    RunPlace,
    RunQuery,
)
from hermes_trio.runs.run import Run
from hermes_trio.web.asked import principal, whole_number
from hermes_trio.web.errors import json_response
from hermes_trio.web.options import Site

ENDS = frozenset({"completed", "failed", "cancelled"})
LIVE = frozenset({"queued", "running", "waiting_for_approval", "stopping"})
ELSEWHERE = Standing(RunState.RUNNING)  # a live run of which this process knows nothing
RECENT = 64  # changes of a live run; a list may have many, and must not look through all that was ever said
KINDS = frozenset({"chat", "responses", "runs", "sessions"})


@frozen
class Listed:
    """A run to be shown: as the store has it, or live, with what the registry knows of it."""

    run: LiveRun | RunEnd
    standing: Standing = ELSEWHERE  # of a live run
    latest: tuple[Change, ...] = ()

    @property
    def place(self) -> RunPlace:
        """Where it stands in a list."""
        return place_of(self.run.header)

    def shown(self) -> dict[str, Any]:
        """The run object."""
        if isinstance(self.run, RunEnd):
            return end_object(self.run)
        return run_object(self.run, self.latest, self.standing)


@frozen
class Wanted:
    """What a client asked for."""

    query: RunQuery
    statuses: frozenset[str]

    def has(self, listed: Listed) -> bool:
        """Whether a live run belongs into the list."""
        header, query = listed.run.header, self.query
        return (
            listed.standing.state in self.statuses
            and query.session_id in {"", header.session_id}
            and (not query.kinds or header.kind in query.kinds)
            and self.is_after(listed.place, query.after)
        )

    def is_after(self, place: RunPlace, other: RunPlace) -> bool:
        """Whether a place comes after another in the order of the list."""
        return place < other if self.query.newest_first else place > other


def place_of(header: RunHeader) -> RunPlace:
    """Where a run stands in a list."""
    return RunPlace(header.stamp.created_at, header.run_id)


async def list_runs(site: Site) -> Response:
    """The runs of whoever asks, newest first unless asked otherwise."""
    wanted = await _wanted(site)
    # The registry first: a run that ends between the two looks is then found in both, not in neither.
    live = {run.header.run_id: _live(run) for run in site.services.registry.of(principal()) if is_shown(run)}
    # So many that enough are left when those are taken out of which the registry knows more.
    asked = evolve(wanted.query, limit=wanted.query.limit + len(live))
    page = await site.services.store.list_runs(principal(), asked)
    found = _merged(wanted, live, page)
    shown = [listed.shown() for listed in found[: wanted.query.limit]]
    return json_response(_list(shown, page.has_more or len(found) > len(shown)))


def _list(shown: list[dict[str, Any]], has_more: bool) -> dict[str, Any]:
    ids = [run["run_id"] for run in shown] or [None]
    return {"object": "list", "data": shown, "first_id": ids[0], "last_id": ids[-1], "has_more": has_more}


def is_shown(run: Run) -> bool:
    """Whether a live run is the registry's to tell of.

    One that has ended is the store's, and one that the store is yet to hear of is not told of at all.
    """
    return run.has_begun and run.header.is_stored and not run.log.is_closed


def _live(run: Run) -> Listed:
    return Listed(LiveRun(run.header), run.standing, run.log.recent(RECENT))


def _merged(wanted: Wanted, live: dict[str, Listed], page: RunPage) -> list[Listed]:
    """What the store has and what is live, each run once, in order."""
    stored = [Listed(run) for run in page.runs if isinstance(run, RunEnd) or run.header.run_id not in live]
    ended = {listed.place for listed in stored}
    found = [listed for listed in live.values() if listed.place not in ended and wanted.has(listed)]
    if page.has_more:  # what lies behind the page is for the next one
        end = place_of(page.runs[-1].header)
        found = [listed for listed in found if not wanted.is_after(listed.place, end)]
    return sorted([*stored, *found], key=lambda listed: listed.place, reverse=wanted.query.newest_first)


async def _wanted(site: Site) -> Wanted:
    newest_first = "asc" not in _words("order", frozenset({"asc", "desc"}))
    statuses = _words("status", LIVE | ENDS) or LIVE | ENDS
    query = RunQuery(
        after=await _after(site, newest_first),
        limit=whole_number("limit", 20, 1, 100),
        newest_first=newest_first,
        live=ELSEWHERE.state in statuses,
        ends=ends_of(statuses),
        kinds=_words("kind", KINDS),
        session_id=request.args.get("session_id", ""),
    )
    return Wanted(query, statuses)


def _words(name: str, known: frozenset[str]) -> frozenset[str]:
    """Some of the known words, with commas between them; none if the parameter is not there."""
    words = frozenset(word.strip() for word in request.args.get(name, "").split(",")) - {""}
    if not words <= known:
        raise bad_request(f"'{name}' must be one of {', '.join(sorted(known))}.", name)
    return words


async def _after(site: Site, newest_first: bool) -> RunPlace:
    run_id = request.args.get("after", "")
    if not run_id:
        return NEWEST if newest_first else OLDEST
    live = site.services.registry.find(principal(), run_id)
    found = (
        live
        if live is not None and is_shown(live)
        else await site.services.store.find_run(principal(), run_id)
    )
    if isinstance(found, NoRun) or not found.header.is_stored:
        raise ApiError(404, f"There is no run '{run_id}'.", param="after", code="run_not_found")
    return place_of(found.header)
