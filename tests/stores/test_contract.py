"""The contract suite for every store. A new engine is one more line in ``reopen``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from hermes_trio.stores.base import Store
from hermes_trio.stores.sqlite import open_memory, open_sqlite
from tests.stores.contract.approvals import ApprovalContract
from tests.stores.contract.conversations import ConversationContract, IdempotencyContract
from tests.stores.contract.isolation import IsolationContract
from tests.stores.contract.jobs import JobContract, JobRunContract
from tests.stores.contract.lifecycle import (
    ClosingContract,
    DurabilityContract,
    Reopen,
    TranscriptContract,
)
from tests.stores.contract.logs import HistoryContract, LogContract
from tests.stores.contract.ownership import OwnershipContract
from tests.stores.contract.retention import DeleteContract, PurgeContract, SizeContract
from tests.stores.contract.run_lists import RunListContract
from tests.stores.contract.runs import RunContract
from tests.stores.contract.sessions import (
    DeleteSessionContract,
    ForkContract,
    PinContract,
    SearchContract,
    SessionContract,
)

DURABLE = ("sqlite", "postgres", "pgbouncer")


@pytest.fixture(params=["memory", *DURABLE])
def reopen(request: pytest.FixtureRequest, path: Path) -> Reopen:
    """Open the same store again."""
    match request.param:
        case "memory":
            return open_memory
        case "sqlite":
            return partial(open_sqlite, path)
        case _:
            url = request.getfixturevalue(f"{request.param}_url")
            from hermes_trio.stores.postgres import open_postgres  # noqa: PLC0415 - needs its driver

            return partial(open_postgres, url)


@pytest.fixture
async def store(reopen: Reopen) -> AsyncIterator[Store]:
    """An open store."""
    async with reopen() as opened:
        yield opened


class TestTranscripts(TranscriptContract):
    """Run against every store."""


class TestApprovals(ApprovalContract):
    """Run against every store."""


class TestSessions(SessionContract):
    """Run against every store."""


class TestPins(PinContract):
    """Run against every store."""


class TestSearch(SearchContract):
    """Run against every store."""


class TestForks(ForkContract):
    """Run against every store."""


class TestDeletingSessions(DeleteSessionContract):
    """Run against every store."""


class TestRuns(RunContract):
    """Run against every store."""


class TestOwnership(OwnershipContract):
    """Run against every store."""


class TestRunLists(RunListContract):
    """Run against every store."""


class TestLogs(LogContract):
    """Run against every store."""


class TestHistory(HistoryContract):
    """Run against every store."""


class TestDeleting(DeleteContract):
    """Run against every store."""


class TestSizes(SizeContract):
    """Run against every store."""


class TestPurging(PurgeContract):
    """Run against every store."""


class TestConversations(ConversationContract):
    """Run against every store."""


class TestIdempotencyKeys(IdempotencyContract):
    """Run against every store."""


class TestJobs(JobContract):
    """Run against every store."""


class TestJobRuns(JobRunContract):
    """Run against every store."""


class TestIsolation(IsolationContract):
    """Run against every store."""


class TestClosing(ClosingContract):
    """Run against every store."""


@pytest.mark.parametrize("reopen", DURABLE, indirect=True)
class TestDurability(DurabilityContract):
    """Stores that survive closing."""
