"""Plain requests are read as h11 reads them, or not at all; answers are framed as h11 understands them."""

from __future__ import annotations

from typing import Any

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_trio.server.plain import PlainExchange, RawHeaders, read_head
from tests.server.apps import Receive, Send, body, lifespan, start
from tests.server.raw import ask, connect, get, read_to_end, read_until
from tests.server.running import serving

PLAIN = b"POST /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nX-Word:  two words \t\r\n\r\n"


def by_h11(data: bytes) -> type[h11.NEED_DATA | h11.PAUSED] | h11.Event:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    return connection.next_event()


# Pieces that heads are made of, good and bad ones, so that generated ones come close to the edge of what is plain.
NAMES = st.sampled_from(
    [b"Host", b"host", b"Content-Length", b"Transfer-Encoding", b"Connection", b"X-A", b"Expect", b"a b", b"", b"\xe9", b"X\x00"]
)  # fmt: skip
VALUES = st.sampled_from(
    [b"x", b"", b"3", b"03", b"+3", b"3, 3", b"1" * 30, b"chunked", b"close", b"two words", b"\xff", b"\x00", b"\x0b", b"a\rb", b"\x7f"]
)  # fmt: skip
SPACES = st.sampled_from([b"", b" ", b"\t ", b"\x0b"])
ENDS = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b"\r\n "])
LINES = st.builds(lambda *parts: b"".join(parts), NAMES, SPACES, st.just(b":"), SPACES, VALUES, SPACES, ENDS)
STARTS = st.builds(
    lambda *parts: b"".join(parts),
    st.sampled_from([b"GET", b"POST", b"get", b"HEAD", b"PRI"]),
    st.sampled_from([b" ", b"  ", b"\t"]),
    st.sampled_from([b"/", b"*", b"/%20?x", b"/\xe9", b"", b"http://a/b", b"/a b"]),
    st.sampled_from([b" HTTP/1.1", b" HTTP/1.0", b" HTTP/2.0", b"", b" HTTP/1.1 "]),
    ENDS,
)
HEADS = st.builds(
    lambda start, lines, end, rest: start + b"".join(lines) + end + rest,
    STARTS,
    st.lists(LINES | st.just(b"Host: x\r\n"), max_size=4),
    ENDS,
    st.binary(max_size=4),
)


@given(HEADS | st.binary(max_size=60))
def test_what_is_plain_is_what_h11_reads(data: bytes) -> None:
    head = read_head(data)
    if head is None:
        return
    request = by_h11(data)
    assert isinstance(request, h11.Request)
    assert (head.method.encode(), head.target, head.headers) == (
        request.method,
        request.target,
        list(request.headers),
    )


def test_a_plain_head() -> None:
    head = read_head(PLAIN + b"abcd")
    assert head is not None
    assert (head.method, head.target, head.length, head.closes) == ("POST", b"/a?b=c", 3, False)
    assert head.headers == [(b"host", b"x"), (b"content-length", b"3"), (b"x-word", b"two words")]
    assert head.size == len(PLAIN)


@pytest.mark.parametrize(
    "data",
    [
        PLAIN[:-1],
        PLAIN.replace(b"1.1", b"1.0"),
        PLAIN.replace(b"POST", b"HEAD"),
        PLAIN.replace(b"Host", b"Hostess"),
        PLAIN.replace(b"X-Word", b"Host"),
        PLAIN.replace(b"X-Word", b"Content-Length"),
        PLAIN.replace(b"X-Word", b"Transfer-Encoding"),
        PLAIN.replace(b"X-Word", b"Expect"),
        PLAIN.replace(b"X-Word", b"Upgrade"),
        PLAIN.replace(b"3\r", b"3a\r"),
        PLAIN.replace(b"3\r", b"-3\r"),
        PLAIN.replace(b"X-Word", b" folded"),
        PLAIN.replace(b"two", b"t\x01o"),
        b"\r\n" + PLAIN,
    ],
)
def test_not_plain(data: bytes) -> None:
    assert read_head(data) is None


