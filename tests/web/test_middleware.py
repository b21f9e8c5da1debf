"""What every answer carries: request id, security headers, CORS."""

from __future__ import annotations

import re

import pytest

from hermes_trio.core.events import Text
from hermes_trio.web.middleware import _first_values
from hermes_trio.web.state import WebOptions
from tests.support.asgi import Client, HttpResponse
from tests.support.fakes import CHAT, ask, ask_stream, make_harness

PAGE = "https://page.test"
OPEN_TO_PAGE = WebOptions(cors_origins=(PAGE, "http://localhost:3000"))
SECURITY = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "referrer-policy": "no-referrer",
    "strict-transport-security": "max-age=31536000; includeSubDomains",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "x-xss-protection": "0",
}
# name -> method, path, body, headers, status
KINDS: dict[str, tuple[str, str, object, dict[str, str], int]] = {
    "health": ("GET", "/health", None, {}, 200),
    "json": ("POST", CHAT, ask(), {}, 200),
    "stream": ("POST", CHAT, ask_stream(), {}, 200),
    "bad json": ("POST", CHAT, [], {}, 400),
    "no key": ("GET", "/v1/models", None, {"Authorization": ""}, 401),
    "no path": ("GET", "/nowhere", None, {}, 404),
    "wrong method": ("DELETE", CHAT, None, {}, 405),
    "too large": ("POST", CHAT, None, {"Content-Length": "99999999999"}, 413),
    "not a path": ("GET", "?x", None, {}, 400),
    "preflight": ("OPTIONS", CHAT, None, {}, 200),
    "double slash": ("GET", "/health//live", None, {}, 404),
    "metrics": ("GET", "/metrics", None, {}, 200),
}


async def ask_for(client: Client, kind: str, **more: str) -> HttpResponse:
    """An answer of each kind."""
    method, path, body, headers, status = KINDS[kind]
    extra = {name.replace("_", "-"): value for name, value in more.items()}
    if body is None:
        answer = await client.get(path, {**headers, **extra}, method)
    else:
        answer = await client.send(path, body, {**headers, **extra})
    assert answer.status == status
    return answer


@pytest.mark.parametrize("kind", KINDS)
async def test_security_headers_and_a_request_id(kind: str) -> None:
    answer = await ask_for(make_harness([Text("x")]).client, kind)
    assert SECURITY.items() <= answer.headers.items()
    assert re.fullmatch(r"req_[0-9a-f]{32}", answer.headers["x-request-id"])


@pytest.mark.parametrize("kind", KINDS)
async def test_a_request_id_is_taken_over(kind: str) -> None:
    answer = await ask_for(
        make_harness([Text("x")]).client, kind, X_Request_Id="my-id_1.2:3@x/4+5="
    )
    assert answer.headers["x-request-id"] == "my-id_1.2:3@x/4+5="


@pytest.mark.parametrize("given", ["a b", "", "x" * 129, "<script>", 'a"b', "\xe9", "a,b", "a\tb"])
async def test_a_bad_request_id_is_replaced(given: str) -> None:
    answer = await make_harness().client.get("/health", {"X-Request-Id": given})
    assert re.fullmatch(r"req_[0-9a-f]{32}", answer.headers["x-request-id"])


async def test_line_ends_in_a_header_are_refused_and_never_echoed() -> None:
    evil = "a\r\nX-Evil: 1"
    for headers in (
        {"X-Request-Id": evil},
        {"X-Hermes-Session-Key": evil},
        {"Origin": f"http://{evil}", "Host": evil},
    ):
        answer = await make_harness(options=OPEN_TO_PAGE).client.get("/health", headers)
        assert answer.status in {400, 403}
        assert not [value for value in answer.headers.values() if "Evil" in value]


async def test_every_request_has_its_own_id() -> None:
    client = make_harness().client
    ids = {(await client.get("/health")).headers["x-request-id"] for _ in range(5)}
    assert len(ids) == 5


# -- CORS --


def cors(answer: HttpResponse) -> dict[str, str]:
    """The headers that browsers read."""
    return {
        name: value for name, value in answer.headers.items() if name.startswith("access-control-")
    }


