"""The tool that fetches a page from the web.

A model may be talked into fetching what only this machine can reach: the services of its own network, or the addresses
where clouds keep credentials. Therefore each name is resolved here, every address that it has is checked, and the
connection goes to one that was checked. A second answer of the name server has no chance to differ. The same is done
anew for every redirect. Proxies of the environment are not used.
"""

from __future__ import annotations

import codecs
import re
import socket
import zlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing

import httpx2
import trio
from attrs import field, frozen

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.tools.addresses import Network, may_reach, read_networks
from hermes_trio.tools.base import Tool, ToolError, tool
from hermes_trio.tools.readable import readable

SECONDS = 30.0
CHARACTERS = 50_000
SIZE = 5_000_000
REDIRECTS = 5

_HEADERS = {
    "User-Agent": "hermes-trio (web_fetch)",
    "Accept": "text/html, text/*;q=0.9, application/json;q=0.9, */*;q=0.1",
    "Accept-Encoding": "gzip, identity",
}
_TEXTUAL = re.compile(r"text/|application/(.*\+)?(json|xml|javascript|yaml|toml)$|application/x-(yaml|sh)$")
_ENCODINGS = ("identity", "gzip", "x-gzip", "deflate")

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]


def make_web_fetch(
    allow: tuple[str, ...] = (), seconds: float = SECONDS, characters: int = CHARACTERS, size: int = SIZE
) -> Tool:
    """A tool that fetches pages.

    Args:
        allow: private networks that may be fetched from, such as ``10.0.0.0/8``.
        seconds: how long one page may take, redirects included.
        characters: how much of it the model gets.
        size: how many bytes are read at most.

    Raises:
        ConfigurationError: a network is none.
    """
    try:
        fetcher = Fetcher(read_networks(allow), seconds=seconds, size=size)
    except ValueError as error:
        raise ConfigurationError(f"options of web_fetch: option 'allow': {error}") from error

    @tool
    async def web_fetch(url: str) -> str:
        """Fetch a page of the web and return its text. HTML becomes plain text; other kinds of text stay as they are.

        Args:
            url: begins with http:// or https://
        """
        text = await fetcher.fetch(url)
        left_out = len(text) - characters
        return f"{text[:characters]}\n[{left_out} more characters]" if left_out > 0 else text or "(empty)"

    return web_fetch


async def resolve(host: str, port: int) -> Sequence[str]:
    """The addresses of a host."""
    found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


@frozen
class Fetcher:
    """Fetches texts from addresses that it has checked."""

    allowed: tuple[Network, ...] = ()
    seconds: float = SECONDS
    size: int = SIZE
    redirects: int = REDIRECTS
    resolve: Resolver = resolve
    transport: httpx2.AsyncBaseTransport | None = field(default=None, repr=False)  # for tests

    async def fetch(self, url: str) -> str:
        """The text behind a URL.

        Raises:
            ToolError: it cannot be had, or must not be.
        """
        try:
            with trio.fail_after(self.seconds):
                return await self._follow(url)
        except trio.TooSlowError:
            raise ToolError(f"{url}: took more than {self.seconds:g} seconds") from None
        except httpx2.HTTPError as error:
            raise ToolError(f"{url}: {type(error).__name__}: {_reason(error)}") from error
        except OSError as error:
            raise ToolError(f"{url}: {error.strerror or error}") from error
        except (UnicodeError, zlib.error) as error:  # a name that is none, data that was not packed
            raise ToolError(f"{url}: {error}") from error

    async def _follow(self, url: str) -> str:
        client = httpx2.AsyncClient(trust_env=False, timeout=None, transport=self.transport)
        place = _parsed(url)
        async with client:
            for _ in range(self.redirects + 1):
                async with self._stream(client, place, await self._address(place)) as response:
                    if not response.has_redirect_location:
                        return await self._text(place, response)
                    place = _parsed(str(place.join(response.headers["Location"])))
        raise ToolError(f"{url}: more than {self.redirects} redirects")

    async def _address(self, place: httpx2.URL) -> str:
        """The first of a host's addresses, if all of them may be reached.

        Raises:
            ToolError: one of them may not.
        """
        addresses = await self.resolve(place.host, place.port or (443 if place.scheme == "https" else 80))
        for address in addresses:
            if not may_reach(address, self.allowed):
                raise ToolError(f"{place.host}: is at a private address, which this tool does not fetch from")
        return addresses[0]

    def _stream(
        self, client: httpx2.AsyncClient, place: httpx2.URL, address: str
    ) -> AbstractAsyncContextManager[httpx2.Response]:
        headers = {**_HEADERS, "Host": place.netloc.decode("ascii")}
        return client.stream(
            "GET", place.copy_with(host=address), headers=headers, extensions={"sni_hostname": place.host}
        )

    async def _text(self, place: httpx2.URL, response: httpx2.Response) -> str:
        kind, _, _ = response.headers.get("Content-Type", "text/plain").partition(";")
        kind = kind.strip().lower()
        if not _TEXTUAL.match(kind):
            raise ToolError(f"{place}: is {kind}, not text")
        data = await _read(response, self.size)
        text = data.decode(_known(response.charset_encoding), "replace")
        text = readable(text) if "html" in kind else text
        if response.status_code >= 400:
            raise ToolError(f"{place}: HTTP {response.status_code}\n{text[:1000]}".strip())
        return text


def _reason(error: BaseException) -> str:
    """The first text among an error and what led to it; TLS errors have theirs far down."""
    reason: BaseException | None = error
    while reason is not None and not str(reason):
        reason = reason.__cause__ or reason.__context__
    return str(reason or "no reason given")


def _parsed(url: str) -> httpx2.URL:
    try:
        place = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise ToolError(f"{url}: is no URL: {error}") from error
    if place.scheme not in ("http", "https") or not place.host:
        raise ToolError(f"{url}: only http:// and https:// can be fetched")
    if place.userinfo:
        raise ToolError("a URL with a password in it is not fetched")
    return place


def _known(charset: str | None) -> str:
    try:
        return codecs.lookup(charset or "utf-8").name
    except LookupError:
        return "utf-8"


async def _read(response: httpx2.Response, size: int) -> bytes:
    """The first bytes. What is packed is unpacked as far as it is wanted, however much is in it."""
    encoding = response.headers.get("Content-Encoding", "identity").lower()
    if encoding not in _ENCODINGS:
        raise ToolError(f"the page is packed as {encoding}, which was not asked for")
    packed = encoding != "identity"
    unpack = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    data = bytearray()
    async with aclosing(response.aiter_raw()) as pieces:
        async for piece in pieces:
            data += unpack.decompress(piece, size - len(data)) if packed else piece
            if len(data) >= size:
                break
    return bytes(data[:size])
