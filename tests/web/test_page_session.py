"""The cookie of the web page: how it is set, which requests it authenticates, and which it must not."""

from __future__ import annotations

from http.cookies import SimpleCookie

import msgspec
import pytest
import structlog

from hermes_trio.keys import Keyring, NamedKey, Principal
from hermes_trio.schema import replies
from hermes_trio.web.state import WebOptions
from tests.support.asgi import Client, HttpResponse
from tests.support.fakes import CHAT, EPOCH, KEY, OTHER_KEY, AppHarness, ask, bearer, make_harness
from tests.support.responses_api import idle_harness
from tests.support.runs_api import RUNS, started
from tests.web.test_tickets import FakeWallClock

SIGN_IN, SIGN_OUT = "/api/sign-in", "/api/sign-out"
HOST = "server.test"
OWN = {"Origin": f"http://{HOST}"}
OWN_TLS = {"Origin": f"https://{HOST}"}
FETCHED = {**OWN, "Sec-Fetch-Site": "same-origin"}


async def signed_in(
    harness: AppHarness, headers: dict[str, str] | None = None, key: str = KEY
) -> tuple[str, str]:
    """Sign in; returns the name and the value of the cookie, and forgets the key."""
    harness.client.headers = {}
    answer = await harness.client.get(SIGN_IN, {**bearer(key), **(headers or OWN)}, "POST")
    assert answer.status == 200, answer.body
    [(name, morsel)] = cookies(answer).items()
    return name, morsel.value


def cookies(answer: HttpResponse) -> SimpleCookie:
    """The cookies that an answer sets."""
    return SimpleCookie(answer.headers["set-cookie"])


def cookie(pair: tuple[str, str]) -> dict[str, str]:
    """The header that a browser sends."""
    return {"Cookie": f"theme=dark; {pair[0]}={pair[1]}"}


async def test_the_cookie_cannot_be_read_by_scripts_nor_sent_by_other_sites() -> None:
    harness = make_harness()
    answer = await harness.client.get(SIGN_IN, OWN, "POST")
    told = msgspec.convert(answer.json, replies.PageSession, strict=True)
    assert (told.principal, told.expires_at) == ("ann", int(EPOCH) + 1 + 43_200)
    assert answer.headers["cache-control"] == "no-store"
    [(name, morsel)] = cookies(answer).items()
    assert name.startswith("hermes_trio_")
    assert (morsel["httponly"], morsel["samesite"], morsel["path"]) == (True, "Strict", "/")
    # It ends with the browser; the server ends it too. No other host may get it.
    assert (morsel["max-age"], morsel["expires"], morsel["domain"]) == ("", "", "")
    assert not morsel["secure"]
    assert KEY not in answer.headers["set-cookie"]


async def test_a_remembered_cookie_outlives_the_browser() -> None:
    answer = await make_harness().client.get(f"{SIGN_IN}?remember=true", OWN, "POST")
    [(_, morsel)] = cookies(answer).items()
    assert morsel["max-age"] == "43200"
    assert morsel["httponly"]


async def test_over_tls_the_cookie_is_secure_and_bound_to_its_host() -> None:
    harness = make_harness()
    behind_proxy = await harness.client.get(SIGN_IN, OWN_TLS, "POST")
    direct = await tls_request(harness.client, "POST", SIGN_IN, {"Sec-Fetch-Site": "same-origin"})
    for answer in (behind_proxy, direct):
        [(name, morsel)] = cookies(answer).items()
        assert name.startswith("__Host-hermes_trio_")
        assert (morsel["secure"], morsel["httponly"], morsel["samesite"]) == (True, True, "Strict")
        assert (morsel["path"], morsel["domain"]) == ("/", "")


