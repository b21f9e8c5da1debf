"""The web page: static files of the package, served without a key.

The files are read once per process. Their path holds a digest of all of them, so browsers cache
them for good and a new version of the server uses a new path; only the document itself is
revalidated each time. Nothing here is secret: the page asks for a key and sends it with its API
requests.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

from attrs import frozen
from quart import Blueprint, Response, request

from hermes_trio.core.errors import ApiError
from hermes_trio.web.request import current_request

FOLDER = Path(__file__).parents[1] / "page"
DOCUMENT = "index.html"
ASSETS = "/page/"  # path prefix of all other files
ASSETS_PLACEHOLDER = b"{{assets}}"  # where the document names their folder

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
}
POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
REVALIDATE = "no-cache"
IMMUTABLE = "public, max-age=31536000, immutable"


@frozen
class Asset:
    """One file, plain and compressed."""

    kind: str
    plain: bytes
    compressed: bytes
    digest: str

    @classmethod
    def from_file(cls, name: str, data: bytes) -> Asset:
        """Make an asset of a file's content; its name gives the content type."""
        return cls(TYPES[Path(name).suffix], data, gzip.compress(data, mtime=0), _digest(data))


@frozen
class Page:
    """The document, and all other files by name."""

    document: Asset
    assets: Mapping[str, Asset]
    digest: str


def load_page(folder: Path = FOLDER) -> Page:
    """Read the files."""
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in _files(folder)}
    document = files.pop(DOCUMENT)
    digest = _digest(
        b"".join(_digest(name.encode() + b"\0" + data).encode() for name, data in files.items())
    )
    assets = {name: Asset.from_file(name, data) for name, data in files.items()}
    folder_path = f"{ASSETS.strip('/')}/{digest}".encode("ascii")
    return Page(
        Asset.from_file(DOCUMENT, document.replace(ASSETS_PLACEHOLDER, folder_path)), assets, digest
    )


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.suffix in TYPES)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:20]


def make_page_blueprint(page: Page) -> Blueprint:
    """Return the routes of a page."""
    blueprint = Blueprint("page", __name__)

    @blueprint.get("/")
    async def document() -> Response:
        """Serve the document.

        Its links are relative, so that it works below a profile's prefix too.
        """
        profile = current_request().profile
        if profile and not request.scope.get("raw_path", b"/").endswith(b"/"):
            return Response(b"", 308, {"Location": f"./{quote(profile, safe='')}/"})
        return _asset_response(page.document, REVALIDATE)

    @blueprint.get("/page/<digest>/<path:name>")
    async def asset(digest: str, name: str) -> Response:
        """Serve another file; 404 for files of another version."""
        if digest != page.digest or name not in page.assets:
            raise ApiError(404, "There is nothing at this path.", code="not_found")
        return _asset_response(page.assets[name], IMMUTABLE)

    return blueprint


def _asset_response(asset: Asset, caching: str) -> Response:
    is_compressed = request.accept_encodings.quality("gzip") > 0
    etag = f"{asset.digest}-gzip" if is_compressed else asset.digest
    headers = {
        "Cache-Control": caching,
        "Content-Security-Policy": POLICY,
        "ETag": f'"{etag}"',
        "Vary": "Accept-Encoding, Origin",
    }
    if request.if_none_match.contains(etag):
        return Response(b"", 304, headers)
    if is_compressed:
        headers["Content-Encoding"] = "gzip"
    data = asset.compressed if is_compressed else asset.plain
    return Response(data, 200, {"Content-Type": asset.kind, **headers})
