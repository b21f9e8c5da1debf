"""The small channel and the small event do what Trio's would."""

from __future__ import annotations

from contextlib import suppress

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from hermes_trio.agent.news import News, Sign


class Likeness:
    """The same of Trio's making."""

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[None](1)

    def tell(self) -> None:
        with suppress(trio.WouldBlock, trio.ClosedResourceError):
            self._send.send_nowait(None)

    def close(self) -> None:
        self._send.close()

    async def receive(self) -> None:
        await self._receive.receive()


class Listener:
    """Takes steps, one letter each, and notes what is heard at each of them."""

    def __init__(self, channel: News | Likeness, nursery: trio.Nursery) -> None:
        self._channel, self._nursery = channel, nursery
        self._scope = trio.CancelScope()
        self._waits = False
        self.heard: list[str] = []

    def r(self) -> None:
        """Receive, unless that is under way."""
        if not self._waits:
            self._waits, self._scope = True, trio.CancelScope()
            self._nursery.start_soon(self._listen)

    def t(self) -> None:
        """Tell."""
        self._channel.tell()

    def x(self) -> None:
        """Close."""
        self._channel.close()

    def c(self) -> None:
        """Cancel a wait that is under way."""
        self._scope.cancel()

    async def _listen(self) -> None:
        with self._scope:
            try:
                await self._channel.receive()
                self.heard.append("news")
            except trio.EndOfChannel:
                self.heard.append("end")
        self._waits = False


async def _heard(channel: News | Likeness, steps: str) -> list[str]:
    async with trio.open_nursery() as nursery:
        listener = Listener(channel, nursery)
        for step in steps:
            getattr(listener, step)()
            await wait_all_tasks_blocked()
            listener.heard.append("|")
        nursery.cancel_scope.cancel()
    return listener.heard


@settings(deadline=None, max_examples=200)
@given(st.text("rtxc", max_size=8))
def test_it_is_like_a_channel(steps: str) -> None:
    async def both() -> None:
        assert await _heard(News(), steps) == await _heard(Likeness(), steps)

    trio.run(both)


async def test_what_is_told_before_the_end_is_heard_before_it() -> None:
    news = News()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(news.receive)
        await wait_all_tasks_blocked()
        news.tell()
        news.close()  # before the listener had its turn
    with pytest.raises(trio.EndOfChannel):
        await news.receive()
    news.tell()
    with pytest.raises(trio.EndOfChannel):
        await news.receive()


async def test_one_listens() -> None:
    news = News()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(news.receive)
        await wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            await news.receive()
        news.tell()


@pytest.mark.parametrize("told", [True, False])
async def test_receiving_is_a_checkpoint(told: bool) -> None:
    news = News()
    if told:
        news.tell()
    with trio.CancelScope() as scope, trio.testing.assert_checkpoints():
        scope.cancel()
        await news.receive()
    assert scope.cancelled_caught
    news.tell()
    with trio.testing.assert_checkpoints():
        await news.receive()  # nothing was taken by the one that was cancelled


async def test_a_sign() -> None:
    sign = Sign()
    assert not sign.is_set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sign.wait)
        nursery.start_soon(sign.wait)
        await wait_all_tasks_blocked()
        assert len(nursery.child_tasks) == 2
        sign.set()
    assert sign.is_set()
    with trio.testing.assert_checkpoints():
        await sign.wait()


async def test_who_beckons_lets_only_those_go_on_who_wait() -> None:
    sign, gone = Sign(), list[str]()

    async def wait(name: str) -> None:
        await sign.wait()
        gone.append(name)

    async with trio.open_nursery() as nursery:
        sign.beckon()  # to nobody
        nursery.start_soon(wait, "first")
        await wait_all_tasks_blocked()
        sign.beckon()
        nursery.start_soon(wait, "second")
        await wait_all_tasks_blocked()
        assert gone == ["first"]
        sign.beckon()
    assert gone == ["first", "second"]
    assert not sign.is_set()
