"""What the key of a request allows: routes, agents, tools, limits and until when."""

from __future__ import annotations

import math
from typing import Any

import pytest
from quart_trio import QuartTrio
from trio.testing import wait_all_tasks_blocked

from hermes_trio.core.access import Access, Quota
from hermes_trio.core.events import Text
from hermes_trio.keys import Keyring, NamedKey
from hermes_trio.schema.openapi import OPERATIONS
from hermes_trio.web.auth import UNSCOPED_RULES, find_route_group
from hermes_trio.web.state import ServedProfile, WebOptions
from tests.support.asgi import HttpResponse
from tests.support.fakes import (
    CHAT,
    EPOCH,
    KEY,
    OTHER_KEY,
    AppHarness,
    Pause,
    ScriptedAgentFactory,
    ask,
    bearer,
    make_harness,
    open_harness,
)
from tests.web.test_page_session import FETCHED, SIGN_IN, cookie, signed_in

BOB = bearer(OTHER_KEY)
RUN = {"input": "Hello"}


def keyring(**allowed: Any) -> Keyring:
    """Ann's key allows what is given, Bob's everything."""
    for name in ("routes", "profiles", "tools"):
        if allowed.get(name) is not None:
            allowed[name] = frozenset(allowed[name])
    return Keyring((NamedKey("ann", KEY, Access(**allowed)), NamedKey("bob", OTHER_KEY)))


def assert_forbidden(answer: HttpResponse, param: str | None = None) -> None:
    assert answer.status == 403, answer.body
    assert answer.error["code"] == "insufficient_scope"
    assert answer.error["param"] == param
    assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]


async def own_route() -> tuple[str, int]:
    """A route of a program that embeds the server."""
    return "", 204


class TestRoutes:
    async def test_a_route_outside_the_scope_runs_nothing(self) -> None:
        harness = make_harness(keyring=keyring(routes=["sessions"]))
        assert_forbidden(await harness.client.send(CHAT, ask()))
        assert harness.agents.turns == []
        assert harness.is_idle
        assert (await harness.client.get("/api/sessions")).status == 200
        assert (await harness.client.send(CHAT, ask(), BOB)).status == 200

    async def test_read_is_not_write(self) -> None:
        async with open_harness(keyring=keyring(routes=["runs:read"])) as harness:
            run_id = (await harness.client.send("/v1/runs", RUN, BOB)).json["run_id"]
            refused = await harness.client.send("/v1/runs", RUN)
            assert_forbidden(refused)
            assert "'runs'" in refused.error["message"]
            assert (await harness.client.get("/v1/runs")).status == 200
            # Allowed, but another's
            ticket = await harness.client.send(f"/v1/runs/{run_id}/ticket", {})
            assert ticket.status == 404
            assert_forbidden(await harness.client.send(f"/v1/runs/{run_id}/stop", {}))

    @pytest.mark.parametrize("path", ["/v1/models", "/v1/capabilities", "/health", "/nowhere"])
    async def test_what_every_key_may_ask(self, path: str) -> None:
        harness = make_harness(keyring=keyring(routes=[]))
        assert (await harness.client.get(path)).status in (200, 404)

    @pytest.mark.parametrize(
        ("path", "scope"), [("/metrics", "metrics"), ("/health/detailed", "health")]
    )
    async def test_keys_for_operators(self, path: str, scope: str) -> None:
        harness = make_harness(keyring=keyring(routes=[scope]))
        assert (await harness.client.get(path)).status == 200
        assert_forbidden(await harness.client.get("/v1/settings"))

    async def test_routes_of_other_programs_are_a_group(self) -> None:
        for routes, status in (([], 403), (["other"], 204), (["other:read"], 204)):
            harness = make_harness(keyring=keyring(routes=routes))
            app = harness.client.app
            assert isinstance(app, QuartTrio)
            app.add_url_rule("/own", "own", own_route)
            assert (await harness.client.get("/own")).status == status

    def test_every_route_belongs_to_a_group(self) -> None:
        for operation in OPERATIONS:
            is_unscoped = operation.is_open or operation.path in UNSCOPED_RULES
            is_model = operation.path.startswith("/v1/models/")
            group = find_route_group(operation.path)
            assert group != "other" or is_unscoped or is_model, operation.path
        assert find_route_group("/v1/chatter") == "other"

    async def test_a_cookie_and_a_ticket_allow_no_more_than_the_key(self) -> None:
        keys = keyring(routes=["sessions", "runs:read"])
        async with open_harness(keyring=keys) as harness:
            client = harness.client
            client.headers = {**FETCHED, **cookie(await signed_in(harness))}
            assert (await client.get("/api/sessions")).status == 200
            assert_forbidden(await client.send(CHAT, ask()))
            harness.state.keys.keyring = keyring(routes=["chat"])
            assert_forbidden(await client.get("/api/sessions"))
            assert (await client.send(CHAT, ask())).status == 200


