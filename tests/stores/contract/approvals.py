"""Contract for remembered approvals."""

from __future__ import annotations

import pytest

from hermes_trio.core.approvals import Grant
from hermes_trio.stores.base import Store
from tests.stores.samples import ODD

ALWAYS = Grant("ann", "", "rm", 1.0)
IN_S = Grant("ann", "s", "dd", 2.0)


class ApprovalContract:
    """Remembered approvals."""

    async def test_nothing_is_granted_at_first(self, store: Store) -> None:
        assert await store.is_granted("ann", "s", ("rm",)) is False
        assert await store.list_grants("ann") == ()

    @pytest.mark.parametrize(
        ("session_id", "patterns", "granted"),
        [
            ("s", ("rm",), True), ("t", ("rm",), True), ("s", ("dd",), True), ("t", ("dd",), False),
            ("s", ("rm", "dd"), True), ("t", ("rm", "dd"), False), ("s", ("rm", "mkfs"), False), ("s", (), False),
        ],
    )  # fmt: skip
    async def test_always_and_in_a_session(
        self, store: Store, session_id: str, patterns: tuple[str, ...], granted: bool
    ) -> None:
        await store.grant([ALWAYS, IN_S])
        assert await store.is_granted("ann", session_id, patterns) is granted

    async def test_grants_belong_to_a_principal(self, store: Store) -> None:
        await store.grant([ALWAYS, IN_S])
        assert await store.is_granted("bob", "s", ("rm",)) is False
        assert await store.list_grants("bob") == ()
        assert await store.revoke("bob", "", "rm") is False
        assert await store.list_grants("ann") == (ALWAYS, IN_S)

    async def test_the_first_grant_is_kept(self, store: Store) -> None:
        await store.grant([ALWAYS])
        await store.grant([Grant("ann", "", "rm", 9.0)])
        assert await store.list_grants("ann") == (ALWAYS,)

    async def test_revoking_one_leaves_the_others(self, store: Store) -> None:
        await store.grant([ALWAYS, IN_S, Grant("ann", "s", "rm", 3.0)])
        assert await store.revoke("ann", "s", "rm") is True
        assert await store.revoke("ann", "s", "rm") is False
        assert await store.list_grants("ann") == (ALWAYS, IN_S)

    async def test_patterns_may_hold_anything(self, store: Store) -> None:
        await store.grant([Grant("ann", "", ODD, 1.0)])
        assert await store.is_granted("ann", "s", (ODD,)) is True
        assert await store.revoke("ann", "", ODD) is True
