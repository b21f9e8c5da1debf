"""Reading the log of a run from the store: for latecomers, laggards and recovery."""

from __future__ import annotations

import trio

from hermes_trio.core.changes import Ended
from hermes_trio.core.log_codec import DecodeError, decode_changes
from hermes_trio.runs.log import ChangeReader, Changes, LogTruncated
from hermes_trio.stores.base import CorruptRecord, Store


async def load_changes(store: Store, principal: str, run_id: str, first: int) -> Changes:
    """Changes of a run from a number on; some at a time, none when there are no more.

    Raises:
        StoreError: the store fails.
        CorruptRecord: it does not, but the log is not as it was written.
    """
    batches = await store.read_log(principal, run_id, first)
    try:
        changes = tuple(change for batch in batches for change in decode_changes(batch.body))
    except DecodeError as error:
        raise CorruptRecord(f"the log of {run_id} is damaged: {error}") from error
    return changes[first - batches[0].first :] if batches else ()


class StoredReader(ChangeReader):
    """Reads the log of a run that has ended."""

    def __init__(self, store: Store, principal: str, run_id: str, first: int = 0) -> None:
        self._store, self._principal, self._run_id = store, principal, run_id
        self._position = first
        self._is_over = False

    async def receive(self) -> Changes:
        """The next changes.

        Raises:
            trio.EndOfChannel: there are no more.
            LogTruncated: the log is not there any more, or not whole.
        """
        if self._is_over:
            raise trio.EndOfChannel
        changes = await load_changes(self._store, self._principal, self._run_id, self._position)
        if not changes:
            raise LogTruncated
        self._position += len(changes)
        self._is_over = isinstance(changes[-1], Ended)
        return changes
