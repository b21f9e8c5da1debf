"""``POST /v1/responses``, and everything that can be done with a response afterwards."""

from __future__ import annotations

from functools import partial
from typing import Any

from quart import Response, request

from hermes_trio.core.changes import Change
from hermes_trio.core.dialects.responses import ResponsesStream
from hermes_trio.core.dialects.responses_batch import ResponsesCollector
from hermes_trio.core.dialects.responses_object import response_object
from hermes_trio.core.dialects.responses_output import output_items
from hermes_trio.core.errors import ApiError, bad_request
from hermes_trio.core.outcome import Reason
from hermes_trio.core.record import EndedRun, LiveRun, NoRun, RunHeader
from hermes_trio.runs.presence import DETACH, DisconnectPolicy
from hermes_trio.runs.replay import load_changes
from hermes_trio.runs.spec import Items, Persistence, RunSpec
from hermes_trio.schema.conversations import item_list
from hermes_trio.schema.fields import SESSION_ID_HEADER
from hermes_trio.schema.responses import ResponsesRequest, parse_responses
from hermes_trio.web.asked import body, is_on, principal, visit, whole_number
from hermes_trio.web.errors import json_response
from hermes_trio.web.ids import random_hex
from hermes_trio.web.options import Site
from hermes_trio.web.past import find_past, session_of
from hermes_trio.web.places import enter
from hermes_trio.web.sessions import SessionNames
from hermes_trio.web.sse import collect, sse_response
from hermes_trio.web.starting import Started, admitted_first, find, not_found, policy, start
from hermes_trio.web.turns import header_of, turn_of

ID_PREFIX = "resp_"
KIND = "responses"
ENOUGH = 2**53


async def create_response(site: Site) -> Response:
    """Run one turn: streamed, in one piece, or in the background."""
    admitted_first(site)
    raw = await body()
    asked = parse_responses(raw)
    names = SessionNames.of(visit())
    on_disconnect = DETACH if asked.background else policy(site)
    run_id = f"{ID_PREFIX}{random_hex(14)}"
    started = await start(site, run_id, raw, partial(_order, site, asked, names, on_disconnect))
    headers = {**names.answer(started.header.session_id), **started.headers()}
    if asked.stream:
        return sse_response(site, started.open, ResponsesStream(started.header), headers)
    if asked.background:
        return json_response(await _shown(site, started.header.run_id), 200, headers)
    return await _whole(started, headers)


async def _order(
    site: Site, asked: ResponsesRequest, names: SessionNames, on_disconnect: DisconnectPolicy, run_id: str
) -> RunSpec:
    slot = visit().slot(site.admission)
    session = await session_of(site, asked)
    # What is not stored adds nothing to its session, so it need not wait for others either.
    place = await enter(site, session) if asked.store else None
    past = await find_past(site, asked, session.session_id)
    turn = turn_of(site, asked, past, names, run_id)
    header = header_of(site, KIND, asked, turn, past.parent)
    keep = Persistence.FULL if asked.store else Persistence.NONE
    can_ask = asked.stream or asked.background
    return RunSpec(header, turn, slot, place, keep, on_disconnect, can_ask, to_items)


def to_items(ended: EndedRun) -> Items:
    """What a conversation gains by a turn: the input, and everything the agent did."""
    if not ended.header.conversation or not ended.header.is_stored:
        return ()
    return (*ended.header.input_items, *output_items(ended.header.run_id, ended.items, ended.outcome))


async def _whole(started: Started, headers: dict[str, str]) -> Response:
    collector = ResponsesCollector(started.header)
    async with started.open() as changes:
        await collect(changes, collector.take)
    if collector.outcome.session_id:
        headers = {**headers, SESSION_ID_HEADER: collector.outcome.session_id}
    reply = collector.reply()
    return json_response(reply.body, 200, {**headers, **reply.headers})


async def get_response(site: Site, response_id: str) -> Response:
    """A response as it stands, or its events from any point on."""
    if not is_on("stream"):
        return json_response(await _shown(site, response_id))
    after = whole_number("starting_after", -1, -1, ENOUGH)
    found = await find(site, response_id)
    if not _is_shown(found.header):
        raise not_found(response_id)
    return sse_response(site, found.open, ResponsesStream(found.header, after), {})


def _is_shown(header: RunHeader) -> bool:
    return header.kind == KIND and header.is_stored


async def _find(site: Site, response_id: str) -> LiveRun | EndedRun:
    found = await site.services.store.find_run(principal(), response_id)
    if isinstance(found, NoRun) or not _is_shown(found.header):
        raise not_found(response_id)
    return found


async def _shown(site: Site, response_id: str) -> dict[str, Any]:
    found = await _find(site, response_id)
    if isinstance(found, EndedRun):
        return response_object(found.header, found.items, found.outcome, found.ended_after)
    collector = ResponsesCollector(found.header)
    collector.take(await _so_far(site, response_id))
    return collector.snapshot()


async def _so_far(site: Site, response_id: str) -> list[Change]:
    """The changes of a run in progress: the oldest from the store if need be, the others from memory."""
    run = site.services.registry.find(principal(), response_id)
    changes: list[Change] = []
    while run is None or len(changes) < run.log.base:
        more = await load_changes(site.services.store, principal(), response_id, len(changes))
        if not more:
            return changes
        changes += more
    return [*changes, *run.log.read(len(changes))]


async def delete_response(site: Site, response_id: str) -> Response:
    """Forget a response; one that still runs is stopped first."""
    await _find(site, response_id)
    await _stop(site, response_id)
    if not await site.services.store.delete_run(principal(), response_id):
        raise not_found(response_id)
    return json_response({"id": response_id, "object": "response", "deleted": True})


async def cancel_response(site: Site, response_id: str) -> Response:
    """Stop a response that runs; one that ran in the background may be cancelled again and again."""
    found = await _find(site, response_id)
    if isinstance(found, EndedRun) and not found.header.background:
        raise bad_request("Only a response that is running can be cancelled.", "response_id", "not_running")
    await _stop(site, response_id)
    return json_response(await _shown(site, response_id))


async def _stop(site: Site, response_id: str) -> None:
    """Returns when the run has ended, if it is live; the run itself bounds how long that takes."""
    run = site.services.registry.find(principal(), response_id)
    if run is not None:
        run.stop(Reason.STOP_REQUESTED)
        await run.ended.wait()


async def input_items(site: Site, response_id: str) -> Response:
    """The input of a response, page by page."""
    found = await _find(site, response_id)
    limit = whole_number("limit", 20, 1, 100)
    items = list(found.header.input_items)
    if _order_of_list() == "desc":
        items.reverse()
    rest = _after(items, request.args.get("after", ""))
    return json_response(item_list(rest[:limit], len(rest) > limit))


def _order_of_list() -> str:
    order = request.args.get("order", "desc")
    if order not in {"asc", "desc"}:
        raise bad_request("'order' must be 'asc' or 'desc'.", "order")
    return order


def _after(items: list[Any], item_id: str) -> list[Any]:
    if not item_id:
        return items
    places = [n for n, item in enumerate(items) if item["id"] == item_id]
    if not places:
        raise ApiError(404, f"There is no item '{item_id}'.", param="after", code="item_not_found")
    return items[places[0] + 1 :]
