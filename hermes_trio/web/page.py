"""The page: static files of the package, served as they are. There is no build step, and nothing comes from elsewhere.

The files are read once, when the application is made. Their path has a digest of all of them in it, so browsers keep
them for good and a new version of the server is a new path; only the document itself is asked for again each time.
Nothing here is secret and nothing needs a key: whoever opens the page signs in with one, and the page sends it along.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

from attrs import frozen
from quart import Response, request

from hermes_trio.core.errors import ApiError
from hermes_trio.web.asked import visit

FOLDER = Path(__file__).parents[1] / "page"
DOCUMENT = "index.html"
ASSETS = "/page/"  # what all other files begin with
PLACE = b"{{assets}}"  # where the document names their folder

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
ASK_AGAIN = "no-cache"
FOR_GOOD = "public, max-age=31536000, immutable"


@frozen
class Asset:
    """One file, as it is and packed."""

    kind: str
    plain: bytes
    packed: bytes
    digest: str

    @classmethod
    def of(cls, name: str, data: bytes) -> Asset:
        """A file by its name."""
        return cls(TYPES[Path(name).suffix], data, gzip.compress(data, mtime=0), _digest(data))


@frozen
class Page:
    """All files of the page by their names, the document apart."""

    document: Asset
    assets: Mapping[str, Asset]
    digest: str


def load_page(folder: Path = FOLDER) -> Page:
    """Read the files."""
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in _files(folder)}
    document = files.pop(DOCUMENT)
    digest = _digest(b"".join(_digest(name.encode() + b"\0" + data).encode() for name, data in files.items()))
    assets = {name: Asset.of(name, data) for name, data in files.items()}
    place = f"{ASSETS.strip('/')}/{digest}".encode("ascii")
    return Page(Asset.of(DOCUMENT, document.replace(PLACE, place)), assets, digest)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.suffix in TYPES)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:20]


async def document(page: Page) -> Response:
    """The document. Its links are relative, so that it works below a profile's prefix too."""
    if visit().profile and not request.scope["raw_path"].endswith(b"/"):
        return Response(b"", 308, {"Location": f"./{quote(visit().profile, safe='')}/"})
    return _answer(page.document, ASK_AGAIN)


async def asset(page: Page, digest: str, name: str) -> Response:
    """One of the other files.

    Raises:
        ApiError: 404, also for those of another version.
    """
    if digest != page.digest or name not in page.assets:
        raise ApiError(404, "There is nothing at this path.", code="not_found")
    return _answer(page.assets[name], FOR_GOOD)


def _answer(found: Asset, caching: str) -> Response:
    is_packed = request.accept_encodings.quality("gzip") > 0
    tag = f"{found.digest}-gzip" if is_packed else found.digest
    headers = {
        "Cache-Control": caching,
        "Content-Security-Policy": POLICY,
        "ETag": f'"{tag}"',
        "Vary": "Accept-Encoding, Origin",
    }
    if request.if_none_match.contains(tag):
        return Response(b"", 304, headers)
    if is_packed:
        headers["Content-Encoding"] = "gzip"
    return Response(found.packed if is_packed else found.plain, 200, {"Content-Type": found.kind, **headers})


def is_page(path: str) -> bool:
    """Whether a path is one of the page's, which are open and the same for all profiles."""
    return path == "/" or path.startswith(ASSETS)
