"""Signed tokens: what they are valid for, for how long, and what makes them invalid."""

from __future__ import annotations

import hmac
import string

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from hermes_trio import tokens
from hermes_trio.core.access import FULL_ACCESS, Access
from hermes_trio.core.redact import redact
from hermes_trio.keys import ActiveKeys, Keyring, NamedKey, OidcSettings, Principal
from hermes_trio.tokens import ExpiredToken, InvalidToken, Purpose, TokenSigner

SECRET = bytes(range(32))
ALICE = NamedKey("alice", "alice-0123456789abcdef")
BOB = NamedKey("bob.of-the_hill", "bob-0123456789abcdef")
NOW = 1_700_000_000.0
LATER = 1_700_000_060


def signer(
    *keys: NamedKey, purpose: Purpose = Purpose.STREAM_TICKET, secret: bytes = SECRET
) -> TokenSigner:
    return TokenSigner(purpose, secret, ActiveKeys(Keyring(keys or (ALICE, BOB))))


@pytest.mark.parametrize("named", [ALICE, BOB])
def test_a_token_identifies_its_principal(named: NamedKey) -> None:
    token = signer().issue(Principal(named.principal), LATER, "", "run_1")
    assert signer().verify(token, NOW, "", "run_1") == Principal(named.principal)


def test_a_token_expires_at_its_time_and_not_before() -> None:
    token = signer().issue(Principal("alice"), LATER, "run_1")
    assert signer().verify(token, LATER - 0.001, "run_1") == Principal("alice")
    for now in (LATER, LATER + 1e9):
        with pytest.raises(ExpiredToken):
            signer().verify(token, now, "run_1")


@pytest.mark.parametrize("scope", [(), ("run_1",), ("run_2", ""), ("", "run_2"), ("", "run_1", "")])
def test_a_token_for_another_scope_is_invalid(scope: tuple[str, ...]) -> None:
    token = signer().issue(Principal("alice"), LATER, "", "run_1")
    with pytest.raises(InvalidToken) as caught:
        signer().verify(token, NOW, *scope)
    assert not isinstance(caught.value, ExpiredToken)


def test_a_token_for_another_purpose_is_invalid() -> None:
    token = signer().issue(Principal("alice"), LATER)
    page = signer(purpose=Purpose.PAGE_SESSION)
    for offered in (token, token.replace("ticket", "page")):
        with pytest.raises(InvalidToken):
            page.verify(offered, NOW)


def test_a_token_of_another_secret_is_invalid() -> None:
    token = signer(secret=bytes(32)).issue(Principal("alice"), LATER)
    with pytest.raises(InvalidToken):
        signer().verify(token, NOW)


def test_a_replaced_key_revokes_the_tokens_of_its_principal_only() -> None:
    tokens_before = {
        name: signer().issue(Principal(name), LATER) for name in ("alice", BOB.principal)
    }
    replaced = signer(NamedKey("alice", "another-0123456789abcdef"), BOB)
    with pytest.raises(InvalidToken):
        replaced.verify(tokens_before["alice"], NOW)
    assert replaced.verify(tokens_before[BOB.principal], NOW) == Principal(BOB.principal)


def test_a_principal_that_was_removed_has_no_valid_token() -> None:
    token = signer().issue(Principal("alice"), LATER)
    with pytest.raises(InvalidToken):
        signer(BOB).verify(token, NOW)


def test_a_principal_without_a_key_cannot_have_a_token() -> None:
    nobody = signer().issue(Principal("nobody"), LATER)
    with pytest.raises(InvalidToken):
        signer().verify(nobody, NOW)


def test_every_changed_character_makes_a_token_invalid() -> None:
    token = signer().issue(Principal("alice"), LATER, "run_1")
    for index, character in enumerate(token):
        for other in {"0", "A", "z", ".", "-"} - {character}:
            with pytest.raises(InvalidToken):
                signer().verify(token[:index] + other + token[index + 1 :], NOW, "run_1")


