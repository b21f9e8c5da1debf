"""What a key allows."""

from __future__ import annotations

import pytest

from hermes_trio.core.access import FULL_ACCESS, Access, Principal


@pytest.mark.parametrize(
    ("routes", "group", "is_read", "allowed"),
    [
        (None, "runs", False, True),
        ((), "runs", True, False),
        (("runs",), "runs", False, True),
        (("runs",), "runs", True, True),
        (("runs:read",), "runs", True, True),
        (("runs:read",), "runs", False, False),
        (("chat", "runs:read"), "responses", True, False),
    ],
)
def test_routes(routes: tuple[str, ...] | None, group: str, is_read: bool, allowed: bool) -> None:
    access = Access(routes=None if routes is None else frozenset(routes))
    assert access.allows_route(group, is_read) is allowed


def test_profiles() -> None:
    assert FULL_ACCESS.allows_profile("")
    assert FULL_ACCESS.allows_profile("coder")
    scoped = Access(profiles=frozenset({"default", "coder"}))
    assert scoped.allows_profile("")
    assert scoped.allows_profile("coder")
    assert not scoped.allows_profile("writer")
    assert not Access(profiles=frozenset({"coder"})).allows_profile("")


def test_a_principal_is_the_same_whichever_key_it_uses() -> None:
    assert Principal("ann").key_name == "ann"
    assert Principal("ann", key_name="laptop") == Principal("ann", key_name="phone")