def reply(status: int, headers: RawHeaders, parts: list[bytes], closes: bool = False) -> bytes:
    """A whole answer on the wire."""
    exchange = PlainExchange(0, closes)
    return b"".join([exchange.head(status, headers), *map(exchange.part, parts), exchange.end()])


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_that_has_no_body_gets_none(status: int) -> None:
    assert reply(status, [(b"x-a", b"b")], [b"not", b"this"]).endswith(b"x-a: b\r\n\r\n")


LENGTHS = st.lists(st.binary(max_size=9), max_size=4)


@given(LENGTHS, st.booleans(), st.booleans(), st.sampled_from([200, 201, 404, 503]))
def test_answers_are_what_h11_makes_of_them(
    parts: list[bytes], tells_length: bool, closes: bool, status: int
) -> None:
    body = b"".join(parts)
    headers = [(b"x-a", b"b")] + [(b"content-length", b"%d" % len(body))] * tells_length
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("host", "a")]))
    client.send(h11.EndOfMessage())
    client.receive_data(reply(status, headers, parts, closes))
    head, read = client.next_event(), b""
    while isinstance(event := client.next_event(), h11.Data):
        read += bytes(event.data)
    assert isinstance(head, h11.Response)
    assert isinstance(event, h11.EndOfMessage)
    assert (head.status_code, read) == (status, body)
    assert (client.their_state is h11.MUST_CLOSE) is closes
    assert client.trailing_data == (b"", False)


@pytest.mark.parametrize("status", [204, 304])
def test_answers_without_a_body(status: int) -> None:
    assert reply(status, [(b"content-length", b"5")], []).endswith(b"content-length: 5\r\n\r\n")
    assert b"transfer-encoding" not in reply(status, [], [])


@pytest.mark.parametrize(
    ("status", "header"),
    [
        (100, (b"a", b"b")),
        (200, (b"a", b"b\r\nc: d")),
        (200, (b"a", b"b\n")),
        (200, (b"a:", b"b")),
        (200, (b"", b"b")),
        (200, (b"a", b"\0")),
        (200, (b"transfer-encoding", b"gzip")),
    ],
)
def test_what_is_no_head_is_refused(status: int, header: tuple[bytes, bytes]) -> None:
    with pytest.raises(h11.LocalProtocolError):
        PlainExchange(0, False).head(status, [header])


@pytest.mark.parametrize("parts", [[b"four"], [b"ab", b"cd"], [b"ab"], []])
def test_a_length_is_a_promise(parts: list[bytes]) -> None:
    with pytest.raises(h11.LocalProtocolError):
        reply(200, [(b"content-length", b"3")], parts)


# -- on a real connection --


async def echo(scope: Any, receive: Receive, send: Send) -> None:
    """Says what it is told."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
        return
    told = b""
    while (message := await receive())["type"] == "http.request":
        told += message["body"]
        if not message["more_body"]:
            await start(send)
            await body(send, told or b"nothing")
            return


ECHO = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n"


async def test_a_body_in_pieces() -> None:
    async with serving(echo) as live, await connect(live.port) as stream:
        for piece in (ECHO, b"ab", b"c", b"d"):
            await stream.send_all(piece)
        assert (await read_until(stream, b"abcd")).startswith(b"HTTP/1.1 200")


async def test_requests_that_come_together_are_answered_one_after_the_other() -> None:
    chunked = b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nxy\r\n0\r\n\r\n"
    last = get("/", "Connection: close")
    async with serving(echo) as live:
        answers = await ask(live.port, ECHO + b"abcd" + ECHO + b"efgh" + chunked + ECHO + b"ijkl" + last)
    found = [answers.index(word) for word in (b"abcd", b"efgh", b"xy", b"ijkl", b"nothing")]
    assert found == sorted(found)
    assert answers.count(b"HTTP/1.1 200") == 5


async def test_a_client_that_ends_in_the_middle_of_a_body_hears_so() -> None:
    async with serving(echo) as live, await connect(live.port) as stream:
        await stream.send_all(ECHO + b"ab")
        await stream.send_eof()
        assert (await read_to_end(stream)).startswith(b"HTTP/1.1 400")