@pytest.mark.parametrize(
    "change", ["{}=", "{}.", " {}", "{} ", "{}\n", "ht-ticket-0{}", "{}é", "{}x"]
)
def test_a_token_has_one_form_only(change: str) -> None:
    token = signer().issue(Principal("alice"), LATER)
    changed = change.format(token.removeprefix("ht-ticket-") if "-0" in change else token)
    with pytest.raises(InvalidToken):
        signer().verify(changed, NOW)


@given(st.text())
def test_any_text_can_be_offered(text: str) -> None:
    for offered in (text, f"ht-ticket-{text}", f"ht-ticket-{LATER}.{text}.alice"):
        with pytest.raises(InvalidToken):
            signer().verify(offered, NOW)


@pytest.mark.parametrize("expiry", ["", "9" * 5_000, "²", "٣", "-1", "1e3", "0x1"])
def test_what_is_no_expiry(expiry: str) -> None:
    with pytest.raises(InvalidToken):
        signer().verify(f"ht-ticket-{expiry}.AAAA.alice", NOW)


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(tokens, "hmac", _Recording(compare))
    good = signer().issue(Principal("alice"), LATER)
    signer().verify(good, NOW)
    for bad in (f"{good}x", f"ht-ticket-{LATER}.AAAA.stranger"):
        with pytest.raises(InvalidToken):
            signer().verify(bad, NOW)
    assert [offered for _, offered in compared] == [
        good.encode(),
        f"{good}x".encode(),
        f"ht-ticket-{LATER}.AAAA.stranger".encode(),
    ]


class _Recording:
    """The module ``hmac`` with another comparison."""

    digest = staticmethod(hmac.digest)

    def __init__(self, compare_digest: object) -> None:
        self.compare_digest = compare_digest


@pytest.mark.parametrize("purpose", list(Purpose))
def test_a_token_is_masked_in_logs_and_fits_a_query_and_a_cookie(purpose: Purpose) -> None:
    token = signer(purpose=purpose).issue(Principal(BOB.principal), LATER, "", "run_1")
    assert set(token) <= set(string.ascii_letters + string.digits + "-_.")
    for text in (token, f"GET /v1/runs/run_1/events?ticket={token} 2", f"cookie: a={token}; b=1"):
        assert "16" not in redact(text)
        assert redact(token) == "ht-***"


def test_no_repr_shows_the_secret() -> None:
    assert repr(SECRET) not in repr(signer())
    assert ALICE.key not in repr(signer())


def test_servers_can_be_told_apart() -> None:
    ids = {signer(secret=bytes([n]) * 32).server_id for n in range(8)}
    assert len(ids) == 8
    assert all(len(each) == 8 and set(each) <= set(string.hexdigits) for each in ids)
    assert signer().server_id == signer(purpose=Purpose.PAGE_SESSION).server_id


ISSUER = OidcSettings("https://id.example.org", "hermes-trio", roles=(("users", FULL_ACCESS),))


def test_a_token_for_a_principal_of_an_issuer() -> None:
    keys = ActiveKeys(Keyring((), ISSUER))
    signer = TokenSigner(Purpose.PAGE_SESSION, SECRET, keys)
    principal = ISSUER.principal("ada", "users", 2_000)
    token = signer.issue(principal, 1_000)
    assert signer.verify(token, 0) == principal
    restricted = Access(routes=frozenset())
    keys.keyring = Keyring((), evolve(ISSUER, roles=(("users", restricted),)))
    assert signer.verify(token, 0).access == evolve(restricted, expires_at=2_000.0)
    for changed in (
        evolve(ISSUER, roles=(("others", FULL_ACCESS),)),
        evolve(ISSUER, issuer="https://id.example.com"),
        None,
    ):
        keys.keyring = Keyring((ALICE,), changed)
        with pytest.raises(InvalidToken):
            signer.verify(token, 0)
