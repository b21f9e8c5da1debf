"""Starting a run for a route: once, even when the client asks again.

With an ``Idempotency-Key`` the first request claims the key for the run it starts. Whoever comes with the same key and
the same body gets that run's answer: live if it still runs, from the log if it has ended. Another body is a conflict.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

import trio
from attrs import evolve, frozen
from quart import request

from hermes_trio.core.errors import ApiError, bad_request
from hermes_trio.core.record import Claim, EndedRun, LiveRun, RunHeader
from hermes_trio.runs.hosting import attached, owned_run
from hermes_trio.runs.log import ChangeReader
from hermes_trio.runs.presence import HEADER, INTERRUPT, DisconnectPolicy, parse_policy
from hermes_trio.runs.replay import StoredReader, load_changes
from hermes_trio.runs.run import Run
from hermes_trio.runs.spec import Persistence, RunSpec
from hermes_trio.stores.contract import StoreError
from hermes_trio.web.asked import header, principal, visit
from hermes_trio.web.options import Site
from hermes_trio.web.sse import Start
from hermes_trio.web.visit import Visit

KEY_HEADER = "Idempotency-Key"
_KEY = KEY_HEADER.lower()
NOT_FOUND = "response_not_found"
MAX_KEY = 256
PATIENCE = 10.0  # for a run that was claimed by another request a moment ago

MakeOrder = Callable[[str], Awaitable[RunSpec]]  # from the id of the run


@frozen
class Started:
    """A run that a request may listen to from its beginning."""

    header: RunHeader
    open: Start
    is_replay: bool = False

    def headers(self) -> dict[str, str]:
        """What tells a client that it is not the first."""
        return {"Idempotency-Replayed": "true"} if self.is_replay else {}


def admitted_first(site: Site) -> None:
    """Refuse a run while the server is full or drains, before the body is even read.

    A request with a key waits until it is known to be the first: a repeated one needs no slot and is not refused.

    Raises:
        ApiError: 429 or 503.
    """
    current = visit()
    if not _key_of(current):
        current.slot(site.admission)


def _key_of(visit: Visit) -> str:
    """What the client calls its request, to ask for it once; "" if nothing."""
    return visit.headers.get(_KEY, "").strip()


def policy(site: Site) -> DisconnectPolicy:
    """What a disconnect does: as the request says, else as the server is set.

    Raises:
        ApiError: 400.
    """
    asked = header(HEADER)
    return parse_policy(asked) if asked else site.options.on_disconnect


async def start(site: Site, run_id: str, raw: bytes, make_order: MakeOrder) -> Started:
    """Start the run that a request asks for, or find the one that it asked for before.

    Raises:
        ApiError: 409 if the key was used with another body; whatever making the order refuses.
        StoreError: the store does not take the run.
    """
    key = _key_of(visit())
    if not key:
        return await _begin(site, await make_order(run_id))
    claim = _claim(key, raw, run_id, site.services.wall_clock())
    first = await site.services.store.claim(claim)
    if first.run_id != claim.run_id:
        return await _again(site, claim, first)
    try:
        return await _begin(site, evolve(await make_order(run_id), keep=Persistence.FULL))
    except BaseException:
        await _take_back(site, claim)  # noqa: ASYNC102 - it shields itself, for a while
        raise


async def _take_back(site: Site, claim: Claim) -> None:
    """The request was refused, or its client left, before there was a run: the key is as good as new."""
    with trio.move_on_after(PATIENCE, shield=True), suppress(StoreError):
        await site.services.store.unclaim(claim)


def _claim(key: str, raw: bytes, run_id: str, now: float) -> Claim:
    if len(key) > MAX_KEY:
        raise bad_request(f"'{KEY_HEADER}' may have at most {MAX_KEY} characters.", KEY_HEADER)
    fingerprint = hashlib.sha256(raw).hexdigest()
    return Claim(principal(), request.path, key, fingerprint, run_id, now)


async def _begin(site: Site, order: RunSpec) -> Started:
    if order.keep is not Persistence.FULL:
        return Started(order.header, partial(owned_run, site.services, order))
    run, ticket = await site.hosting.start(order)
    visit().when_over(ticket.give_back)
    return Started(
        order.header, partial(attached, run, ticket, applies_backpressure=order.policy == INTERRUPT)
    )


async def _again(site: Site, claim: Claim, first: Claim) -> Started:
    if first.fingerprint != claim.fingerprint:
        message = f"This {KEY_HEADER} was used with another body."
        raise ApiError(409, message, param=KEY_HEADER, code="idempotency_key_conflict")
    return evolve(await _first_run(site, first.run_id), is_replay=True)


async def _first_run(site: Site, run_id: str) -> Started:
    """The run that the first request started, or is about to start.

    Raises:
        ApiError: 409 if it did not start one after all. Then the key is free again, or will be at the next try.
    """
    if (found := await _found(site, run_id)) is not None:
        return found
    with trio.move_on_after(PATIENCE):
        return await _attached(await site.services.registry.wait_listed(principal(), run_id))
    if (found := await _found(site, run_id)) is not None:  # it came and went while nobody looked
        return found
    message = f"The first request with this {KEY_HEADER} began no run. Try again."
    raise ApiError(409, message, param=KEY_HEADER, code="idempotency_key_pending")


async def _found(site: Site, run_id: str) -> Started | None:
    try:
        return await find(site, run_id)
    except ApiError as error:
        if error.code == NOT_FOUND:
            return None
        raise


async def find(site: Site, run_id: str) -> Started:
    """A run of the asking principal, live or ended, to be listened to from its beginning.

    Raises:
        ApiError: 404 if there is none, or its log is not there any more; 409 if another process runs it.
    """
    who, registry = principal(), site.services.registry
    if (run := registry.find(who, run_id)) is not None and run.is_kept:
        return await _attached(run)
    match await site.services.store.find_run(who, run_id):
        case EndedRun(header):
            await _check_log(site, run_id)
            return Started(header, partial(_stored, site, who, run_id))
        case LiveRun():
            return await _begun_meanwhile(registry.find(who, run_id))
        case _:
            raise not_found(run_id)


async def _begun_meanwhile(run: Run | None) -> Started:
    if run is None:
        raise ApiError(409, "The run is not within reach of this server.", code="run_not_here")
    return await _attached(run)


async def _attached(run: Run) -> Started:
    await run.wait_begun()
    ticket = run.presence.join()
    visit().when_over(ticket.give_back)
    return Started(run.header, partial(attached, run, ticket))


async def _check_log(site: Site, run_id: str) -> None:
    if not await load_changes(site.services.store, principal(), run_id, 0):
        raise events_expired()


def events_expired() -> ApiError:
    """The run is there, and what happened in it cannot be told from the beginning any more."""
    return ApiError(404, "The events of this run are not kept any longer.", code="events_expired")


@asynccontextmanager
async def _stored(site: Site, who: str, run_id: str) -> AsyncIterator[ChangeReader]:
    yield StoredReader(site.services.store, who, run_id)


def not_found(run_id: str) -> ApiError:
    """There is no such response, or it is somebody else's."""
    return ApiError(404, f"There is no response '{run_id}'.", param="response_id", code=NOT_FOUND)