class TestExpiry:
    async def test_an_expired_key_is_refused(self) -> None:
        now = EPOCH
        harness = make_harness(keyring=keyring(expires_at=EPOCH + 10), wall_clock=lambda: now)
        assert (await harness.client.send(CHAT, ask())).status == 200
        session = await harness.client.get(SIGN_IN, FETCHED, "POST")
        assert session.json["expires_at"] == math.ceil(EPOCH + 10)
        now = EPOCH + 10
        refused = await harness.client.send(CHAT, ask())
        assert refused.status == 401
        assert refused.error["code"] == "api_key_expired"
        assert refused.headers["www-authenticate"] == "Bearer"
        assert (await harness.client.get("/health")).status == 200  # open to all

    async def test_tokens_of_an_expired_key_are_refused(self) -> None:
        harness = make_harness(keyring=keyring())
        harness.client.headers = {**FETCHED, **cookie(await signed_in(harness))}
        assert (await harness.client.get("/v1/models")).status == 200
        harness.state.keys.keyring = keyring(expires_at=EPOCH)
        assert (await harness.client.get("/v1/models")).error["code"] == "api_key_expired"
        harness.state.keys.keyring = Keyring(keyring().keys[1:])
        assert (await harness.client.get("/v1/models")).error["code"] == "page_session_expired"


OPTIONS = WebOptions(
    profiles=(ServedProfile("coder", "coder"), ServedProfile("writer", "Fine writer"))
)


def agents() -> dict[str, ScriptedAgentFactory]:
    return {name: ScriptedAgentFactory((Text(name),)) for name in ("coder", "writer")}


def several(**allowed: Any) -> AppHarness:
    """A server with two profiles beside its own agent."""
    return make_harness(
        (Text("own"),), options=OPTIONS, profile_agents=agents(), keyring=keyring(**allowed)
    )


class TestProfiles:
    async def test_only_the_agents_of_the_key(self) -> None:
        client = several(profiles=["coder"]).client
        assert (await client.send(CHAT, ask(model="coder"))).status == 200
        assert (await client.send(f"/p/coder{CHAT}", ask())).status == 200
        for model in ("Fine writer", "hermes-agent", "gpt-4o", ""):
            assert_forbidden(await client.send(CHAT, ask(model=model)), "model")
        for path in (f"/p/writer{CHAT}", f"/p/nobody{CHAT}"):  # known or not
            assert_forbidden(await client.send(path, ask()))

    async def test_only_they_are_listed(self) -> None:
        client = several(profiles=["coder"]).client
        models = (await client.get("/v1/models")).json["data"]
        assert [model["id"] for model in models] == ["coder"]
        assert (await client.get("/v1/capabilities")).json["model"] == "coder"
        client = several(profiles=[]).client
        assert (await client.get("/v1/models")).json["data"] == []
        assert (await client.get("/v1/capabilities")).json["model"] == ""

    async def test_the_own_agent_is_called_default(self) -> None:
        client = several(profiles=["default"]).client
        assert (await client.send(CHAT, ask(model="gpt-4o"))).status == 200
        assert_forbidden(await client.send(CHAT, ask(model="coder")), "model")


async def test_the_agent_learns_which_tools_the_key_allows() -> None:
    harness = make_harness(keyring=keyring(tools=["read_file"]))
    await harness.client.send(CHAT, ask())
    await harness.client.send(CHAT, ask(), BOB)
    mine, his = harness.agents.turns
    assert [mine.permits_tool(name) for name in ("read_file", "terminal")] == [True, False]
    assert his.permits_tool("terminal")


