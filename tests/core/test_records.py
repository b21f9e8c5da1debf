"""The owner of records, and the identity of a run."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.core.records import RunHeader, Stamp, record_owner

NAMES = st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True)


@given(one=st.tuples(NAMES, NAMES | st.just("")), other=st.tuples(NAMES, NAMES | st.just("")))
def test_two_pairs_never_share_a_scope(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (record_owner(*one) == record_owner(*other)) == (one == other)


@given(principal=NAMES)
def test_without_a_profile_it_is_the_principal(principal: str) -> None:
    """Records from before there were profiles stay where they are."""
    assert record_owner(principal, "") == principal


def test_a_header_has_the_identity_of_its_stamp() -> None:
    stamp = Stamp("r", 12.9, "m")
    assert stamp.created == 12
    assert RunHeader("ann", stamp, "chat", "s", ()).run_id == "r"
