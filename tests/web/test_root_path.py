"""A server below a path of a reverse proxy, whether the proxy strips that path or not."""

from __future__ import annotations

import pytest

from hermes_trio.core.events import Text
from hermes_trio.web.state import ServedProfile, WebOptions
from tests.support.fakes import make_harness

OPTIONS = WebOptions(root_path="/team/agents", profiles=(ServedProfile("coder", "coder"),))
PREFIXES = pytest.mark.parametrize("prefix", ["", "/team/agents"], ids=["stripped", "passed on"])


@PREFIXES
async def test_every_route_is_below_it(prefix: str) -> None:
    client = make_harness([Text("x")], options=OPTIONS).client
    assert (await client.get(f"{prefix}/health")).status == 200
    answer = await client.get(f"{prefix}/v1/models")
    assert [model["id"] for model in answer.json["data"]] == ["hermes-agent", "coder"]
    assert (await client.get(f"{prefix}/p/coder/v1/models")).status == 200
    assert (await client.get(f"{prefix}/nothing")).status == 404


@PREFIXES
async def test_the_page_and_its_files(prefix: str) -> None:
    client = make_harness(options=OPTIONS).client
    page = await client.get(f"{prefix}/")
    assert page.headers["content-type"].startswith("text/html")
    links = [part for part in page.body.decode().split('"') if part.startswith("page/")]
    assert links
    for link in links:
        assert (await client.get(f"{prefix}/{link}")).status == 200
    assert b'"/' not in page.body  # all links are relative


async def test_the_page_without_its_slash() -> None:
    """Links would be relative to the parent."""
    answer = await make_harness(options=OPTIONS).client.get("/team/agents")
    assert (answer.status, answer.headers["location"]) == (308, "/team/agents/")


@PREFIXES
async def test_a_page_of_a_profile_without_its_slash(prefix: str) -> None:
    answer = await make_harness(options=OPTIONS).client.get(f"{prefix}/p/coder")
    assert (answer.status, answer.headers["location"]) == (308, "./coder/")


@PREFIXES
async def test_a_browser_signs_in(prefix: str) -> None:
    client = make_harness(options=OPTIONS).client
    own = {"Origin": "http://server.test", "Host": "server.test"}
    signed_in = await client.get(f"{prefix}/api/sign-in", own, "POST")
    cookie = signed_in.headers["set-cookie"]
    assert "Path=/;" in f"{cookie};"
    client.headers = {}
    headers = {**own, "Cookie": cookie.partition(";")[0]}
    assert (await client.get(f"{prefix}/v1/models", headers)).status == 200


async def test_a_name_that_only_begins_alike_is_another_path() -> None:
    answer = await make_harness(options=OPTIONS).client.get("/team/agents2/health")
    assert answer.status == 404


async def test_the_openapi_document_names_it() -> None:
    answer = await make_harness(options=OPTIONS).client.get("/openapi.json")
    assert answer.json["servers"] == [{"url": "/team/agents"}]
    assert "servers" not in (await make_harness().client.get("/openapi.json")).json
