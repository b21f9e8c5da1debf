"""Fetching pages: only from checked addresses, at every redirect, within limits."""

from __future__ import annotations

import gzip
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import httpx2
import pytest
import trio
import trustme
from attrs import Factory, define

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.tools.base import ToolError, ToolUse
from hermes_trio.tools.registry import find_tools
from hermes_trio.tools.web_fetch import (
    Fetcher,
    html_to_text,
    is_reachable,
    make_web_fetch,
    parse_networks,
)

LOOPBACK = parse_networks(["127.0.0.0/8"])
PUBLIC = "93.184.216.34"


@define
class Names:
    """A scripted resolver. If a name has several answers, they are given in turn."""

    answers: Mapping[str, Sequence[Sequence[str]]]
    asked: list[str] = Factory(list)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        answers = self.answers[host]
        self.asked.append(host)
        return answers[min(self.asked.count(host), len(answers)) - 1]


Handler = Callable[[httpx2.Request], httpx2.Response]


def respond(answer: httpx2.Response, _: httpx2.Request) -> httpx2.Response:
    """Give the same answer to every request."""
    return answer


def fetcher(handle: Handler, names: Names, **settings: float) -> Fetcher:
    """Return a fetcher whose network is a function."""
    return Fetcher(resolve=names, transport=httpx2.MockTransport(handle), **settings)  # type: ignore[arg-type]


def answer(data: bytes, kind: str = "text/plain", status: int = 200) -> httpx2.Response:
    """Return a response whose body has not been read yet."""
    return httpx2.Response(status, headers={"Content-Type": kind}, stream=httpx2.ByteStream(data))


def page(text: str = "hello", kind: str = "text/plain") -> Handler:
    return lambda _request: answer(text.encode(), kind)


async def refusal(fetch: Fetcher, url: str) -> str:
    with pytest.raises(ToolError) as caught:
        await fetch.fetch(url)
    return str(caught.value)


class TestAddresses:
    @pytest.mark.parametrize(
        "address",
        [
            "127.0.0.1", "127.9.9.9", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
            "224.0.0.1", "255.255.255.255", "198.18.0.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fd00::1", "fc00::1",
            "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::", "::127.0.0.1",
            "fd00:ec2::254", "192.0.2.1", "240.0.0.1", "2002:a00:1::1",
        ],
    )  # fmt: skip
    def test_private(self, address: str) -> None:
        assert not is_reachable(address, ())

    @pytest.mark.parametrize(
        "address",
        [
            "192.0.0.192", "192.0.0.9", "192.88.99.1", "198.19.255.255", "240.0.0.1", "255.255.255.255",
            "64:ff9b:1::7f00:1", "64:ff9b:1::101:101", "fec0::1", "::ffff:0:127.0.0.1", "::ffff:0:1.1.1.1",
            "2001:db8::1", "2001:2::1", "3fff::1", "5f00::1", "100::1", "4000::1", "2002:7f00:1::1",
        ],
    )  # fmt: skip
    def test_special_ranges_on_every_version_of_python(self, address: str) -> None:
        assert not is_reachable(address, ())

    @pytest.mark.parametrize(
        "address", [PUBLIC, "1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]
    )
    def test_public(self, address: str) -> None:
        assert is_reachable(address, ())

    def test_allowed(self) -> None:
        allowed = parse_networks(["10.0.0.0/8", "::1"])
        assert is_reachable("10.9.9.9", allowed)
        assert is_reachable("::1", allowed)
        assert is_reachable("::ffff:10.0.0.1", allowed)
        assert not is_reachable("127.0.0.1", allowed)


class TestUrls:
    async def test_the_checked_address_is_the_one_that_is_used(self) -> None:
        seen: list[httpx2.Request] = []

        def handle(request: httpx2.Request) -> httpx2.Response:
            seen.append(request)
            return answer(b"hello")

        names = Names({"site.test": [[PUBLIC], ["127.0.0.1"]]})  # the second answer is the trap
        assert await fetcher(handle, names).fetch("https://site.test:8443/a?b=c") == "hello"
        assert names.asked == ["site.test"]
        assert str(seen[0].url) == f"https://{PUBLIC}:8443/a?b=c"
        assert seen[0].headers["Host"] == "site.test:8443"
        assert seen[0].extensions["sni_hostname"] == "site.test"

    @pytest.mark.parametrize(
        "answer", [["127.0.0.1"], [PUBLIC, "10.0.0.1"], ["::1"], ["169.254.169.254"]]
    )
    async def test_private_places_are_refused(self, answer: list[str]) -> None:
        said = await refusal(fetcher(page(), Names({"site.test": [answer]})), "http://site.test/")
        assert said == "site.test: is at a private address, which this tool does not fetch from"

    @pytest.mark.parametrize(
        "host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::1]", "[::ffff:7f00:1]", "0"]
    )
    async def test_ways_to_write_this_machine(self, host: str) -> None:
        with pytest.raises(ToolError, match=r"private address|Name or service|not a valid URL"):
            await Fetcher().fetch(f"http://{host}:1/")

    async def test_redirects_are_checked_too(self) -> None:
        def handle(request: httpx2.Request) -> httpx2.Response:
            return httpx2.Response(302, headers={"Location": "http://inside.test/keys"})

        names = Names({"site.test": [[PUBLIC]], "inside.test": [["169.254.169.254"]]})
        assert "inside.test: is at a private address" in await refusal(
            fetcher(handle, names), "http://site.test/"
        )

    async def test_a_name_that_moves_inside_between_two_hops(self) -> None:
        def handle(request: httpx2.Request) -> httpx2.Response:
            return httpx2.Response(302, headers={"Location": "/again"})

        names = Names({"site.test": [[PUBLIC], ["127.0.0.1"]]})
        assert "private address" in await refusal(fetcher(handle, names), "http://site.test/")

    async def test_redirects_are_followed_and_counted(self) -> None:
        def handle(request: httpx2.Request) -> httpx2.Response:
            number = int(request.url.path[1:])
            more = httpx2.Response(301, headers={"Location": f"../{number - 1}"})
            return more if number else answer(request.headers["Host"].encode() + b" end")

        fetch = fetcher(handle, Names({"site.test": [[PUBLIC]]}))
        assert await fetch.fetch("http://site.test/5") == "site.test end"
        assert (
            await refusal(fetch, "http://site.test/6")
            == "http://site.test/6: more than 5 redirects"
        )

    @pytest.mark.parametrize(
        "target", ["file:///etc/passwd", "ftp://site.test/", "gopher://site.test/", "http://"]
    )
    async def test_other_schemes(self, target: str) -> None:
        def handle(_request: httpx2.Request) -> httpx2.Response:
            return httpx2.Response(302, headers={"Location": target})

        fetch = fetcher(handle, Names({"site.test": [[PUBLIC]]}))
        assert await refusal(fetch, target)
        assert await refusal(fetch, "http://site.test/")

    async def test_passwords_are_not_sent(self) -> None:
        assert "password" in await refusal(
            fetcher(page(), Names({})), "http://me:secret@site.test/"
        )


