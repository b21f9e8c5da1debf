"""Tokens of an OpenID Connect issuer: which are accepted, for whom, and how often the issuer is asked."""

from __future__ import annotations

import base64
import hmac
import json
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from attrs import evolve
from joserfc.jwk import ECKey, RSAKey
from trio.testing import MockClock

from hermes_trio.core.access import FULL_ACCESS, Access, Principal, Quota
from hermes_trio.core.errors import ApiError
from hermes_trio.keys import ActiveKeys, Keyring, KeysError, OidcSettings, load_key_file
from hermes_trio.oidc import (
    FETCH_SECONDS,
    FRESH_SECONDS,
    LEEWAY_SECONDS,
    RETRY_SECONDS,
    OidcVerifier,
)
from tests.support.issuer import AUDIENCE, Issuer, ec_key, rsa_key

NOW = 1_700_000_000.0
FIRST, SECOND, ELLIPTIC = rsa_key("first"), rsa_key("second"), ec_key("elliptic")
KEYS_PATH = "/keys"


@pytest.fixture
def issuer() -> Issuer:
    made = Issuer()
    made.add(FIRST, ELLIPTIC)
    return made


def verifier(issuer: Issuer, **changes: Any) -> OidcVerifier:
    settings = evolve(OidcSettings(issuer.url, AUDIENCE), **changes)
    return OidcVerifier(ActiveKeys(Keyring((), settings)), issuer.fetch, lambda: NOW)


async def refusal(verifier: OidcVerifier, token: str) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await verifier.identify(token)
    assert token not in caught.value.message
    return caught.value


# -- accepted --


@pytest.mark.parametrize("key", [FIRST, ELLIPTIC], ids=["RS256", "ES256"])
async def test_a_signed_token_is_a_principal(issuer: Issuer, key: RSAKey | ECKey) -> None:
    principal = await verifier(issuer).identify(issuer.token(NOW, key))
    assert principal == Principal(
        "oidc:ada", evolve(FULL_ACCESS, expires_at=NOW + 600 + LEEWAY_SECONDS)
    )


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("ada@example.org", "oidc:ada@example.org"),
        ("auth0|12", "oidc:auth0|12"),
        ("a/b", "oidc:a%2Fb"),
        ("default", "oidc:default"),
        ("ü\n", "oidc:%C3%BC%0A"),
    ],
)
async def test_no_subject_is_another_principal(issuer: Issuer, subject: str, name: str) -> None:
    principal = await verifier(issuer).identify(issuer.token(NOW, sub=subject))
    assert principal is not None
    assert principal.name == name


async def test_another_claim_can_name_the_principal(issuer: Issuer) -> None:
    token = issuer.token(NOW, email="ada@example.org")
    principal = await verifier(issuer, principal_claim="email").identify(token)
    assert principal is not None
    assert principal.name == "oidc:ada@example.org"


@pytest.mark.parametrize("audience", [AUDIENCE, ["other", AUDIENCE]])
async def test_one_of_several_audiences(issuer: Issuer, audience: object) -> None:
    assert await verifier(issuer).identify(issuer.token(NOW, aud=audience)) is not None


async def test_clocks_may_differ_a_little(issuer: Issuer) -> None:
    assert await verifier(issuer).identify(issuer.token(NOW, exp=int(NOW) - 20)) is not None
    assert await verifier(issuer).identify(issuer.token(NOW, nbf=int(NOW) + 20)) is not None


@pytest.mark.parametrize(
    "text", ["", "x", "ht-abc", "a.b", "a.b.c.d", "x" * 8_000 + ".b." + "c" * 200]
)
async def test_what_is_no_token_is_left_to_others(issuer: Issuer, text: str) -> None:
    assert await verifier(issuer).identify(text) is None
    assert not issuer.requests


async def test_without_an_issuer_nothing_is_a_token(issuer: Issuer) -> None:
    ring = ActiveKeys(Keyring(()))
    assert await OidcVerifier(ring, issuer.fetch).identify(issuer.token(NOW)) is None


