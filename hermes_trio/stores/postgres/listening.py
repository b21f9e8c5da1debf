"""Notices between nodes: NOTIFY on a channel for each node, and a connection that LISTENs on it.

A notice is a hint, so it may get lost while the connection is down. Every new connection therefore
begins with the notice ``reconnected``, upon which the receiver looks at everything.

The connection is opened in a worker thread. Waiting needs none: Trio waits until the socket is
readable, and then what has arrived is taken without blocking.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack

import psycopg
import trio
from psycopg import sql

from hermes_trio.core.records import Notice, Topic
from hermes_trio.stores.base import StoreError
from hermes_trio.stores.postgres.connections import PostgresDatabase, to_store_error
from hermes_trio.stores.sql.database import CLOSED, ReaderPool, SqlConnection

RECONNECTED = Notice(Topic.RECONNECTED)
MAX_PAYLOAD = 7_999
"""Bytes in one notification; the server takes no more."""

_NOTIFY = "SELECT pg_notify(:channel, payload) FROM unnest(CAST(:payloads AS text[])) AS payload"


# -- the wire --


def channel_of(node: str) -> str:
    """Return the channel of a node. A hash, because a channel has at most 63 bytes."""
    return f"hermes_trio_{hashlib.sha256(node.encode()).hexdigest()[:40]}"


def merge_notices(notices: Iterable[Notice]) -> tuple[Notice, ...]:
    """Merge notices of the same topic; those without subjects are about all, and stay as they are."""
    subjects: dict[str, dict[str, None]] = {}  # ordered sets
    without: dict[str, None] = {}
    for notice in notices:
        if notice.subjects:
            subjects.setdefault(notice.topic, {}).update(dict.fromkeys(notice.subjects))
        else:
            without[notice.topic] = None
    return (
        *(Notice(topic) for topic in without),
        *(Notice(topic, tuple(found)) for topic, found in subjects.items()),
    )


def encode_notices(notices: Iterable[Notice]) -> list[str]:
    """Encode notices as few payloads. A subject that fits in none is left to a notice without subjects."""
    payloads = [payload for notice in merge_notices(notices) for payload in _split(notice)]
    return list(dict.fromkeys(payloads))


def _split(notice: Notice) -> Iterator[str]:
    start = parts = json.dumps(str(notice.topic))
    for subject in notice.subjects:
        part = f",{json.dumps(subject)}"
        if len(start) + len(part) + 2 > MAX_PAYLOAD:
            yield f"[{start}]"
            continue
        if len(parts) + len(part) + 2 > MAX_PAYLOAD:
            yield f"[{parts}]"
            parts = start
        parts += part
    if parts != start or not notice.subjects:
        yield f"[{parts}]"


def decode_notice(payload: str) -> Notice:
    """Decode a payload. One that is not ours, or of another version, may be about anything."""
    try:
        match json.loads(payload):
            case [str(topic), *subjects]:
                return Notice(topic, tuple(map(str, subjects)))
    except ValueError:
        pass
    return RECONNECTED


def send_payloads(connection: SqlConnection, node: str, payloads: Sequence[str]) -> None:
    """Send payloads to a node with one statement."""
    parameters = {"channel": channel_of(node), "payloads": list(payloads)}
    connection.execute(_NOTIFY, parameters).close()


# -- receiving --


class Listener:
    """The connection on which one node receives notices. It is opened when it is needed."""

    def __init__(self, database: PostgresDatabase, node: str) -> None:
        self._database = database
        self._channel = channel_of(node)
        self._threads = ReaderPool(database, 1)
        self._guard = threading.Lock()  # of what follows: a thread may outlive its caller
        self._driver: psycopg.Connection | None = None
        self._is_new = False  # nobody knows of the connection yet
        self._is_closed = False

    async def receive(self) -> tuple[Notice, ...]:
        """Wait for notices. A cancelled call leaves them to the next one.

        Raises:
            StoreError: The connection was lost, and there cannot be another now.
        """
        while True:
            if self._driver is None:
                await self._threads.run(self._open)
            if self._is_new:
                self._is_new = False
                return (RECONNECTED,)
            assert self._driver is not None
            try:
                arrived = list(self._driver.notifies(timeout=0))
            except psycopg.Error:
                self._driver.close()
                self._driver = None
                continue
            if arrived:
                await trio.lowlevel.cancel_shielded_checkpoint()
                return merge_notices(decode_notice(each.payload) for each in arrived)
            await trio.lowlevel.wait_readable(self._driver.fileno())

    def _open(self) -> None:
        """Connect and LISTEN, unless the thread of a call that was cancelled has done so by now."""
        if self._driver is not None:
            return
        try:
            with ExitStack() as undo:
                driver = self._database.open_connection()
                undo.callback(driver.close)
                driver.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
                with self._guard:
                    if not self._is_closed:
                        self._driver, self._is_new = driver, True
                        undo.pop_all()
        except psycopg.Error as error:
            raise to_store_error(error) from error

    def disconnect(self) -> None:
        """Close the connection for good. Nobody may be waiting for it."""
        with self._guard:
            self._is_closed = True
            if self._driver is not None:
                self._driver.close()

    async def close(self) -> None:
        """Close the connection, and return when no thread is opening another."""
        self.disconnect()
        await self._threads.close()


class Listeners:
    """The listeners of the nodes that use a store: usually one."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._listeners: dict[str, Listener] = {}
        self._waiting: set[trio.CancelScope] = set()
        self._is_closed = False

    @property
    def can_listen(self) -> bool:
        """Whether notices arrive: not through a pooler, which shares connections."""
        return not self._database.is_pooled

    async def wait(self, node: str, seconds: float) -> tuple[Notice, ...]:
        """Wait for notices to a node, for at most some seconds. One task may wait for each node.

        Raises:
            StoreError: The database cannot be reached, or the store is closed.
        """
        await trio.lowlevel.checkpoint_if_cancelled()  # then what has arrived stays
        with trio.move_on_after(seconds) as scope:
            self._waiting.add(scope)
            try:
                if self._is_closed:
                    raise StoreError(CLOSED)
                if not self.can_listen:
                    await trio.sleep_forever()
                if node not in self._listeners:
                    self._listeners[node] = Listener(self._database, node)
                return await self._listeners[node].receive()
            finally:
                self._waiting.discard(scope)
        if self._is_closed:
            raise StoreError(CLOSED)
        return ()

    def stop(self) -> None:
        """End every wait with an error, and close the connections."""
        self._is_closed = True
        for scope in self._waiting:
            scope.cancel(CLOSED)
        for listener in self._listeners.values():
            listener.disconnect()

    async def close(self) -> None:
        """Do the same, and return when no thread is left."""
        self.stop()
        for listener in self._listeners.values():
            await listener.close()
