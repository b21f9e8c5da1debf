"""Keys: who gets in, and how the others are told."""

from __future__ import annotations

import pytest

from hermes_trio.keys import Keyring, NamedKey
from tests.support.fakes import CHAT, KEY, OTHER_KEY, ask, bearer, make_harness

CLOSED = [
    "/v1/models",
    "/v1/models/x",
    "/v1/capabilities",
    "/health/detailed",
    "/metrics",
    "/nowhere",
    CHAT,
]
CLOSED_POSTS = [CHAT, "/health/detailed", "/nowhere"]
OPEN = ["/health", "/v1/health", "/health/live", "/health/ready", "/version", "/openapi.json"]
BAD = [
    "",
    "Bearer",
    "Bearer ",
    f"bearer {KEY}",  # the server our users have today is as strict
    f"BEARER {KEY}",
    f"Basic {KEY}",
    f"Bearer{KEY}",
    KEY,
    f"Bearer {KEY}x",
    f"Bearer {KEY[:-1]}",
    f"Bearer {KEY.upper()}",
    f"Bearer {KEY} {KEY}",
    "Bearer \xff\xfe",
    "Bearer kůň".encode().decode("latin-1"),
]


@pytest.mark.parametrize("header", BAD)
async def test_bad_keys_are_refused(header: str) -> None:
    harness = make_harness()
    answer = await harness.client.send(CHAT, ask(), {"Authorization": header})
    assert answer.status == 401
    assert answer.error["type"] == "invalid_request_error"
    assert answer.error["code"] == "invalid_api_key"
    assert set(answer.error) == {"message", "type", "param", "code"}
    assert answer.headers["www-authenticate"] == "Bearer"
    assert KEY not in answer.body.decode()
    assert harness.agents.turns == []
    assert harness.is_idle


@pytest.mark.parametrize(
    ("method", "path"),
    [*(("GET", path) for path in CLOSED), *(("POST", path) for path in CLOSED_POSTS)],
)
async def test_a_missing_key_is_refused_before_anything_else(method: str, path: str) -> None:
    """Whoever has no key does not even learn which paths there are."""
    harness = make_harness()
    harness.client.headers = {}
    answer = await harness.client.get(path, method=method)
    assert answer.status == 401
    assert answer.error["code"] == "invalid_api_key"


@pytest.mark.parametrize("path", OPEN)
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}])
async def test_some_paths_need_no_key(path: str, headers: dict[str, str]) -> None:
    harness = make_harness()
    harness.client.headers = {}
    assert (await harness.client.get(path, headers)).status == 200


@pytest.mark.parametrize("header", [f"Bearer {KEY}", f"Bearer   {KEY}  ", f"Bearer {OTHER_KEY}"])
async def test_good_keys_pass(header: str) -> None:
    harness = make_harness()
    assert (await harness.client.send(CHAT, ask(), {"Authorization": header})).status == 200


async def test_each_key_names_its_principal() -> None:
    harness = make_harness()
    for key in (KEY, OTHER_KEY, KEY):
        await harness.client.send(CHAT, ask(), bearer(key))
    assert [turn.principal for turn in harness.agents.turns] == ["ann", "bob", "ann"]


async def test_a_key_of_any_alphabet() -> None:
    key = "klíč-koně-0123456789"
    harness = make_harness(keyring=Keyring((NamedKey("eva", key),)))
    answer = await harness.client.send(CHAT, ask(), bearer(key.encode().decode("latin-1")))
    assert answer.status == 200
    assert (await harness.client.send(CHAT, ask(), bearer("klic"))).status == 401


async def test_a_refused_request_takes_no_slot_and_reads_no_body() -> None:
    harness = make_harness(max_runs=1)
    headers = {"Authorization": "Bearer wrong"}
    async with harness.client.open("POST", CHAT, [b"{"], headers, is_whole=False) as exchange:
        assert (await exchange.end()).status == 401
    assert harness.is_idle
