"""The ``web_fetch`` tool, which returns a web page as text.

A model may be talked into fetching what only this machine can reach: services of the local network,
or the metadata addresses where clouds keep credentials. Each host name is therefore resolved here,
every address is checked, and the connection goes to a checked address, so that a second DNS answer
cannot differ (DNS rebinding). Each redirect is treated the same way. Proxy variables of the
environment are ignored.
"""

from __future__ import annotations

import codecs
import re
import socket
import zlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from html.parser import HTMLParser
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import httpx2
import trio
from attrs import field, frozen

from hermes_trio.core.errors import ConfigurationError
from hermes_trio.tools.base import Tool, ToolError, tool

FETCH_SECONDS = 30.0
MAX_CHARS = 50_000
MAX_BYTES = 5_000_000
MAX_REDIRECTS = 5

_HEADERS = {
    "User-Agent": "hermes-trio (web_fetch)",
    "Accept": "text/html, text/*;q=0.9, application/json;q=0.9, */*;q=0.1",
    "Accept-Encoding": "gzip, identity",
}
_TEXTUAL = re.compile(
    r"text/|application/(.*\+)?(json|xml|javascript|yaml|toml)$|application/x-(yaml|sh)$"
)
_ENCODINGS = ("identity", "gzip", "x-gzip", "deflate")

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
IpAddress = IPv4Address | IPv6Address
IpNetwork = IPv4Network | IPv6Network


def make_web_fetch(
    allow: tuple[str, ...] = (),
    seconds: float = FETCH_SECONDS,
    characters: int = MAX_CHARS,
    size: int = MAX_BYTES,
) -> Tool:
    """Create a tool that fetches pages.

    Args:
        allow: private networks that may be fetched from, such as ``10.0.0.0/8``.
        seconds: the time limit for one page, including redirects.
        characters: how much of the text the model gets.
        size: the maximum number of bytes to read.

    Raises:
        ConfigurationError: an entry of ``allow`` is not a network.
    """
    try:
        fetcher = Fetcher(parse_networks(allow), seconds=seconds, size=size)
    except ValueError as error:
        raise ConfigurationError(f"options of web_fetch: option 'allow': {error}") from error

    @tool
    async def web_fetch(url: str) -> str:
        """Fetch a web page and return its text.

        HTML is converted to plain text; other text is returned as it is.

        Args:
            url: starts with http:// or https://
        """
        text = await fetcher.fetch(url)
        left_out = len(text) - characters
        return (
            f"{text[:characters]}\n[{left_out} more characters]"
            if left_out > 0
            else text or "(empty)"
        )

    return web_fetch


# -- fetching --


async def resolve_host(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host."""
    found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


@frozen
class Fetcher:
    """Fetches text, and connects only to addresses that it has checked."""

    allowed: tuple[IpNetwork, ...] = ()
    seconds: float = FETCH_SECONDS
    size: int = MAX_BYTES
    redirects: int = MAX_REDIRECTS
    resolve: Resolver = resolve_host
    transport: httpx2.AsyncBaseTransport | None = field(default=None, repr=False)  # for tests

    async def fetch(self, url: str) -> str:
        """Return the text at a URL.

        Raises:
            ToolError: the page cannot be fetched, or must not be.
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
        except (
            UnicodeError,
            zlib.error,
        ) as error:  # an invalid host name, or invalid compressed data
            raise ToolError(f"{url}: {error}") from error

    async def _follow(self, url: str) -> str:
        client = httpx2.AsyncClient(trust_env=False, timeout=None, transport=self.transport)
        location = _parse_url(url)
        async with client:
            for _ in range(self.redirects + 1):
                request = client.stream(
                    "GET",
                    location.copy_with(host=await self._checked_address(location)),
                    headers={**_HEADERS, "Host": location.netloc.decode("ascii")},
                    extensions={"sni_hostname": location.host},
                )
                async with request as response:
                    if not response.has_redirect_location:
                        return await self._read_page(location, response)
                    location = _parse_url(str(location.join(response.headers["Location"])))
        raise ToolError(f"{url}: more than {self.redirects} redirects")

    async def _checked_address(self, url: httpx2.URL) -> str:
        """Return the first address of a host, provided that all its addresses may be reached.

        Raises:
            ToolError: one of the addresses is private.
        """
        addresses = await self.resolve(url.host, url.port or (443 if url.scheme == "https" else 80))
        for address in addresses:
            if not is_reachable(address, self.allowed):
                raise ToolError(
                    f"{url.host}: is at a private address, which this tool does not fetch from"
                )
        return addresses[0]

    async def _read_page(self, url: httpx2.URL, response: httpx2.Response) -> str:
        media_type, _, _ = response.headers.get("Content-Type", "text/plain").partition(";")
        media_type = media_type.strip().lower()
        if not _TEXTUAL.match(media_type):
            raise ToolError(f"{url}: is {media_type}, not text")
        data = await _read_body(response, self.size)
        try:
            charset = codecs.lookup(response.charset_encoding or "utf-8").name
        except LookupError:
            charset = "utf-8"
        text = data.decode(charset, "replace")
        if "html" in media_type:  # in a thread: a large page takes seconds
            text = await trio.to_thread.run_sync(html_to_text, text)
        if response.status_code >= 400:
            raise ToolError(f"{url}: HTTP {response.status_code}\n{text[:1000]}".strip())
        return text


def _reason(error: BaseException) -> str:
    """Return the first message along the chain of causes; TLS errors have theirs far down."""
    reason: BaseException | None = error
    while reason is not None and not str(reason):
        reason = reason.__cause__ or reason.__context__
    return str(reason or "no reason given")


def _parse_url(text: str) -> httpx2.URL:
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise ToolError(f"{text}: not a valid URL: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ToolError(f"{text}: only http:// and https:// URLs can be fetched")
    if url.userinfo:
        raise ToolError("URLs that contain a password are not fetched")
    return url


async def _read_body(response: httpx2.Response, size: int) -> bytes:
    """Read and decompress up to ``size`` bytes, so that a decompression bomb costs no more than that."""
    encoding = response.headers.get("Content-Encoding", "identity").lower()
    if encoding not in _ENCODINGS:
        raise ToolError(f"the page is compressed with {encoding}, which was not requested")
    is_compressed = encoding != "identity"
    decompressor = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    data = bytearray()
    async with aclosing(response.aiter_raw()) as pieces:
        async for piece in pieces:
            data += decompressor.decompress(piece, size - len(data)) if is_compressed else piece
            if len(data) >= size:
                break
    return bytes(data[:size])


# -- addresses --

# The special-purpose registries of IANA, written out: what ``ipaddress`` calls global changes with
# the version of Python. Of IPv6 only the global unicast block is public at all.
_SPECIAL = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
            "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
            "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
            "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
        ),
    )
)  # fmt: skip
_GLOBAL_UNICAST = ip_network("2000::/3")
_NAT64 = ip_network("64:ff9b::/96")


