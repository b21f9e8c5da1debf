"""An answer of ours says what Quart's would say."""

from __future__ import annotations

import pytest
from quart import Response
from quart.utils import encode_headers
from quart.wrappers.response import DataBody

from hermes_trio.web.ready import Ready

FIELDS = {"Content-Type": "application/json", "X-Hermes-Session-Id": "ä b"}


@pytest.mark.parametrize("status", [200, 201, 404, 422, 503, 599])
def test_it_is_as_quart_would_make_it(status: int) -> None:
    ours = Ready(DataBody(b"{}"), status, {**FIELDS, "Content-Length": "2"})
    theirs = Response(b"{}", status, FIELDS)
    assert (ours.status, ours.status_code) == (theirs.status, theirs.status_code)
    assert ours.raw_headers() == encode_headers(ours.headers) == encode_headers(theirs.headers)
    assert ours.timeout is None
