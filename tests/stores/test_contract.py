"""The contract, for each store there is. A new engine is one more line in ``reopen``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from hermes_trio.stores.base import Store
from hermes_trio.stores.memory import open_memory
from hermes_trio.stores.sqlite import open_sqlite
from tests.stores.contract.approvals import ApprovalContract
from tests.stores.contract.conversations import ConversationContract, IdempotencyContract
from tests.stores.contract.isolation import IsolationContract
from tests.stores.contract.lifecycle import ClosingContract, DurabilityContract, Reopen, TranscriptContract
from tests.stores.contract.logs import HistoryContract, LogContract
from tests.stores.contract.retention import DeleteContract, PurgeContract
from tests.stores.contract.run_lists import RunListContract
from tests.stores.contract.runs import RunContract
from tests.stores.contract.sessions import DeleteSessionContract, ForkContract, SessionContract

DURABLE = ("sqlite",)


@pytest.fixture(params=["memory", "sqlite"])
def reopen(request: pytest.FixtureRequest, path: Path) -> Reopen:
    """Open the same place once more."""
    openers: dict[str, Reopen] = {"memory": open_memory, "sqlite": partial(open_sqlite, path)}
    return openers[request.param]


@pytest.fixture
async def store(reopen: Reopen) -> AsyncIterator[Store]:
    """An open store."""
    async with reopen() as opened:
        yield opened


class TestTranscripts(TranscriptContract):
    """All stores."""


class TestApprovals(ApprovalContract):
    """All stores."""


class TestSessions(SessionContract):
    """All stores."""


class TestForks(ForkContract):
    """All stores."""


class TestDeletingSessions(DeleteSessionContract):
    """All stores."""


class TestRuns(RunContract):
    """All stores."""


class TestRunLists(RunListContract):
    """All stores."""


class TestLogs(LogContract):
    """All stores."""


class TestHistory(HistoryContract):
    """All stores."""


class TestDeleting(DeleteContract):
    """All stores."""


class TestPurging(PurgeContract):
    """All stores."""


class TestConversations(ConversationContract):
    """All stores."""


class TestIdempotencyKeys(IdempotencyContract):
    """All stores."""


class TestIsolation(IsolationContract):
    """All stores."""


class TestClosing(ClosingContract):
    """All stores."""


@pytest.mark.parametrize("reopen", DURABLE, indirect=True)
class TestDurability(DurabilityContract):
    """Those that remember."""
