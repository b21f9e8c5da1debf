"""Bytes that no proper client sends.

A server may answer with an error of the client's, close, or wait for more.
"""

from __future__ import annotations

from tests.support.fatal_packets import TRIGGERS
from tests.support.raw_http import UPGRADE

_HEAD = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"

HOSTILE = (
    b"\x00",
    b"\xff" * 100,
    b"\r\n\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET ?x HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET http://other/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /%00%ff%zz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /é HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(),
    b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",  # no host
    b"GET / HTTP/1.0\r\n\r\n",
    b"BREW /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    _HEAD + b"Host: another\r\n\r\n",
    _HEAD + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
    _HEAD + b"".join(b"X-%d: 1\r\n" % n for n in range(5_000)) + b"\r\n",
    _HEAD + b"No colon here\r\n\r\n",
    _HEAD + b": no name\r\n\r\n",
    _HEAD + b"X: a\x00b\r\n\r\n",
    _HEAD + b"X : space\r\n\r\n",
    _HEAD + b" folded: 1\r\n\r\n",
    _HEAD + b"Authorization: Bearer " + b"\xff" * 50 + b"\r\n\r\n",
    _HEAD + b"Content-Length: -1\r\n\r\n",
    _HEAD + b"Content-Length: 1e9\r\n\r\n",
    _HEAD + b"Content-Length: 99999999999999999999\r\n\r\n",
    _HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    _HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    _HEAD + b"Transfer-Encoding: gzip\r\n\r\n",
    _HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    _HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n",
    _HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello",
    _HEAD + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    _HEAD + b"Expect: the-unexpected\r\n\r\n",
    _HEAD + b"Connection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: !!!\r\n\r\n",
    UPGRADE,
    UPGRADE + b"x",
    UPGRADE + b"\x00\xff\xfe garbage\r\n\r\n" * 20,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 100,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\xff\xff\x04\x00\x00\x00\x00\x00",
    b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
    # the beginning of TLS, on a port that speaks none
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
)

BAD_BODIES = (
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b'{"messages": "\xc3"}',
    '{"messages": []}'.encode("utf-16"),
    b"\xef\xbb\xbf{}",
    b"[" * 100_000,
    b'{"a":' * 2_000 + b"1" + b"}" * 2_000,
    b'{"messages": NaN}',
    b'{"messages": 1e999}',
    b'{"messages": ' + b"9" * 10_000 + b"}",
    b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
    b'{"stream": true, "messages": [{"role": "user", "content": "\\u0000"}]}',
    b'{"messages": [{"role": "user"}]}',
    b'{"messages": [{"content": "x"}]}',
    b'{"messages": [[]]}',
    b'{"messages": [{"role": "user", "content": "nonsense"}], "stream": "yes"}',
    b'{"messages": [{"role": "user", "content": {"a": 1}}]}',
    b'{"messages": [{"role": "user", "content": "x"}], "model": 7}',
    b'{"messages": [{"role": "\\u0000", "content": "x"}]}',
)


async def hostile_h2(port: int) -> None:
    """What ended a server of this kind once, over HTTP/2 and WebSocket."""
    for trigger in TRIGGERS[1:]:  # the first needs a route of its own
        await trigger(port)
