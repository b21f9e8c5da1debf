"""The contract, for each store there is. A new engine is one more line in ``ADDRESSES``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from hermes_trio.stores.contract import Store
from hermes_trio.stores.opening import open_store
from tests.stores.contract_suite import ClosingContract, DurableContract, Reopen, StoreContract

ADDRESSES = {"memory": "memory:", "sqlite": "sqlite://{path}"}
DURABLE = ("sqlite",)


@pytest.fixture(params=list(ADDRESSES))
def reopen(request: pytest.FixtureRequest, path: Path) -> Reopen:
    """Open the same place once more."""
    return partial(open_store, ADDRESSES[request.param].format(path=path))


@pytest.fixture
async def store(reopen: Reopen) -> AsyncIterator[Store]:
    """An open store."""
    async with reopen() as opened:
        yield opened


class TestStore(StoreContract):
    """Both."""


class TestClosing(ClosingContract):
    """Both."""


@pytest.mark.parametrize("reopen", DURABLE, indirect=True)
class TestDurable(DurableContract):
    """Those that remember."""