class TestPages:
    names = Names({"site.test": [[PUBLIC]]})

    async def fetch(self, handle: Handler, **settings: float) -> str:
        return await fetcher(handle, self.names, **settings).fetch("http://site.test/")

    async def test_kinds(self) -> None:
        assert (
            await self.fetch(page("<h1>Hi</h1><script>no</script>", "text/html; charset=utf-8"))
            == "# Hi"
        )
        assert await self.fetch(page('{"a": 1}', "application/json")) == '{"a": 1}'
        assert await self.fetch(page("<a/>", "application/rss+xml")) == "<a/>"
        with pytest.raises(ToolError, match="is image/png, not text"):
            await self.fetch(page("x", "image/png"))

    async def test_characters(self) -> None:
        def latin(_request: httpx2.Request) -> httpx2.Response:
            return answer(b"\xe9", "text/plain; charset=latin-1")

        def unknown(_request: httpx2.Request) -> httpx2.Response:
            return answer(b"\xff", "text/plain; charset=nope")

        assert await self.fetch(latin) == "é"
        assert await self.fetch(unknown) == "\ufffd"

    async def test_failures_tell_the_status(self) -> None:
        with pytest.raises(ToolError, match=r"(?s)HTTP 404.*not here"):
            await self.fetch(lambda _request: answer(b"not here", status=404))

    async def test_what_is_read_is_bounded(self) -> None:
        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield b"x" * 1000

        assert (
            await self.fetch(lambda _request: httpx2.Response(200, content=endless()), size=2500)
            == "x" * 2500
        )

    @pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
    async def test_a_packed_page_is_unpacked_as_far_as_wanted(
        self, pack: Callable[[bytes], bytes]
    ) -> None:
        async def bomb() -> AsyncIterator[bytes]:
            yield pack(b"x" * 5_000_000)

        headers = {"Content-Type": "text/plain", "Content-Encoding": "gzip"}
        text = await self.fetch(
            lambda _request: httpx2.Response(200, content=bomb(), headers=headers), size=2500
        )
        assert text == "x" * 2500

    async def test_wrongly_packed_pages(self) -> None:
        async def plain() -> AsyncIterator[bytes]:
            yield b"hello"

        for encoding, said in (("gzip", "incorrect header"), ("br", "compressed with br")):
            answer = httpx2.Response(200, content=plain(), headers={"Content-Encoding": encoding})
            with pytest.raises(ToolError, match=said):
                await self.fetch(partial(respond, answer))

    async def test_a_slow_page_is_given_up(self, autojump_clock: object) -> None:
        async def slow() -> AsyncIterator[bytes]:
            yield b"x"
            await trio.sleep_forever()

        with pytest.raises(ToolError, match="took more than 30 seconds"):
            await self.fetch(lambda _request: httpx2.Response(200, content=slow()))


