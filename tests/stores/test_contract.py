"""The contract, for each store there is. A new engine is one more line in ``reopen``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from hermes_trio.stores.base import Store
from hermes_trio.stores.memory import open_memory
from hermes_trio.stores.sqlite import open_sqlite
from tests.stores.contract_approvals import ApprovalContract
from tests.stores.contract_forget import DeleteContract, ForgetContract
from tests.stores.contract_lists import ClaimContract, ConversationContract
from tests.stores.contract_logs import HistoryContract, LogContract
from tests.stores.contract_run_lists import RunListContract
from tests.stores.contract_runs import RunContract
from tests.stores.contract_scope import ScopeContract
from tests.stores.contract_sessions import DeleteSessionContract, ForkContract, SessionObjectContract
from tests.stores.contract_suite import ClosingContract, DurableContract, Reopen, SessionContract

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


class TestSessions(SessionContract):
    """All stores."""


class TestApprovals(ApprovalContract):
    """All stores."""


class TestSessionObjects(SessionObjectContract):
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


class TestForgetting(ForgetContract):
    """All stores."""


class TestConversations(ConversationContract):
    """All stores."""


class TestClaims(ClaimContract):
    """All stores."""


class TestScope(ScopeContract):
    """All stores."""


class TestClosing(ClosingContract):
    """All stores."""


@pytest.mark.parametrize("reopen", DURABLE, indirect=True)
class TestDurable(DurableContract):
    """Those that remember."""
