"""What happens to a run when nobody listens."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.errors import ApiError
from hermes_trio.runs.disconnects import (
    DETACH,
    INTERRUPT,
    ConnectedClients,
    DisconnectPolicy,
    parse_policy,
)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("interrupt", INTERRUPT),
        (" Detach ", DETACH),
        ("grace:30", DisconnectPolicy(30.0)),
        ("grace:0.5", DisconnectPolicy(0.5)),
    ],
)
def test_policies_are_read(text: str, policy: DisconnectPolicy) -> None:
    assert parse_policy(text) == policy


@pytest.mark.parametrize(
    "text",
    [
        "",
        "never",
        "grace",
        "grace:",
        "grace:-1",
        "grace:nan",
        "grace:1e9",
        "detach:5",
        "grace:99999",
    ],
)
def test_other_policies_are_refused(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_policy(text)
    assert (caught.value.status, caught.value.param) == (400, "X-Hermes-On-Disconnect")


async def test_interrupt_ends_with_the_last_listener() -> None:
    clients = ConnectedClients(INTERRUPT)
    first, second = clients.connect(), clients.connect()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(clients.wait_abandoned)
        first.disconnect()
        first.disconnect()
        await wait_all_tasks_blocked()
        assert nursery.child_tasks
        second.disconnect()


async def test_grace_waits_for_somebody_to_come_back(mock_clock: MockClock) -> None:
    clients = ConnectedClients(DisconnectPolicy(30.0))
    ticket = clients.connect()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(clients.wait_abandoned)
        ticket.disconnect()
        await wait_all_tasks_blocked()
        mock_clock.jump(29.0)
        await wait_all_tasks_blocked()
        again = clients.connect()
        await wait_all_tasks_blocked()
        mock_clock.jump(100.0)
        await wait_all_tasks_blocked()
        assert nursery.child_tasks
        again.disconnect()
        await wait_all_tasks_blocked()
        mock_clock.jump(31.0)


async def test_a_run_that_nobody_joined_is_abandoned_at_once() -> None:
    with trio.fail_after(1):
        await ConnectedClients(INTERRUPT).wait_abandoned()