def parse_networks(texts: Iterable[str]) -> tuple[IpNetwork, ...]:
    """Parse networks such as ``10.0.0.0/8``; a single address is a network too.

    Raises:
        ValueError: a text is not a network.
    """
    return tuple(ip_network(text, strict=False) for text in texts)


def is_reachable(address: str, allowed: Iterable[IpNetwork]) -> bool:
    """Return True for public addresses and those in the allowed networks.

    An IPv6 address that stands for an IPv4 address is judged by that.
    """
    parsed = ip_address(address.partition("%")[0])
    embedded = _embedded_ipv4(parsed)
    if any(each in network for network in allowed for each in (parsed, *embedded)):
        return True
    return all(map(_is_public, embedded or (parsed,)))


def _is_public(address: IpAddress) -> bool:
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    return not any(address in network for network in _SPECIAL)


def _embedded_ipv4(address: IpAddress) -> tuple[IpAddress, ...]:
    """Return the IPv4 addresses that an IPv6 address may stand for."""
    if isinstance(address, IPv4Address):
        return ()
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64 or int(address) >> 32 == 0:
        found.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return tuple(each for each in found if each is not None)


# -- HTML --

_SKIPPED = frozenset(
    {"script", "style", "noscript", "template", "svg", "iframe", "object", "canvas", "select"}
)
_BLOCKS = frozenset(
    {
        "p", "div", "section", "article", "main", "header", "footer", "nav", "aside", "ul", "ol", "table", "form",
        "blockquote", "figure", "figcaption", "dl", "dt", "dd", "address", "title", "fieldset", "details", "summary",
    }
)  # fmt: skip
_HEADINGS = {f"h{level}": f"{'#' * level} " for level in range(1, 7)}


def html_to_text(html: str) -> str:
    """Convert a page to text.

    Headings, paragraphs, lists, links and preformatted text; no scripts or styles.
    """
    parser = _TextExtractor()
    parser.feed(html)
    parser.close()
    return parser.text()


class _TextExtractor(HTMLParser):
    """Collects text. Whitespace collapses to one space unless it is preformatted."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._parts: list[str] = []
        self._links: list[str] = []
        self._skipping = self._preformatted = 0

    def text(self) -> str:
        """Return the collected text, with at most one empty line in a row."""
        lines = [line.rstrip() for line in "".join(self._parts).split("\n")]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SKIPPED:
            self._skipping += 1
        elif tag == "pre":
            self._preformatted += 1
            self._break("```\n", empty=True)
        elif tag == "a":
            self._links.append(dict(attrs).get("href") or "")
        elif tag in _HEADINGS:
            self._break(_HEADINGS[tag], empty=True)
        else:
            self._start_element(tag)

    def _start_element(self, tag: str) -> None:
        if tag == "li":
            self._break("- ")
        elif tag in ("br", "tr", "hr"):
            self._break()
        elif tag in ("td", "th"):
            self._add(" | ")
        elif tag in _BLOCKS:
            self._break(empty=True)

    def handle_endtag(self, tag: str) -> None:
        if tag in _SKIPPED:
            self._skipping = max(self._skipping - 1, 0)
        elif tag == "pre":
            self._preformatted = max(self._preformatted - 1, 0)
            self._break("```")
            self._break(empty=True)
        elif tag == "a" and self._links:
            target = self._links.pop()
            if target.startswith(("http://", "https://", "/")):
                self._add(f" ({target})")
        elif tag in _BLOCKS or tag in _HEADINGS:
            self._break(empty=True)

    def handle_data(self, data: str) -> None:
        if self._preformatted:
            self._add(data)
            return
        text = re.sub(r"\s+", " ", data)
        before = self._parts[-1][-1:] if self._parts else "\n"
        self._add(text.lstrip() if before in ("\n", " ") else text)

    def _break(self, begin: str = "", *, empty: bool = False) -> None:
        self._add(("\n\n" if empty else "\n") + begin)

    def _add(self, text: str) -> None:
        if text and not self._skipping:
            self._parts.append(text)