# -- refused --


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ({"iss": "https://other.example.org"}, "invalid_token"),
        ({"iss": None}, "invalid_token"),
        ({"aud": "other"}, "invalid_token"),
        ({"aud": ["other"]}, "invalid_token"),
        ({"aud": None}, "invalid_token"),
        ({"exp": int(NOW) - 31}, "token_expired"),
        ({"exp": None}, "invalid_token"),
        ({"exp": "tomorrow"}, "invalid_token"),
        ({"nbf": int(NOW) + 60}, "invalid_token"),
        ({"sub": None}, "invalid_token"),
        ({"sub": ""}, "invalid_token"),
        ({"sub": 7}, "invalid_token"),
        ({"sub": "a" * 200}, "invalid_token"),
    ],
)
async def test_wrong_claims(issuer: Issuer, claims: dict[str, Any], code: str) -> None:
    error = await refusal(verifier(issuer), issuer.token(NOW, **claims))
    assert (error.status, error.code) == (401, code)
    assert error.headers == {"WWW-Authenticate": 'Bearer error="invalid_token"'}


def encode(part: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


async def test_forged_tokens(issuer: Issuer) -> None:
    honest = issuer.token(NOW, FIRST)
    header, claims, signature = honest.split(".")
    other = encode({"iss": issuer.url, "aud": AUDIENCE, "sub": "eve", "exp": int(NOW) + 600})
    signed = f"{encode({'alg': 'HS256', 'kid': 'first'})}.{other}"
    mac = hmac.digest(FIRST.as_pem(private=False), signed.encode(), "sha256")
    confused = f"{signed}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
    forged = {
        "another claim": f"{header}.{other}.{signature}",
        "no signature": f"{header}.{claims}.",
        "no algorithm": f"{encode({'alg': 'none', 'kid': 'first'})}.{claims}.",
        "the public key as a secret": confused,
        "another key of the issuer": issuer.token(NOW, FIRST, {"kid": "elliptic"}),
        "a key of somebody else": issuer.token(NOW, rsa_key("first")),
        "a key in the header": issuer.token(
            NOW, SECOND, {"jwk": SECOND.as_dict(private=False), "kid": "first"}
        ),
        "no json": "a.b.c",
        "a lone surrogate": "a.\ud800.c",
    }
    for what, token in forged.items():
        error = await refusal(verifier(issuer), token)
        assert (error.status, error.code) == (401, "invalid_token"), what
    assert await verifier(issuer).identify(honest)


async def test_an_algorithm_that_is_not_listed(issuer: Issuer) -> None:
    only_elliptic = verifier(issuer, algorithms=("ES256",))
    assert (await refusal(only_elliptic, issuer.token(NOW, FIRST))).code == "invalid_token"
    assert await only_elliptic.identify(issuer.token(NOW, ELLIPTIC))


# -- roles --

ROLES = (
    ("admins", Access(is_admin=True)),
    ("developers", Access(routes=frozenset({"chat"}), quota=Quota(runs=2))),
)


@pytest.mark.parametrize(
    ("claims", "claim", "role"),
    [
        ({"roles": ["developers"]}, "roles", "developers"),
        ({"roles": ["x", "developers", "admins"]}, "roles", "admins"),
        ({"scope": "openid developers"}, "scope", "developers"),
        ({"realm_access": {"roles": ["admins"]}}, "realm_access.roles", "admins"),
        ({"https://example.org/roles": ["admins"]}, "https://example.org/roles", "admins"),
    ],
)
async def test_the_first_role_of_the_file_counts(
    issuer: Issuer, claims: dict[str, Any], claim: str, role: str
) -> None:
    found = await verifier(issuer, roles=ROLES, roles_claim=claim).identify(
        issuer.token(NOW, **claims)
    )
    assert found is not None
    assert found.access == evolve(dict(ROLES)[role], expires_at=NOW + 600 + LEEWAY_SECONDS)


@pytest.mark.parametrize("roles", [None, [], ["default"], "x", 7, {"admins": 1}, [["admins"]]])
async def test_without_a_role_there_is_no_access(issuer: Issuer, roles: object) -> None:
    error = await refusal(verifier(issuer, roles=ROLES), issuer.token(NOW, roles=roles))
    assert (error.status, error.code) == (403, "insufficient_scope")
    with_default = (*ROLES, ("default", Access(tools=frozenset())))
    found = await verifier(issuer, roles=with_default).identify(issuer.token(NOW, roles=roles))
    assert found is not None
    assert found.access.tools == frozenset()


# -- the keys of the issuer --


async def test_keys_are_fetched_once(issuer: Issuer, autojump_clock: MockClock) -> None:
    asked = verifier(issuer)

    async def identify() -> None:
        assert await asked.identify(issuer.token(NOW))

    async with trio.open_nursery() as nursery:
        for _ in range(9):
            nursery.start_soon(identify)
    assert issuer.requests[KEYS_PATH] == 1
    await trio.sleep(FRESH_SECONDS + 1)
    await identify()
    assert issuer.requests[KEYS_PATH] == 2


async def test_a_new_key_is_fetched_but_not_too_often(
    issuer: Issuer, autojump_clock: MockClock
) -> None:
    asked = verifier(issuer)
    assert await asked.identify(issuer.token(NOW))
    for number in range(20):
        unknown = issuer.token(NOW, rsa_key("never") if not number else None, {"kid": f"k{number}"})
        assert (await refusal(asked, unknown)).code == "invalid_token"
    assert issuer.requests[KEYS_PATH] == 1
    issuer.add(SECOND)
    await trio.sleep(RETRY_SECONDS)
    assert await asked.identify(issuer.token(NOW, SECOND))
    assert issuer.requests[KEYS_PATH] == 2


async def test_a_removed_key_is_refused_after_a_while(
    issuer: Issuer, autojump_clock: MockClock
) -> None:
    asked = verifier(issuer)
    token = issuer.token(NOW, FIRST)
    assert await asked.identify(token)
    del issuer.keys["first"]
    await trio.sleep(FRESH_SECONDS + 1)
    assert (await refusal(asked, token)).code == "invalid_token"


async def test_keys_stay_in_use_while_the_issuer_is_away(
    issuer: Issuer, autojump_clock: MockClock
) -> None:
    asked = verifier(issuer)
    assert await asked.identify(issuer.token(NOW))
    issuer.documents[KEYS_PATH] = None
    await trio.sleep(FRESH_SECONDS + 1)
    assert await asked.identify(issuer.token(NOW))


@pytest.mark.parametrize(
    ("path", "document"),
    [
        (KEYS_PATH, None),
        (KEYS_PATH, {}),
        (KEYS_PATH, {"keys": []}),
        (
            KEYS_PATH,
            {
                "keys": [
                    7,
                    {"kty": "x"},
                    {"kty": "oct", "k": "c2Vj", "kid": "first"},
                    {"kty": "RSA"},
                ]
            },
        ),
        (KEYS_PATH, {"keys": [{**FIRST.as_dict(private=False), "use": "enc"}]}),
        ("/.well-known/openid-configuration", None),
        ("/.well-known/openid-configuration", {"issuer": "https://x", "jwks_uri": "https://x/k"}),
        (
            "/.well-known/openid-configuration",
            {"issuer": "https://id.example.org", "jwks_uri": "http://x/k"},
        ),
        ("/.well-known/openid-configuration", {"issuer": "https://id.example.org"}),
    ],
)
async def test_an_issuer_without_usable_keys(
    issuer: Issuer, autojump_clock: MockClock, path: str, document: object
) -> None:
    issuer.documents[path] = document
    asked = verifier(issuer)
    for _ in range(5):
        error = await refusal(asked, issuer.token(NOW))
        assert (error.status, error.code) == (503, "issuer_unavailable")
        assert int(error.headers["Retry-After"]) == RETRY_SECONDS
    assert issuer.requests[path] == 1
    del issuer.documents[path]
    await trio.sleep(RETRY_SECONDS)
    assert await asked.identify(issuer.token(NOW))


async def test_an_issuer_that_hangs(issuer: Issuer, autojump_clock: MockClock) -> None:
    hangs = False

    async def fetch(url: str) -> object:
        if hangs:
            await trio.sleep_forever()
        return await issuer.fetch(url)

    keys = ActiveKeys(Keyring((), OidcSettings(issuer.url, AUDIENCE)))
    asked = OidcVerifier(keys, fetch, lambda: NOW)
    assert await asked.identify(issuer.token(NOW))
    await trio.sleep(FRESH_SECONDS + 1)
    hangs, began = True, trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(asked.identify, issuer.token(NOW))
        await trio.testing.wait_all_tasks_blocked()
        # Only the one that fetches waits, and anyone who names an unknown key.
        assert await asked.identify(issuer.token(NOW))
        assert trio.current_time() == began
        unknown = issuer.token(NOW, header={"kid": "unknown"})
        assert (await refusal(asked, unknown)).code == "invalid_token"
    assert trio.current_time() == began + FETCH_SECONDS


async def test_a_client_that_leaves_does_not_stop_the_fetch(
    issuer: Issuer, autojump_clock: MockClock
) -> None:
    async def fetch(url: str) -> object:
        await trio.sleep(1)
        return await issuer.fetch(url)

    keys = ActiveKeys(Keyring((), OidcSettings(issuer.url, AUDIENCE)))
    asked = OidcVerifier(keys, fetch, lambda: NOW)
    with trio.move_on_after(0.1):
        await asked.identify(issuer.token(NOW))
    assert await asked.identify(issuer.token(NOW))
    assert issuer.requests[KEYS_PATH] == 1


async def test_a_token_without_a_key_id(issuer: Issuer) -> None:
    unnamed = issuer.token(NOW, FIRST, {"kid": None})
    assert (await refusal(verifier(issuer), unnamed)).code == "invalid_token"
    del issuer.keys["elliptic"]
    assert await verifier(issuer).identify(unnamed)


async def test_a_key_for_another_algorithm(issuer: Issuer) -> None:
    issuer.documents[KEYS_PATH] = {"keys": [{**FIRST.as_dict(private=False), "alg": "RS512"}]}
    assert (await refusal(verifier(issuer), issuer.token(NOW, FIRST))).code == "invalid_token"


async def test_a_changed_issuer_begins_anew(issuer: Issuer) -> None:
    keys = ActiveKeys(Keyring((), OidcSettings(issuer.url, AUDIENCE)))
    asked = OidcVerifier(keys, issuer.fetch, lambda: NOW)
    assert await asked.identify(issuer.token(NOW))
    keys.keyring = Keyring((), OidcSettings(issuer.url, "another"))
    assert (await refusal(asked, issuer.token(NOW))).code == "invalid_token"
    assert await asked.identify(issuer.token(NOW, aud="another"))
    assert issuer.requests[KEYS_PATH] == 2


# -- the key file --

TABLE = '[oidc]\nissuer = "https://id.example.org"\naudience = "hermes-trio"\n'


def load(folder: Path, text: str) -> OidcSettings | None:
    path = folder / "keys.toml"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return load_key_file(path).oidc


def test_a_file_with_an_issuer_only(tmp_path: Path) -> None:
    assert load(tmp_path, TABLE) == OidcSettings("https://id.example.org", "hermes-trio")


def test_a_file_with_everything(tmp_path: Path) -> None:
    more = (
        'algorithms = ["ES256"]\nprincipal_claim = "email"\nroles_claim = "groups"\n'
        'jwks_url = "https://id.example.org/keys"\n'
        '[oidc.roles.team]\nroutes = ["chat"]\nmax_runs = 1\n[oidc.roles.ops]\nadmin = true\n'
    )
    assert load(tmp_path, TABLE + more) == OidcSettings(
        "https://id.example.org",
        "hermes-trio",
        ("ES256",),
        "email",
        "groups",
        "https://id.example.org/keys",
        (
            ("team", Access(routes=frozenset({"chat"}), quota=Quota(runs=1))),
            ("ops", Access(is_admin=True)),
        ),
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[oidc]\n", "oidc.issuer must be an address"),
        ('[oidc]\nissuer = "http://id.example.org"\n', "oidc.issuer must be an address"),
        ('[oidc]\nissuer = "https://id.example.org"\n', "oidc.audience is missing"),
        (TABLE + 'algorithms = ["HS256"]\n', "oidc.algorithms has 'HS256'; known: ES256,"),
        (TABLE + 'algorithms = ["none"]\n', "oidc.algorithms has 'none'"),
        (TABLE + "algorithms = []\n", "oidc.algorithms needs at least one"),
        (TABLE + 'jwks_url = "keys"\n', "oidc.jwks_url must be an address"),
        (TABLE + 'audiences = "x"\n', "oidc: 'audiences' is unknown"),
        (TABLE + 'roles = "x"\n', "oidc.roles must be tables"),
        (TABLE + "[oidc.roles]\nteam = 1\n", "oidc.roles.team must be a table"),
        (TABLE + '[oidc.roles.team]\nhash = "x"\n', "oidc.roles.team: 'hash' is unknown"),
        (TABLE + '[oidc.roles.team]\nroutes = ["x"]\n', "oidc.roles.team.routes has 'x'"),
    ],
)
def test_a_wrong_table(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(KeysError) as caught:
        load(tmp_path, text)
    assert complaint in str(caught.value)
