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

    async def test_grants_belong_to_an_end_user(self, store: Store) -> None:
        zoe, kim = Grant("ann", "", "rm", 1.0, "w:zoe"), Grant("ann", "s", "rm", 2.0, "w:kim")
        await store.grant([zoe, kim])
        for end_user, session_id, granted in (
            ("w:zoe", "s", True),
            ("w:zoe", "t", True),
            ("w:kim", "s", True),
            ("w:kim", "t", False),
            ("w:eve", "s", False),
            ("", "s", False),
        ):
            assert await store.is_granted("ann", session_id, ("rm",), end_user) is granted
        assert await store.list_grants("ann") == (zoe, kim)

    async def test_a_grant_without_an_end_user_is_for_none_in_particular(
        self, store: Store
    ) -> None:
        await store.grant([ALWAYS])
        assert await store.is_granted("ann", "s", ("rm",), "w:zoe") is False

    async def test_revoking_for_one_end_user_or_for_all(self, store: Store) -> None:
        both = [Grant("ann", "", "rm", 1.0, end_user) for end_user in ("w:kim", "w:zoe")]
        await store.grant([ALWAYS, *both])
        assert await store.revoke("ann", "", "rm", "w:zoe") is True
        assert await store.revoke("ann", "", "rm", "w:zoe") is False
        assert await store.list_grants("ann") == (ALWAYS, both[0])
        assert await store.revoke("ann", "", "rm", "") is True
        assert await store.list_grants("ann") == (both[0],)
        await store.grant([ALWAYS])
        assert await store.revoke("ann", "", "rm") is True
        assert await store.list_grants("ann") == ()