class TestQuotas:
    async def test_concurrent_runs_of_one_key(self) -> None:
        pause = Pause()
        agents = ScriptedAgentFactory([pause, Text("Hi")], is_async=True)
        keys = keyring(quota=Quota(runs=1))
        async with open_harness(agents, keyring=keys, max_runs=9) as harness:
            assert (await harness.client.send("/v1/runs", RUN)).status == 202
            refused = await harness.client.send("/v1/runs", RUN)
            assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
            assert int(refused.headers["retry-after"]) >= 1
            for _ in range(2):
                assert (await harness.client.send("/v1/runs", RUN, BOB)).status == 202
            pause.go()

    async def test_runs_per_minute_of_one_key(self) -> None:
        harness = make_harness(keyring=keyring(quota=Quota(runs_per_minute=1)))
        first, second = [await harness.client.send(CHAT, ask()) for _ in range(2)]
        assert first.headers["x-ratelimit-limit-requests"] == "1"
        assert second.status == 429
        assert 59 <= int(second.headers["retry-after"]) <= 60
        others = await harness.client.send(CHAT, ask(), BOB)
        assert others.status == 200
        assert "x-ratelimit-limit-requests" not in others.headers

    async def test_open_requests_of_one_key(self) -> None:
        pause = Pause()
        agents = ScriptedAgentFactory([pause, Text("Hi")], is_async=True)
        keys = keyring(quota=Quota(requests=1))
        async with open_harness(agents, keyring=keys, max_runs=9) as harness:
            run_id = (await harness.client.send("/v1/runs", RUN)).json["run_id"]
            async with harness.client.open("GET", f"/v1/runs/{run_id}/events"):
                await wait_all_tasks_blocked()
                assert (await harness.client.get("/v1/models")).status == 429
                assert (await harness.client.get("/v1/models", BOB)).status == 200
                pause.go()

    async def test_stored_bytes_of_one_key(self) -> None:
        keys = keyring(quota=Quota(stored_bytes=5_000))
        async with open_harness(options=OPTIONS, profile_agents=agents(), keyring=keys) as harness:
            client = harness.client
            body = {"input": "hello"}
            assert (await client.send("/v1/responses", body)).status == 200
            store = harness.state.services.store
            for _ in range(9):  # below the prefix of a profile, it counts as well
                if await store.stored_bytes("ann") + await store.stored_bytes("ann/writer") < 5_000:
                    assert (await client.send("/p/writer/v1/responses", body)).status == 200
            assert await store.stored_bytes("ann") < 5_000
            for path, asked in ((CHAT, ask()), ("/v1/runs", RUN), ("/api/sessions", {})):
                refused = await client.send(path, asked)
                assert (refused.status, refused.error["code"]) == (429, "storage_limit_exceeded")
                assert refused.headers["retry-after"] == "60"
            assert (await client.send("/v1/responses", body, BOB)).status == 200
            assert (await client.get("/api/sessions")).status == 200
            [session] = (await client.get("/api/sessions")).json["data"]
            deleted = await client.get(f"/api/sessions/{session['id']}", method="DELETE")
            assert deleted.status == 200
            assert (await client.send(CHAT, ask())).status == 200

    async def test_keys_of_one_principal_are_counted_together(self) -> None:
        limited = Access(quota=Quota(runs_per_minute=1))
        ring = Keyring(
            (
                NamedKey("ann", KEY, limited, "laptop"),
                NamedKey("ann", OTHER_KEY, limited, "phone"),
            )
        )
        harness = make_harness(keyring=ring)
        assert (await harness.client.send(CHAT, ask())).status == 200
        assert (await harness.client.send(CHAT, ask(), BOB)).status == 429


class TestAdministrators:
    async def test_an_administrator_sees_the_records_of_others(self) -> None:
        async with open_harness(keyring=keyring(is_admin=True)) as harness:
            client = harness.client
            run_id = (await client.send("/v1/runs", RUN, BOB)).json["run_id"]
            as_bob = {"X-Hermes-Principal": "bob"}
            await client.get(f"/v1/runs/{run_id}/events", as_bob)
            assert (await client.get(f"/v1/runs/{run_id}")).status == 404
            assert (await client.get(f"/v1/runs/{run_id}", as_bob)).status == 200
            assert [each["run_id"] for each in (await client.get("/v1/runs", as_bob)).json["data"]]
            assert (await client.get("/v1/runs")).json["data"] == []
            own = {"X-Hermes-Principal": "ann"}
            assert (await client.send("/v1/runs", RUN, own)).status == 202

    @pytest.mark.parametrize("path", ["/v1/runs", CHAT, "/api/sessions", "/v1/conversations"])
    async def test_nothing_is_made_in_the_name_of_others(self, path: str) -> None:
        harness = make_harness(keyring=keyring(is_admin=True))
        refused = await harness.client.send(path, RUN, {"X-Hermes-Principal": "bob"})
        assert_forbidden(refused, "X-Hermes-Principal")
        assert harness.agents.turns == []

    async def test_which_principals_there_are(self) -> None:
        async with open_harness(keyring=keyring(is_admin=True)) as harness:
            client = harness.client
            assert (await client.get("/api/principals")).json["data"] == []
            await client.send("/v1/responses", RUN)
            for _ in range(2):
                await client.send("/v1/responses", RUN, BOB)
            listed = (await client.get("/api/principals")).json["data"]
            assert [(each["principal"], each["runs"]) for each in listed] == [
                ("ann", 1),
                ("bob", 2),
            ]
            assert 0 < listed[0]["bytes"] < listed[1]["bytes"]
            assert_forbidden(await client.get("/api/principals", BOB))

    async def test_others_may_not_ask(self) -> None:
        harness = make_harness(keyring=keyring(is_admin=True))
        headers = {**BOB, "X-Hermes-Principal": "ann"}
        assert_forbidden(await harness.client.get("/v1/runs", headers), "X-Hermes-Principal")


def test_a_ring_finds_the_access_of_a_principal() -> None:
    expired, valid = Access(expires_at=EPOCH), Access(tools=frozenset())
    ring = Keyring((NamedKey("ann", KEY, expired, "old"), NamedKey("ann", OTHER_KEY, valid, "new")))
    assert ring.find_access("ann", EPOCH) == valid
    assert ring.find_access("ann", EPOCH - 1) == expired
    assert ring.find_access("bob", EPOCH) is None
