"""A request that came with its body is one of Quart's to whoever asks."""

from __future__ import annotations

from typing import Any

import pytest
from quart_trio import QuartTrio
from quart_trio.asgi import TrioASGIHTTPConnection
from werkzeug.exceptions import RequestEntityTooLarge

from hermes_trio.web.whole import WholeRequest

BODY = "grüß".encode()


async def send_nothing(_: object) -> None:
    """Nobody is to call it."""


def scope(**changed: object) -> dict[str, Any]:
    return {
        "type": "http",
        "method": "POST",
        "scheme": "http",
        "http_version": "1.1",
        "path": "//v1/a b",
        "query_string": b"after=x&limit=3",
        "root_path": "",
        "headers": [(b"host", b"here"), (b"x-twice", b"1"), (b"x-twice", b"2"), (b"x-name", "é".encode("latin-1"))],
        "client": ("127.0.0.9", 5),
        "server": ("127.0.0.1", 80),
        **changed,
    }  # fmt: skip


@pytest.mark.parametrize("client", [("127.0.0.9", 5), None])
async def test_it_says_the_same_as_quart_s(client: object) -> None:
    known: Any = scope(client=client)
    app = QuartTrio("test")
    theirs = TrioASGIHTTPConnection(app, known)._create_request_from_scope(send_nothing)
    ours = WholeRequest(known, BODY, 100)
    for name in (
        "method",
        "scheme",
        "path",
        "query_string",
        "root_path",
        "http_version",
        "remote_addr",
        "url",
    ):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert list(ours.headers) == list(theirs.headers)
    assert ours.args == theirs.args
    assert ours.host == theirs.host


async def test_the_body_is_there() -> None:
    request = WholeRequest(scope(), BODY, len(BODY))
    assert await request.get_data() == BODY
    assert await request.get_data(as_text=True) == "grüß"


async def test_a_body_that_nothing_announced_has_its_limit_too() -> None:
    with pytest.raises(RequestEntityTooLarge):
        await WholeRequest(scope(), BODY, len(BODY) - 1).get_data()
