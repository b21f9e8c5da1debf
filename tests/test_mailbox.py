"""A request on its way to its application: whole or in parts, with a client that stays or leaves."""

from __future__ import annotations

from typing import Any

import trio
import trio.testing

from hermes_trio.mailbox import Mailbox

GONE = {"type": "http.disconnect"}


def part(body: bytes, more: bool = False) -> dict[str, Any]:
    """A piece of a request's body."""
    return {"type": "http.request", "body": body, "more_body": more}


async def test_what_is_put_is_received_in_order() -> None:
    box = Mailbox(3)
    for message in (part(b"a", more=True), part(b"b"), GONE):
        await box.put(message)
    assert [await box.receive() for _ in range(3)] == [part(b"a", more=True), part(b"b"), GONE]


async def test_who_puts_waits_for_room(nursery: trio.Nursery) -> None:
    box = Mailbox(1)
    await box.put(part(b"a", more=True))
    nursery.start_soon(box.put, part(b"b"))
    await trio.testing.wait_all_tasks_blocked()
    assert not box.has_all
    assert await box.receive() == part(b"a", more=True)
    assert await box.receive() == part(b"b")


async def test_who_receives_waits_for_a_message(nursery: trio.Nursery) -> None:
    box = Mailbox(1)
    heard: list[Any] = []

    async def listen() -> None:
        heard.append(await box.receive())

    nursery.start_soon(listen)
    await trio.testing.wait_all_tasks_blocked()
    await box.put(part(b"a"))
    await trio.testing.wait_all_tasks_blocked()
    assert heard == [part(b"a")]


async def test_a_cancelled_receive_takes_nothing() -> None:
    box = Mailbox(1)
    await box.put(part(b"a"))
    with trio.CancelScope() as scope:
        scope.cancel()
        await box.receive()
    assert box.take_all() == b"a"


async def test_a_whole_request_is_taken_at_once() -> None:
    box = Mailbox(3)
    assert not box.has_all
    await box.put(part(b"a", more=True))
    assert not box.has_all
    await box.put(part(b"b"))
    await box.settled()
    assert (box.has_all, box.take_all(), box.has_all) == (True, b"ab", False)


async def test_it_settles_when_it_is_full_or_the_client_has_left() -> None:
    full, left = Mailbox(1), Mailbox(3)
    await full.put(part(b"a", more=True))
    await left.put(GONE)
    for box in (full, left):
        await box.settled()
        assert not box.has_all


async def test_whoever_wants_to_know_is_called_when_the_client_leaves() -> None:
    box = Mailbox(1)
    await box.put(part(b"a", more=True))  # full: the news needs no room
    with trio.CancelScope() as scope:
        box.when_gone = scope.cancel
        await box.put(GONE)
        await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_the_news_is_kept_for_those_who_receive() -> None:
    box = Mailbox(1)
    await box.put(GONE)
    assert await box.receive() == GONE
