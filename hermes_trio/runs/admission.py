"""Admission control: limits on runs, requests and their bodies, and one turn at a time per session.

All limits are shared fairly by the principals of a server.

A slot is reserved while the response can still be refused with a status, activated by the run, and
released only when nothing of the agent is left. An abandoned thread therefore still counts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Protocol

import trio
from attrs import frozen

from hermes_trio.core.access import NO_QUOTA, Quota
from hermes_trio.core.errors import RATE_LIMIT, SERVER_ERROR, ApiError
from hermes_trio.core.state import InvalidTransition

RETRY_SOON = {"Retry-After": "1"}
MINUTE = 60.0
LEAD = 3  # how many times what it leaves free a principal may hold


class _SlotState(Enum):
    RESERVED = "reserved"
    ACTIVE = "active"
    RELEASED = "released"


class Slot:
    """Permission for one run, one turn of a session, or one request."""

    def __init__(self, on_release: Callable[[], None]) -> None:
        self._on_release = on_release
        self._state = _SlotState.RESERVED

    def activate(self) -> None:
        """Hand the slot over to a run. From now on only the end of that run releases it.

        Raises:
            InvalidTransition: the slot is active or released.
        """
        if self._state is not _SlotState.RESERVED:
            raise InvalidTransition(f"a slot that is {self._state.value} cannot be activated")
        self._state = _SlotState.ACTIVE

    def release_unused(self) -> None:
        """Release the slot unless a run has activated it. Call it at the end of the request."""
        if self._state is _SlotState.RESERVED:
            self.release()

    @property
    def is_released(self) -> bool:
        """Whether the slot has been released."""
        return self._state is _SlotState.RELEASED

    async def release_and_wait(self) -> None:
        """Release the slot, and return when that counts everywhere."""
        self.release()

    def release(self) -> None:
        """Release the slot. Releasing it twice is harmless."""
        if self._state is not _SlotState.RELEASED:
            self._state = _SlotState.RELEASED
            self._on_release()


class SharedPlaces:
    """A limited number of places that principals share; a limit of 0 means any number.

    Among several principals, the division is fair without knowing who will come. One place is kept
    for each principal that has none, in at most half of all places. Of the rest, a principal may
    hold ``LEAD`` times what it leaves free: three quarters if it is the only one that is busy, and
    when several take all they can get, they converge on equal parts. (Switches divide their buffers
    this way: Choudhury and Hahne, "Dynamic Queue Length Thresholds", 1998.) A principal that is
    alone may take everything.
    """

    def __init__(self, limit: int, principals: int = 1) -> None:
        self.limit = limit
        self.principals = principals
        self._held: Counter[str] = Counter()  # of those that hold any

    @property
    def in_use(self) -> int:
        """How many places are taken."""
        return self._held.total()

    @property
    def is_full(self) -> bool:
        """Whether all places are taken."""
        return 0 < self.limit <= self.in_use

    def held_by(self, principal: str) -> int:
        """Return how many places a principal has."""
        return self._held[principal]

    def has_room_for(
        self, principal: str, quota: int = 0, spare: int = 0, *, count: int = 1
    ) -> bool:
        """Return whether a principal may take another place.

        Args:
            principal: who would take it.
            quota: how many places this principal may have, in place of a fair share.
            spare: how many more than that, for what must not fail because of the rest.
            count: how many places it would take.
        """
        held = self._held[principal]
        if self.limit and self.in_use + count > self.limit:
            return False
        if quota:
            return held + count <= quota + spare
        if not held or not self.limit or self.principals < 2:
            return True
        idle = max(0, self.principals - len(self._held))
        left = self.limit - self.in_use - (count - 1) - min(idle, self.limit // 2)
        return left > 0 and held + count <= LEAD * left + spare

    def take(self, principal: str, count: int = 1) -> None:
        """Take places. The caller has made sure that there is room."""
        self._held[principal] += count

    def release(self, principal: str, count: int = 1) -> None:
        """Give places back."""
        self._held[principal] -= count
        if not self._held[principal]:
            del self._held[principal]


@frozen
class RateStatus:
    """The remaining rate of a principal."""

    limit: int  # per minute
    remaining: int  # now, at once
    retry_seconds: float  # until one more is possible; 0 if it is possible now
    reset_seconds: float  # until ``remaining`` is ``limit`` again


class RateLimiter:
    """Limits how often each principal starts something, by the generic cell rate algorithm.

    A whole minute's worth may come at once, and is replaced evenly over the minute after it.
    """

    def __init__(self) -> None:
        self._full_at: dict[str, float] = {}  # when all of a principal's rate is available again

    def status(self, principal: str, per_minute: int, now: float) -> RateStatus:
        """Return the remaining rate of a principal."""
        interval = MINUTE / per_minute
        owed = max(0.0, self._full_at.get(principal, now) - now)
        # Intervals add up with small errors, which must not cost a whole one.
        remaining = int((MINUTE - owed) / interval + 1e-6)
        wait = 0.0 if remaining else owed + interval - MINUTE
        return RateStatus(per_minute, remaining, wait, owed)

    def take(self, principal: str, per_minute: int, now: float) -> None:
        """Count one start. The caller has made sure that one remains."""
        full_at = max(now, self._full_at.get(principal, now))
        self._full_at[principal] = full_at + MINUTE / per_minute

    def give_back(self, principal: str, per_minute: int) -> None:
        """Do not count a start that was counted."""
        self._full_at[principal] -= MINUTE / per_minute


class ClusterLimit(Protocol):
    """A limit that several nodes have together."""

    async def take(self, principal: str) -> Callable[[], None]:
        """Take a slot for a run, and return what gives it back; an ``ApiError`` says that there is none."""
        ...


class Admission:
    """Limits the runs and the open requests of a server, and divides them among its principals.

    Args:
        limit: the maximum number of concurrent runs; 0 means no limit.
        max_requests: the number of open requests that all principals share; 0 means no limit.
        principals: how many there are.
        quota: the limits of a principal whose key has none of its own. Without one, runs and
            requests are shared fairly, and the rate is not limited.
        clock: for rates.

    The methods take the quota of the key that a principal uses. It is compared with what all keys
    of the principal use together.
    """

    def __init__(
        self,
        limit: int,
        max_requests: int = 0,
        principals: int = 1,
        quota: Quota = NO_QUOTA,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        self.is_draining = False
        self.drain_deadline: float | None = None  # when a drain ends, by Trio's clock
        self.cluster: ClusterLimit | None = None
        self._quota = quota
        self._runs = SharedPlaces(limit, principals)
        self._requests = SharedPlaces(max_requests, principals)
        self._rates = RateLimiter()
        self._clock = clock

    @property
    def limit(self) -> int:
        """The maximum number of concurrent runs; 0 means no limit."""
        return self._runs.limit

    @property
    def in_use(self) -> int:
        """How many slots are taken."""
        return self._runs.in_use

    def set_principals(self, principals: int, max_requests: int) -> None:
        """Change the number of principals, and that of the open requests that they share."""
        self._runs.principals = self._requests.principals = principals
        self._requests.limit = max_requests

    def admit(self, principal: str, quota: Quota = NO_QUOTA) -> Slot:
        """Reserve a slot for a run, and count the run towards the rate of the principal.

        Raises:
            ApiError: 503 while the server drains; 429 when all slots or those of the principal are
                taken, or when it has started too many runs in the last minute.
        """
        self.require_free(principal, quota)
        if per_minute := quota.runs_per_minute or self._quota.runs_per_minute:
            self._rates.take(principal, per_minute, self._clock())
        return _take_place(self._runs, principal)

    async def admit_run(self, principal: str, quota: Quota = NO_QUOTA) -> Slot:
        """Do the same as ``admit``, and obey the limit that several nodes have together.

        Raises:
            ApiError: as in ``admit``.
            StoreError: there is such a limit, and the store that counts fails.
        """
        slot = self.admit(principal, quota)
        if self.cluster is None:
            return slot
        try:
            give_back = await self.cluster.take(principal)
        except BaseException:
            slot.release()
            if per_minute := quota.runs_per_minute or self._quota.runs_per_minute:
                self._rates.give_back(principal, per_minute)
            raise

        def release() -> None:
            slot.release()
            give_back()

        return Slot(release)

    def require_free(self, principal: str, quota: Quota = NO_QUOTA) -> None:
        """Refuse a run for which there is no slot now.

        Raises:
            ApiError: as in ``admit``.
        """
        self.require_open()
        if self._runs.is_full:
            raise too_many(f"Too many concurrent runs (max {self.limit}).")
        if not self._runs.has_room_for(principal, quota.runs or self._quota.runs):
            held = self._runs.held_by(principal)
            raise too_many(f"Too many concurrent runs with this API key ({held}).")
        rate = self.rate_status(principal, quota)
        if rate is not None and not rate.remaining:
            message = f"Too many runs with this API key (max {rate.limit} per minute)."
            raise too_many(message, rate.retry_seconds)

    def require_open(self) -> None:
        """Refuse new work while the server drains.

        Raises:
            ApiError: 503 while the server drains.
        """
        if self.is_draining:
            raise ApiError(
                503,
                "The server is shutting down.",
                SERVER_ERROR,
                code="gateway_draining",
                headers=RETRY_SOON,
            )

    def admit_request(self, principal: str, spare: int = 0, quota: Quota = NO_QUOTA) -> Slot:
        """Count an open request, until the slot is released.

        Args:
            principal: who sent it.
            spare: how many more the principal may have open for a request like this one.
            quota: that of its key.

        Raises:
            ApiError: 429 when the principal has too many open.
        """
        if not self._requests.has_room_for(
            principal, quota.requests or self._quota.requests, spare
        ):
            held = self._requests.held_by(principal)
            raise too_many(f"Too many open requests (this API key has {held}).")
        return _take_place(self._requests, principal)

    def rate_status(self, principal: str, quota: Quota = NO_QUOTA) -> RateStatus | None:
        """Return how many runs a principal may start now; None if there is no limit."""
        per_minute = quota.runs_per_minute or self._quota.runs_per_minute
        return self._rates.status(principal, per_minute, self._clock()) if per_minute else None


def _take_place(places: SharedPlaces, principal: str) -> Slot:
    places.take(principal)
    return Slot(lambda: places.release(principal))


def too_many(problem: str, seconds: float = 1.0) -> ApiError:
    """Return the error for work that would exceed a limit, to be tried again after some seconds."""
    headers = {"Retry-After": str(math.ceil(seconds))}
    message = f"{problem} Try again shortly."
    return ApiError(429, message, RATE_LIMIT, code="rate_limit_exceeded", headers=headers)


class BodyClaim:
    """The part of a ``BodyBudget`` that one request body needs."""

    def __init__(self, budget: BodyBudget, principal: str, size: int) -> None:
        self.principal = principal
        self.size = size
        self.budget = budget
        self.granted = trio.Event()

    async def wait(self) -> None:
        """Wait until the body may be received.

        Raises:
            ApiError: 503 when the server, 429 when the principal has had too many other bodies for
                too long.
        """
        await self.budget.wait_granted(self)

    def release(self) -> None:
        """Give the bytes back, or the claim up. Releasing it twice is harmless."""
        self.budget.release(self)


class BodyBudget:
    """Bytes of request bodies that may be received and parsed at the same time; 0 means any number.

    Claims are for whole bodies, so that a body of which a part has been received can always be
    completed. A claim that does not fit waits: senders notice nothing but a slow connection. Of
    those that wait, the principal with the fewest bytes comes first.

    Args:
        limit: the number of bytes. A larger body needs all of them.
        principals: how many share them.
        wait_seconds: how long a claim waits.
        return_memory: called in a thread when the last body has gone.
    """

    def __init__(
        self,
        limit: int,
        principals: int = 1,
        wait_seconds: float = 20.0,
        return_memory: Callable[[], object] | None = None,
    ) -> None:
        self._bytes = SharedPlaces(limit, principals)
        self._wait_seconds = wait_seconds
        self._return_memory = return_memory
        self._waiting: list[BodyClaim] = []
        self._granted: set[BodyClaim] = set()

    @property
    def in_use(self) -> int:
        """The size of the bodies that are being received and parsed."""
        return self._bytes.in_use

    def set_principals(self, principals: int) -> None:
        """Change the number of principals, among whom the bytes are divided from now on."""
        self._bytes.principals = principals

    def claim(self, principal: str, size: int) -> BodyClaim:
        """Ask for the bytes of a body. The caller releases the claim, granted or not."""
        claim = BodyClaim(self, principal, min(size, self._bytes.limit or size))
        self._waiting.append(claim)
        self._grant()
        return claim

    async def wait_granted(self, claim: BodyClaim) -> None:
        """Wait for a claim, see ``BodyClaim.wait``."""
        with trio.move_on_after(self._wait_seconds):
            await claim.granted.wait()
        if claim not in self._granted:
            if self._fits(claim):
                raise too_many("Too many large requests with this API key.")
            message = "Too many large requests at the same time. Try again shortly."
            raise ApiError(503, message, SERVER_ERROR, code="server_overloaded", headers=RETRY_SOON)

    def release(self, claim: BodyClaim) -> None:
        """Release a claim, see ``BodyClaim.release``."""
        if claim in self._granted:
            self._granted.remove(claim)
            self._bytes.release(claim.principal, claim.size)
        elif claim in self._waiting:
            self._waiting.remove(claim)
        self._grant()

    async def return_memory_if_idle(self) -> None:
        """Return free memory to the system, unless more bodies are there or wait."""
        if self._return_memory is not None and not (self._granted or self._waiting):
            with suppress(RuntimeError):  # the process cannot start a thread any more
                await trio.to_thread.run_sync(self._return_memory)

    def _grant(self) -> None:
        while (claim := self._next()) is not None:
            self._waiting.remove(claim)
            self._granted.add(claim)
            self._bytes.take(claim.principal, claim.size)
            claim.granted.set()

    def _next(self) -> BodyClaim | None:
        """Return the claim to grant next, if one can be granted now."""
        for claim in sorted(self._waiting, key=lambda each: self._bytes.held_by(each.principal)):
            if self._bytes.has_room_for(claim.principal, count=claim.size):
                return claim
            if not self._fits(claim):
                return None  # smaller ones that come later must not take its place forever
        return None

    def _fits(self, claim: BodyClaim) -> bool:
        return self._bytes.in_use + claim.size <= self._bytes.limit


class SessionLocks:
    """Allows one turn at a time per session: two at once would both continue the same history.

    A second turn is refused, or waits up to ``wait_seconds``. A lock is passed on to the first
    waiter at the moment of its release, so a newcomer cannot overtake.
    """

    def __init__(self, wait_seconds: float = 0.0) -> None:
        self._wait_seconds = wait_seconds
        self._waiters: dict[
            tuple[str, str], trio.lowlevel.ParkingLot
        ] = {}  # of every locked session

    def acquire_nowait(self, principal: str, session_id: str) -> Slot:
        """Lock a session that is free.

        Raises:
            trio.WouldBlock: another turn is under way.
        """
        key = (principal, session_id)
        if key in self._waiters:
            raise trio.WouldBlock
        self._waiters[key] = trio.lowlevel.ParkingLot()
        return self._slot(key)

    async def acquire(self, principal: str, session_id: str, busy: ApiError) -> Slot:
        """Lock a session, waiting for it if configured to.

        Raises:
            ApiError: ``busy``, if another turn is still under way after ``wait_seconds``.
        """
        try:
            return self.acquire_nowait(principal, session_id)
        except trio.WouldBlock:
            if not self._wait_seconds:
                raise busy from None
        key = (principal, session_id)
        with trio.move_on_after(self._wait_seconds):
            await self._waiters[key].park()
            # Unparking hands the lock over, even if the deadline or the client's leaving came in
            # the same moment.
            return self._slot(key)
        raise busy

    @property
    def locked(self) -> list[tuple[str, str]]:
        """The locked sessions, as pairs of principal and session id."""
        return list(self._waiters)

    def _slot(self, key: tuple[str, str]) -> Slot:
        return Slot(lambda: self._unlock(key))

    def _unlock(self, key: tuple[str, str]) -> None:
        if self._waiters[key]:
            self._waiters[key].unpark()
        else:
            del self._waiters[key]