async def tls_request(
    client: Client, method: str, path: str, headers: dict[str, str]
) -> HttpResponse:
    """The answer to a request over TLS."""

    async def app(scope: dict[str, object], receive: object, send: object) -> None:
        await client.app({**scope, "scheme": "https"}, receive, send)

    return await Client(app, client.headers).get(path, headers, method)


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/v1/models", {}),  # an old browser, or plain HTTP
        ("GET", "/v1/models", {"Sec-Fetch-Site": "same-origin"}),
        ("GET", "/metrics", OWN),
        ("HEAD", "/v1/models", {}),
        ("POST", SIGN_OUT, OWN),
        ("POST", SIGN_OUT, FETCHED),
        ("POST", SIGN_OUT, {"Sec-Fetch-Site": "same-origin"}),
        # A proxy may have changed the host, and the browser knows better.
        ("GET", "/v1/models", {**FETCHED, "Host": "inner.test:8642", "Origin": ""}),
    ],
)
async def test_requests_of_the_page(method: str, path: str, headers: dict[str, str]) -> None:
    harness = make_harness()
    pair = await signed_in(harness)
    answer = await harness.client.get(path, {**cookie(pair), **headers}, method)
    assert answer.status == 200


async def test_the_page_runs_a_turn_as_the_principal_of_the_key() -> None:
    harness = make_harness()
    pair = await signed_in(harness, key=OTHER_KEY)
    assert (await harness.client.send(CHAT, ask(), {**cookie(pair), **FETCHED})).status == 200
    assert [turn.principal for turn in harness.agents.turns] == ["bob"]


FOREIGN = [
    {"Sec-Fetch-Site": "same-site"},  # another port or subdomain: SameSite lets its requests pass
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "none"},  # typed into the address bar, or opened by another program
    {"Sec-Fetch-Site": "same-site", **OWN},
    {"Origin": "http://evil.test"},
    {"Origin": f"http://{HOST}:3000"},
    {"Origin": f"http://{HOST}.evil.test"},
    {"Origin": "null"},
]


@pytest.mark.parametrize("origins", [(), ("*",), ("http://evil.test", "null")])
@pytest.mark.parametrize("headers", [{}, *FOREIGN])
async def test_other_pages_cannot_change_anything_with_the_cookie(
    headers: dict[str, str], origins: tuple[str, ...]
) -> None:
    harness = make_harness(options=WebOptions(cors_origins=origins))
    pair = await signed_in(harness)
    answer = await harness.client.send(CHAT, ask(), {**cookie(pair), **headers})
    assert answer.status == 403
    assert answer.error["code"] in {"cross_origin_request", "origin_not_allowed"}
    assert harness.agents.turns == []
    assert harness.is_idle


@pytest.mark.parametrize("origins", [(), ("*",), ("http://evil.test", "null")])
@pytest.mark.parametrize("headers", FOREIGN)
async def test_other_pages_cannot_read_anything_with_the_cookie(
    headers: dict[str, str], origins: tuple[str, ...]
) -> None:
    harness = make_harness(options=WebOptions(cors_origins=origins))
    pair = await signed_in(harness)
    answer = await harness.client.get("/v1/models", {**cookie(pair), **headers})
    assert answer.status == 403


async def test_credentials_are_never_offered_to_other_origins() -> None:
    harness = make_harness(options=WebOptions(cors_origins=("http://friend.test",)))
    for method in ("GET", "OPTIONS"):
        answer = await harness.client.get("/v1/models", {"Origin": "http://friend.test"}, method)
        assert answer.headers["access-control-allow-origin"] == "http://friend.test"
        assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("headers", [{}, *FOREIGN])
async def test_only_the_page_itself_can_sign_in(headers: dict[str, str]) -> None:
    harness = make_harness(options=WebOptions(cors_origins=("*",)))
    answer = await harness.client.get(SIGN_IN, headers, "POST")
    assert (answer.status, answer.error["code"]) == (403, "cross_origin_request")
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}])
async def test_signing_in_needs_a_key(headers: dict[str, str]) -> None:
    harness = make_harness()
    pair = await signed_in(harness)
    for credentials in (headers, {**headers, **cookie(pair)}):
        answer = await harness.client.get(SIGN_IN, {**credentials, **FETCHED}, "POST")
        assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
        assert "set-cookie" not in answer.headers


