"""Slots: reserved, held, free again exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from hermes_trio.core.errors import ApiError
from hermes_trio.core.outcome import Reason
from hermes_trio.core.records import RunHeader, Stamp
from hermes_trio.core.state import InvalidTransition
from hermes_trio.runs.admission import Admission, Slot
from hermes_trio.runs.registry import RunRegistry


def test_all_slots_taken_is_429() -> None:
    admission = Admission(2)
    slots = [admission.admit("ann"), admission.admit("bob")]
    with pytest.raises(ApiError, match="max 2") as caught:
        admission.admit("ann")
    assert (caught.value.status, caught.value.code) == (429, "rate_limit_exceeded")
    assert caught.value.headers == {"Retry-After": "1"}
    slots[0].release()
    admission.admit("ann")


def test_draining_is_503_even_with_free_slots() -> None:
    admission = Admission(0)
    admission.admit("ann")
    admission.is_draining = True
    with pytest.raises(ApiError) as caught:
        admission.admit("ann")
    assert (caught.value.status, caught.value.code) == (503, "gateway_draining")


def test_no_limit_is_no_limit() -> None:
    admission = Admission(0)
    for _ in range(1000):
        admission.admit("ann")
    assert admission.in_use == 1000


def test_a_held_slot_is_not_forfeited() -> None:
    admission = Admission(1)
    slot = admission.admit("ann")
    slot.activate()
    slot.release_unused()
    assert admission.in_use == 1
    slot.release()
    assert admission.in_use == 0


def test_a_slot_is_activated_once() -> None:
    slot = Admission(1).admit("ann")
    slot.activate()
    with pytest.raises(InvalidTransition, match="active"):
        slot.activate()


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.sampled_from([Slot.activate, Slot.release_unused, Slot.release])
        )
    )
)
def test_slots_never_go_wrong(moves: list[tuple[int, object]]) -> None:
    admission = Admission(0)
    slots = [admission.admit("ann") for _ in range(4)]
    for number, move in moves:
        assert callable(move)
        with suppress(InvalidTransition):
            move(slots[number])
        assert 0 <= admission.in_use <= 4
    for slot in slots:
        slot.release()
    assert admission.in_use == 0


def header(run_id: str) -> RunHeader:
    return RunHeader("ann", Stamp(run_id, 0.0, "m"), "chat", "s", ())


class Stopper:
    def __init__(self) -> None:
        self.reasons: list[Reason] = []

    def stop(self, reason: Reason) -> None:
        self.reasons.append(reason)


@contextmanager
def listed(registry: RunRegistry[Stopper], run_id: str, run: Stopper) -> Iterator[None]:
    """The run is live for as long as the block lasts."""
    registry.add(header(run_id), run)
    try:
        yield
    finally:
        registry.remove(header(run_id))


async def test_the_registry_knows_who_is_live() -> None:
    registry: RunRegistry[Stopper] = RunRegistry()
    run = Stopper()
    await registry.wait_empty()
    with listed(registry, "a", run), listed(registry, "b", run):
        assert len(registry) == 2
        assert registry.find("ann", "a") is run
        assert registry.find("bob", "a") is None
        registry.stop_all(Reason.SERVER_SHUTDOWN)
    assert run.reasons == [Reason.SERVER_SHUTDOWN] * 2
    assert len(registry) == 0


async def test_waiting_for_the_last_run() -> None:
    registry: RunRegistry[Stopper] = RunRegistry()
    async with trio.open_nursery() as nursery:
        with listed(registry, "a", Stopper()):
            with listed(registry, "b", Stopper()):
                nursery.start_soon(registry.wait_empty)
                await wait_all_tasks_blocked()
            await wait_all_tasks_blocked()
            assert nursery.child_tasks
    assert not nursery.child_tasks


def test_live_runs_are_found_by_their_session() -> None:
    registry: RunRegistry[Stopper] = RunRegistry()
    run, other = Stopper(), Stopper()
    with listed(registry, "a", run), listed(registry, "b", other):
        session_id = header("a").session_id
        assert registry.in_session(header("a").principal, session_id) == (run, other)
        assert registry.in_session("somebody else", session_id) == ()
        assert registry.in_session(header("a").principal, "elsewhere") == ()
    assert registry.in_session(header("a").principal, session_id) == ()
