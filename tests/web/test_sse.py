"""The SSE writer: frames by the channel and written through, keep-alive comments, and how a stream ends."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock, wait_all_tasks_blocked

from hermes_trio.core.changes import Change, Ended, TextAdded
from hermes_trio.core.dialects.wire import KEEPALIVE
from hermes_trio.core.outcome import Outcome, Reason
from hermes_trio.runs.log import MAX_INLINE_CHARS, Changes, RunLog, Subscriber
from hermes_trio.runs.spec import RunStats
from hermes_trio.web.request import MAX_INLINE_BYTES
from hermes_trio.web.sse import MAX_PIECE_BYTES, StreamBody, StreamTruncated

END = Ended(Outcome.from_cancellation(Reason.SERVER_ERROR))


class Letters:
    """A dialect that shows the text, and a dot at the end.

    Of some text it shows nothing, on some it fails.
    """

    end_thread: threading.Thread | None = None  # in which the end was rendered
    long_text_thread: threading.Thread | None = None

    def opening(self) -> bytes:
        return b">"

    def render(self, changes: Changes) -> bytes:
        return b"".join(map(self._one, changes))

    def _one(self, change: Change) -> bytes:
        if not isinstance(change, TextAdded):
            self.end_thread = threading.current_thread()
            return b"."
        if len(change.text) > MAX_INLINE_CHARS:
            self.long_text_thread = threading.current_thread()
        if change.text == "broken":
            raise ValueError(change.text)
        return b"" if change.text == "silent" else change.text.encode()


class Connection:
    """The server's side: takes at most ``capacity`` bytes at a time without waiting."""

    def __init__(self, capacity: int = 1_000) -> None:
        self._capacity = capacity
        self._partial = b""  # of which the first bytes were written
        self._written = 0
        self.out = b""

    def try_send(self, data: bytes) -> bool:
        assert not self._partial, "the rest must be sent first"
        self.out += data[: self._capacity]
        if len(data) <= self._capacity:
            return True
        self._partial, self._written = data, self._capacity
        return False

    async def send(self, data: bytes) -> None:
        assert not self._partial or data == self._partial, "the same bytes, and nothing else"
        self.out += data[self._written :]
        self._partial, self._written = b"", 0
        await trio.lowlevel.checkpoint()


class Stream:
    """A streaming response, its log, and what its task has sent."""

    def __init__(self, connection: Connection, with_write_through: bool) -> None:
        self.connection, self.log = connection, RunLog()
        try_send = connection.try_send if with_write_through else None
        self.dialect = Letters()
        self.body = StreamBody(self._start, self.dialect, RunStats(), 10.0, try_send)
        self.sent: list[bytes] = []
        self.failed: Exception | None = None
        self.over = trio.Event()

    @asynccontextmanager
    async def _start(self) -> AsyncIterator[Subscriber]:
        with self.log.subscribe(applies_backpressure=True) as subscriber:
            yield subscriber

    def append(self, *texts: str) -> None:
        self.log.append(tuple(TextAdded(0, text) for text in texts))

    def end(self) -> None:
        self.log.append((END,))
        self.log.close()

    async def serve(self) -> None:
        try:
            async with self.body as frames:
                async for data in frames:
                    self.sent.append(data)
                    await self.connection.send(data)
        except (ValueError, StreamTruncated) as error:
            self.failed = error
        finally:
            self.over.set()


@asynccontextmanager
async def open_stream(
    connection: Connection, with_write_through: bool = True
) -> AsyncIterator[Stream]:
    stream = Stream(connection, with_write_through)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.serve)
        await wait_all_tasks_blocked()
        yield stream
        await wait_all_tasks_blocked()
        assert not nursery.child_tasks
        nursery.cancel_scope.cancel()


async def test_appended_text_is_written_through_and_the_end_is_sent_by_the_writer() -> None:
    async with open_stream(Connection()) as stream:
        stream.append("a")
        stream.append("b", "c")
        stream.append("silent")
        assert stream.connection.out == b">abc"
        await wait_all_tasks_blocked()
        assert stream.sent == [b">"]
        stream.end()
    assert stream.sent == [b">", b"."]
    assert stream.connection.out == b">abc."


async def test_without_the_extension_the_writer_sends_everything_that_is_pending_in_one_piece() -> (
    None
):
    async with open_stream(Connection(), with_write_through=False) as stream:
        stream.append("a")
        stream.append("b", "c")
        assert stream.connection.out == b">"
        await wait_all_tasks_blocked()
        assert stream.sent == [b">", b"abc"]
        stream.end()
    assert stream.connection.out == b">abc."


@pytest.mark.parametrize("with_write_through", [False, True])
@pytest.mark.parametrize("size", [1, MAX_INLINE_BYTES + 1])
async def test_the_end_of_a_long_answer_is_rendered_in_a_thread(
    size: int, with_write_through: bool
) -> None:
    connection = Connection(capacity=2 * size)
    stream = Stream(connection, with_write_through)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.serve)
        await wait_all_tasks_blocked()
        stream.append("a" * size)
        await wait_all_tasks_blocked()
        stream.end()
    assert connection.out == b">" + b"a" * size + b"."
    is_in_loop = stream.dialect.end_thread is threading.current_thread()
    assert is_in_loop == (size <= MAX_INLINE_BYTES)