@asynccontextmanager
async def serving(answer: bytes, ssl_context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve the same response to every connection, on a loopback port."""

    async def handle(stream: trio.abc.Stream) -> None:
        if ssl_context is not None:
            stream = trio.SSLStream(stream, ssl_context, server_side=True, https_compatible=True)
        try:
            await stream.receive_some()
            await stream.send_all(answer)
            await stream.aclose()
        except trio.BrokenResourceError:
            pass  # a client that does not like our certificate

    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, handle, 0, host="127.0.0.1")
        listeners: list[trio.SocketListener] = await nursery.start(serve)
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


HELLO = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"


async def test_a_real_connection() -> None:
    async with serving(HELLO) as port:
        assert await Fetcher(LOOPBACK).fetch(f"http://127.0.0.1:{port}/") == "hello"
        assert "private address" in await refusal(Fetcher(), f"http://127.0.0.1:{port}/")


async def test_certificates_are_checked_against_the_name() -> None:
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("good.test").configure_cert(server)
    authority.configure_trust(client)
    names = Names({"good.test": [["127.0.0.1"]], "bad.test": [["127.0.0.1"]]})
    async with serving(HELLO, server) as port:

        def fetch() -> Fetcher:
            return Fetcher(
                LOOPBACK, resolve=names, transport=httpx2.AsyncHTTPTransport(verify=client)
            )

        assert await fetch().fetch(f"https://good.test:{port}/") == "hello"
        assert "CERTIFICATE_VERIFY_FAILED" in await refusal(fetch(), f"https://bad.test:{port}/")


async def test_servers_that_speak_nonsense() -> None:
    async with serving(b"nonsense\r\n\r\n") as port:
        assert "Error" in await refusal(Fetcher(LOOPBACK), f"http://127.0.0.1:{port}/")


async def test_connection_refused() -> None:
    async with serving(b"") as port:
        pass
    assert "ConnectError" in await refusal(Fetcher(LOOPBACK), f"http://127.0.0.1:{port}/")


async def test_the_tool() -> None:
    use = ToolUse("call_1", Path("/nowhere"))
    async with serving(HELLO) as port:
        url = {"url": f"http://127.0.0.1:{port}/"}
        [tool] = find_tools(["web_fetch"], {"web_fetch": {"allow": ["127.0.0.1"], "characters": 3}})
        assert await tool.run(url, use) == "hel\n[2 more characters]"
        with pytest.raises(ToolError, match="private address"):
            await make_web_fetch().run(url, use)


def test_invalid_networks() -> None:
    with pytest.raises(ConfigurationError, match="options of web_fetch: option 'allow': 'nowhere'"):
        find_tools(["web_fetch"], {"web_fetch": {"allow": ["nowhere"]}})


@pytest.mark.parametrize(
    ("html", "text"),
    [
        (
            "<title>T</title><h1>A <b>b</b></h1><p>one\n two<p>three",
            "T\n\n# A b\n\none two\n\nthree",
        ),
        ("<ul><li>a<li>b</ul>c", "- a\n- b\n\nc"),
        ("<a href='https://h/x'>link</a>, <a href='#top'>top</a>", "link (https://h/x), top"),
        ("<pre>a\n  b</pre>c", "```\na\n  b\n```\n\nc"),
        ("a<script>x<y</script><style>p{}</style>b&amp;c&nbsp;d", "ab&c d"),
        ("<table><tr><td>1<td>2<tr><td>3</table>", "| 1 | 2\n | 3"),
        ("a<br>b<hr>c", "a\nb\nc"),
        ("</script></pre></a>still here", "```\n\nstill here"),
        ("<!-- no -->a<p", "a<p"),
    ],
)
def test_html_to_text(html: str, text: str) -> None:
    assert html_to_text(html) == text