@pytest.mark.parametrize("kind", KINDS)
async def test_without_an_origin_there_is_nothing_to_say(kind: str) -> None:
    for options in (WebOptions(), OPEN_TO_PAGE):
        answer = await ask_for(make_harness([Text("x")], options=options).client, kind)
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("options", [WebOptions(), OPEN_TO_PAGE], ids=["off", "on"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "origin", ["https://evil.test", "null", "https://page.test.evil.test", "http://page.test"]
)
async def test_unknown_origins_are_refused(kind: str, origin: str, options: WebOptions) -> None:
    harness = make_harness(options=options)
    method, path, _, _, _ = KINDS[kind]
    answer = await harness.client.get(path, {"Origin": origin}, method)
    assert answer.status == 403
    assert answer.error["code"] == "origin_not_allowed"
    assert set(answer.error) == {"message", "type", "param", "code"}
    assert cors(answer) == {}
    assert harness.agents.turns == []


@pytest.mark.parametrize("kind", KINDS)
async def test_an_allowed_origin_may_read_every_answer(kind: str) -> None:
    answer = await ask_for(
        make_harness([Text("x")], options=OPEN_TO_PAGE).client, kind, Origin=PAGE
    )
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert answer.headers["vary"] == "Origin"
    exposed = answer.headers["access-control-expose-headers"].split(", ")
    assert {
        "X-Hermes-Session-Id",
        "X-Hermes-Session-Key",
        "X-Hermes-Completed",
        "X-Hermes-Partial",
    } < set(exposed)
    assert {"X-Hermes-Error", "X-Request-Id", "Retry-After"} < set(exposed)


async def test_a_star_allows_everybody() -> None:
    options = WebOptions(cors_origins=("*",))
    answer = await ask_for(
        make_harness(options=options).client, "stream", Origin="https://any.test"
    )
    assert answer.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("kind", ["json", "stream", "preflight"])
async def test_our_own_pages_need_no_permission(kind: str) -> None:
    answer = await ask_for(make_harness().client, kind, Origin="http://server.test")
    assert cors(answer) == {}


SDK_HEADERS = (
    "authorization,content-type,x-stainless-arch,x-stainless-lang,x-stainless-os,x-stainless-package-version,"
    "x-stainless-retry-count,x-stainless-runtime,x-stainless-runtime-version,x-stainless-timeout,"
    "x-stainless-helper-method"
)


@pytest.mark.parametrize("asked", ["", SDK_HEADERS, "x-hermes-session-id, X-Hermes-Session-Key"])
async def test_a_preflight(asked: str) -> None:
    client = make_harness(options=OPEN_TO_PAGE).client
    client.headers = {}  # browsers send no key along
    headers = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": asked}
    answer = await client.get(CHAT, {"Origin": PAGE, **headers}, "OPTIONS")
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert answer.headers["access-control-allow-methods"] == "GET, POST, PATCH, DELETE, OPTIONS"
    assert answer.headers["access-control-max-age"] == "600"
    allowed = {name.lower() for name in answer.headers["access-control-allow-headers"].split(", ")}
    always = {"authorization", "content-type", "idempotency-key", "last-event-id"}
    assert always | {name.strip().lower() for name in asked.split(",") if name} <= allowed


async def test_a_preflight_does_not_allow_everything() -> None:
    client = make_harness(options=OPEN_TO_PAGE).client
    asked = {"Access-Control-Request-Headers": "x-evil, cookie, x-hermes-a b, x-stainless-os"}
    answer = await client.get(CHAT, {"Origin": PAGE, **asked}, "OPTIONS")
    allowed = answer.headers["access-control-allow-headers"].lower().split(", ")
    assert "x-stainless-os" in allowed
    assert not {"x-evil", "cookie", "x-hermes-a b"} & set(allowed)


def test_names_are_read_in_lower_case_and_the_first_of_each_counts() -> None:
    given = [(b"Host", b"a"), (b"host", b"b"), (b"X-Odd\xc4", b"\xe4"), (b"x-odd\xe4", b"d")]
    assert _first_values(given) == {"host": "a", "x-oddä": "ä"}
