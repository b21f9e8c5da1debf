"""One streaming chat from accept to last byte.

How many of our files it passes through, and that the frameworks serve it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import trio

import hermes_trio
from hermes_trio.core.events import Text
from hermes_trio.stores.sqlite import open_sqlite
from tests.server.test_garbage import request
from tests.support.fakes import CHAT, ScriptedAgentFactory, open_harness
from tests.support.in_process_server import serving
from tests.support.raw_http import connect, read_to_end, read_until

PACKAGE = Path(hermes_trio.__file__).parent

# Upper bounds of today; the aim is 40 and 80. Most changes of package are those between the runs
# and the pure core.
MAX_FILES = 46
MAX_PACKAGE_CHANGES = 96
CHATS = 12  # the first one fills caches; the fewest changes count, as the order of tasks varies
FIRST_AWAIT = 10  # no coroutine can have got this far into its bytecode before it was resumed once


class Trace:
    """The calls of this thread into our files and into other libraries, in their order."""

    def __init__(self) -> None:
        self.files: set[Path] = set()
        self.parts: list[str] = []  # of our package, one entry for each change
        self.libraries: dict[str, int] = {}

    def call(self, frame: FrameType, event: str, _argument: object) -> None:
        """Note a call; for ``sys.setprofile``.

        A coroutine that goes on behind an ``await`` is not called again.
        """
        if event != "call" or frame.f_lasti >= FIRST_AWAIT:
            return
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            inner = path.relative_to(PACKAGE)
            self.files.add(inner)
            if not self.parts or self.parts[-1] != inner.parts[0]:
                self.parts.append(inner.parts[0])
        else:
            library = frame.f_globals.get("__name__", "").partition(".")[0]
            self.libraries[library] = self.libraries.get(library, 0) + 1


@contextmanager
def traced() -> Iterator[Trace]:
    """Trace this thread for the length of a block."""
    trace = Trace()
    sys.setprofile(trace.call)
    try:
        yield trace
    finally:
        sys.setprofile(None)


async def test_a_streaming_chat_takes_one_short_path_through_the_frameworks(tmp_path: Path) -> None:
    agents = ScriptedAgentFactory([Text("Hi"), Text(" there")], is_async=True)
    async with (
        open_sqlite(tmp_path / "store.db") as store,
        open_harness(agents, store=store) as harness,
        serving(harness.client.app) as live,
    ):
        traces = []
        for _ in range(CHATS):
            async with await connect(live.port) as client:
                with traced() as each:
                    await client.send_all(request(CHAT, stream=True))
                    assert b"[DONE]" in await read_to_end(client)
                await trio.testing.wait_all_tasks_blocked()
            traces.append(each)
    trace = min(traces, key=lambda each: len(each.parts))
    assert len(trace.files) <= MAX_FILES, sorted(map(str, trace.files))
    assert len(trace.parts) <= MAX_PACKAGE_CHANGES, trace.parts
    # Nothing goes around the frameworks: each of them has its part of the work.
    for library in ("quart", "quart_trio", "werkzeug", "hypercorn", "h11"):
        assert trace.libraries.get(library, 0) >= 10, trace.libraries


MAX_PASSES = 22  # about 15; a slow thread or client adds a few


class PassCounter(trio.abc.Instrument):
    """Counts the passes of Trio's scheduler over all runnable tasks."""

    def __init__(self) -> None:
        self.passes = 0

    def before_io_wait(self, timeout: float) -> None:
        """Count the wait that begins every pass."""
        self.passes += 1


async def test_the_first_token_takes_few_scheduler_passes(tmp_path: Path) -> None:
    """On a busy server each pass visits every runnable task, so their number is what a client waits for."""
    agents = ScriptedAgentFactory([Text("Hi")], is_async=True)
    async with (
        open_sqlite(tmp_path / "store.db") as store,
        open_harness(agents, store=store) as harness,
        serving(harness.client.app) as live,
    ):
        for _ in range(2):  # the first one fills caches
            async with await connect(live.port) as client:
                await trio.testing.wait_all_tasks_blocked()
                counter = PassCounter()
                trio.lowlevel.add_instrument(counter)
                await client.send_all(request(CHAT, stream=True))
                await read_until(client, b"Hi")
                trio.lowlevel.remove_instrument(counter)
                await read_to_end(client)
    assert counter.passes <= MAX_PASSES