@pytest.mark.parametrize("with_write_through", [False, True])
async def test_a_long_text_is_rendered_in_a_thread_and_sent_in_pieces(
    with_write_through: bool,
) -> None:
    size = 2 * MAX_PIECE_BYTES + 1
    stream = Stream(Connection(capacity=size), with_write_through)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.serve)
        await wait_all_tasks_blocked()
        stream.append("a" * size)
        stream.append("b")  # behind it, though it could be written through
        with trio.fail_after(10):
            while not stream.connection.out.endswith(b"b"):
                await trio.lowlevel.checkpoint()
        stream.append("c")
        stream.end()
    assert stream.connection.out == b">" + b"a" * size + b"bc."
    assert max(map(len, stream.sent)) == MAX_PIECE_BYTES
    assert stream.dialect.long_text_thread not in (None, threading.current_thread())


@pytest.mark.parametrize("capacity", range(6))
async def test_what_the_connection_does_not_take_is_sent_next_and_alone(capacity: int) -> None:
    async with open_stream(Connection(capacity)) as stream:
        stream.append("hello")
        stream.append("world")
        await wait_all_tasks_blocked()
        stream.append("!")
        await wait_all_tasks_blocked()
        stream.end()
    assert stream.connection.out == b">helloworld!."


class BeforeNextStep(trio.abc.Instrument):
    """Calls a function just before the SSE writer runs again."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task.name.endswith("Stream.serve"):
            trio.lowlevel.remove_instrument(self)
            self._callback()


async def test_an_unsent_frame_comes_before_a_comment_that_is_due(mock_clock: MockClock) -> None:
    """The writer is woken by its timer, and before it runs, something is written through in part."""
    async with open_stream(Connection(2)) as stream:
        trio.lowlevel.add_instrument(BeforeNextStep(lambda: stream.append("hello")))
        mock_clock.jump(11)
        await wait_all_tasks_blocked()
        assert stream.connection.out == b">hello"
        mock_clock.jump(11)
        await wait_all_tasks_blocked()
        stream.end()
    assert stream.connection.out == b">hello" + KEEPALIVE + b"."


@pytest.mark.parametrize("before", [b"", b"a" * (MAX_INLINE_BYTES + 1)])
async def test_a_wake_up_that_is_not_needed_any_more_is_nothing(
    before: bytes, mock_clock: MockClock
) -> None:
    """It stays in the channel of a writer that was woken by its timer, and what follows does not fit in there."""

    def append_twice() -> None:
        stream.append("hello")
        stream.append("behind")

    async with open_stream(Connection(2)) as stream:
        if before:
            stream.append(before.decode())
            await wait_all_tasks_blocked()
        trio.lowlevel.add_instrument(BeforeNextStep(append_twice))
        mock_clock.jump(11)
        await wait_all_tasks_blocked()
        assert stream.connection.out == b">" + before + b"hellobehind"
        stream.end()
        await stream.over.wait()  # the end of a long answer is rendered in a thread
    assert stream.connection.out == b">" + before + b"hellobehind."
    assert stream.failed is None


class BrokenConnection(Connection):
    """Fails instead of taking a part of the body."""

    def try_send(self, data: bytes) -> bool:
        raise ValueError(data)


async def test_a_connection_that_fails_fails_the_stream_and_not_the_run() -> None:
    async with open_stream(BrokenConnection()) as stream:
        stream.append("a")
    assert str(stream.failed) == "b'a'"


@pytest.mark.parametrize("with_write_through", [True, False])
async def test_a_dialect_that_fails_fails_the_stream(with_write_through: bool) -> None:
    async with open_stream(Connection(), with_write_through) as stream:
        stream.append("a")
        await wait_all_tasks_blocked()
        stream.append("broken")
    assert stream.connection.out == b">a"
    assert str(stream.failed) == "broken"


@pytest.mark.parametrize("with_write_through", [True, False])
async def test_silence_is_filled_with_comments(
    autojump_clock: MockClock, with_write_through: bool
) -> None:
    async with open_stream(Connection(), with_write_through) as stream:
        for _ in range(4):
            await trio.sleep(6)
            stream.append("a")
            stream.append("silent")
        await wait_all_tasks_blocked()
        assert stream.connection.out == b">aaaa"
        await trio.sleep(11)
        assert stream.connection.out == b">aaaa" + KEEPALIVE
        await trio.sleep(5)
        stream.append("silent")  # nothing goes out: the next comment is due as before
        await trio.sleep(5)
        assert stream.connection.out == b">aaaa" + 2 * KEEPALIVE
        stream.end()
    assert stream.connection.out.endswith(b".")


@pytest.mark.parametrize("with_write_through", [True, False])
async def test_a_log_without_an_end_is_a_broken_transfer(with_write_through: bool) -> None:
    async with open_stream(Connection(), with_write_through) as stream:
        stream.append("a")
        stream.log.close()
    assert stream.connection.out == b">a"
    assert isinstance(stream.failed, StreamTruncated)
