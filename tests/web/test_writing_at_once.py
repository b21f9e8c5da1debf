"""A stream whose client waits is written in the task of whoever says something."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.changes import Change, Ended, TextAdded
from hermes_trio.core.outcome import Reason, of_cut
from hermes_trio.core.wire import KEEPALIVE
from hermes_trio.pulse import Pulse
from hermes_trio.runs.log import Changes, Reader, RunLog
from hermes_trio.web.stream_body import StreamBody

END = Ended(of_cut(Reason.SERVER_ERROR))


class Letters:
    """A dialect that shows the text and a dot at the end; of some text it says nothing, of some it cannot."""

    def opening(self) -> bytes:
        return b">"

    def render(self, changes: Changes) -> bytes:
        return b"".join(map(self._one, changes))

    def _one(self, change: Change) -> bytes:
        if not isinstance(change, TextAdded):
            return b"."
        if change.text == "broken":
            raise ValueError(change.text)
        return b"" if change.text == "silent" else change.text.encode()


class Socket:
    """Takes so many bytes at once; what is left goes out with the next part."""

    def __init__(self, at_once: int = 1_000) -> None:
        self._at_once, self._held = at_once, b""
        self.out = b""

    def send_now(self, data: bytes) -> bool:
        data = self._held + data
        self.out, self._held = self.out + data[: self._at_once], data[self._at_once :]
        return not self._held

    async def send_part(self, data: bytes) -> None:
        self.out, self._held = self.out + self._held + data, b""
        await trio.lowlevel.checkpoint()


class Scene:
    """A stream, its log, and what its own task does."""

    def __init__(self, socket: Socket) -> None:
        self.socket, self.log = socket, RunLog()
        self.pulse = Pulse(10)
        self.body = StreamBody(self._start, Letters(), self.pulse)
        self.own: list[bytes] = []
        self.failed: Exception | None = None

    @asynccontextmanager
    async def _start(self) -> AsyncIterator[Reader]:
        with self.log.subscribe(holds_back=True) as reader:
            yield reader

    def say(self, *texts: str) -> None:
        self.log.append(tuple(TextAdded(0, text) for text in texts))

    async def serve(self) -> None:
        try:
            async with self.body as frames:
                self.body.write_with(self.socket.send_now)
                async for data in frames:
                    self.own.append(data)
                    await self.socket.send_part(data)
        except ValueError as error:
            self.failed = error


@asynccontextmanager
async def at_work(socket: Socket) -> AsyncIterator[Scene]:
    scene = Scene(socket)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.serve)
        nursery.start_soon(scene.pulse.run)
        await wait_all_tasks_blocked()
        yield scene
        scene.log.append((END,))
        scene.log.close()
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


async def test_what_is_said_goes_out_at_once_and_the_end_in_the_streams_own_task() -> None:
    async with at_work(Socket()) as scene:
        scene.say("a")
        scene.say("b", "c")
        scene.say("silent")
        assert scene.socket.out == b">abc"
        await wait_all_tasks_blocked()
        assert scene.own == [b">"]
    assert scene.own == [b">", b"."]
    assert scene.socket.out == b">abc."


@pytest.mark.parametrize("at_once", range(6))
async def test_what_the_kernel_does_not_take_is_sent_first(at_once: int) -> None:
    async with at_work(Socket(at_once)) as scene:
        scene.say("hello")
        scene.say("world")  # the stream's own task has to see to the rest before
        await wait_all_tasks_blocked()
        scene.say("!")
        await wait_all_tasks_blocked()
    assert scene.socket.out == b">helloworld!."


async def test_a_mistake_of_ours_is_the_streams_and_not_the_speakers() -> None:
    async with at_work(Socket()) as scene:
        scene.say("a")
        scene.say("broken")
        await wait_all_tasks_blocked()
    assert scene.socket.out == b">a"
    assert str(scene.failed) == "broken"


async def test_what_is_said_at_once_counts_for_the_pulse(autojump_clock: MockClock) -> None:
    async with at_work(Socket()) as scene:
        for _ in range(4):
            await trio.sleep(6)
            scene.say("a")
            scene.say("silent")
        assert scene.socket.out == b">aaaa"
        await trio.sleep(11)
        assert scene.socket.out == b">aaaa" + KEEPALIVE
    assert scene.socket.out.endswith(b".")