async def test_a_session_ends_on_time() -> None:
    clock = FakeWallClock()
    harness = make_harness(wall_clock=clock, options=WebOptions(page_session_seconds=600))
    pair = await signed_in(harness)
    clock.now = EPOCH + 600
    assert (await harness.client.get("/v1/models", cookie(pair))).status == 200
    clock.now = EPOCH + 601
    answer = await harness.client.get("/v1/models", cookie(pair))
    assert (answer.status, answer.error["code"]) == (401, "page_session_expired")
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_a_replaced_key_ends_its_sessions() -> None:
    pair = await signed_in(make_harness())
    harness = make_harness(keyring=Keyring((NamedKey("ann", "another-key-0123456789"),)))
    harness.client.headers = {}
    answer = await harness.client.get("/v1/models", cookie(pair))
    assert (answer.status, answer.error["code"]) == (401, "page_session_expired")


async def test_a_ticket_is_no_page_session() -> None:
    harness = make_harness()
    name, _ = await signed_in(harness)
    ticket = harness.state.tickets.issue(Principal("ann"), int(EPOCH) + 60)
    assert (await harness.client.get("/v1/models", cookie((name, ticket)))).status == 401


async def test_a_key_comes_before_the_cookie() -> None:
    harness = make_harness()
    pair = await signed_in(harness)
    assert (await harness.client.get("/v1/models", {**cookie(pair), **bearer("no")})).status == 401
    # With a key the request may come from anywhere that CORS allows, as before.
    both = {**cookie(pair), **bearer(KEY), "Sec-Fetch-Site": "cross-site"}
    assert (await harness.client.get("/v1/models", both)).status == 200


async def test_the_page_gets_tickets() -> None:
    async with idle_harness() as harness:
        run_id = await started(harness)
        pair = await signed_in(harness)
        answer = await harness.client.get(
            f"{RUNS}/{run_id}/ticket", {**cookie(pair), **FETCHED}, "POST"
        )
        assert answer.status == 200
        # The ticket decides, not the cookie beside it.
        path = f"{RUNS}/{run_id}/events?ticket="
        assert (await harness.client.get(path + "no", cookie(pair))).status == 401


async def test_signing_out_deletes_the_cookie() -> None:
    harness = make_harness()
    for own in (OWN, OWN_TLS):
        pair = await signed_in(harness, own)
        answer = await harness.client.get(SIGN_OUT, {**cookie(pair), **own}, "POST")
        assert answer.status == 200
        msgspec.convert(answer.json, replies.PageSessionDeleted)
        [(name, morsel)] = cookies(answer).items()
        assert (name, morsel.value, morsel["max-age"]) == (pair[0], "", "0")
        assert morsel["path"] == "/"
        # Browsers ignore what deletes such a cookie without being secure itself.
        assert bool(morsel["secure"]) == name.startswith("__Host-")


async def test_over_tls_only_the_bound_cookie_counts() -> None:
    """Another subdomain can set a cookie without the prefix, and so sign in a browser as itself."""
    harness = make_harness()
    planted = await signed_in(harness, key=OTHER_KEY)
    assert (await harness.client.get("/v1/models", {**cookie(planted), **OWN_TLS})).status == 401
    answer = await tls_request(harness.client, "GET", "/v1/models", cookie(planted))
    assert answer.status == 401
    own = await signed_in(harness, OWN_TLS)
    both = {"Cookie": f"{planted[0]}={planted[1]}; {own[0]}={own[1]}", **FETCHED}
    await harness.client.send(CHAT, ask(), both)
    assert [turn.principal for turn in harness.agents.turns] == ["ann"]


async def test_open_paths_ignore_the_cookie() -> None:
    harness = make_harness()
    name, value = await signed_in(harness)
    for pair in ((name, value), (name, "nonsense")):
        for path in ("/", "/health", "/openapi.json"):
            headers = {**cookie(pair), "Sec-Fetch-Site": "cross-site"}
            assert (await harness.client.get(path, headers)).status == 200


async def test_no_log_line_has_the_cookie_in_it() -> None:
    harness = make_harness()
    with structlog.testing.capture_logs() as lines:
        pair = await signed_in(harness)
        for value in (pair[1], f"{pair[1]}x"):
            await harness.client.get("/v1/models", cookie((pair[0], value)))
        await harness.client.get("/v1/models", {**cookie(pair), **FOREIGN[0]})
    assert [line.get("code") for line in lines if line["event"] == "refused a key"] == [
        "page_session_expired",
        "cross_origin_request",
    ]
    assert pair[1].split(".")[1] not in repr(lines)
