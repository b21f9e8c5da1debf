"""The third-party files of the page: where each comes from, and its hash.

``hermes_trio/page/vendor/vendor.json`` is the list. The files are unmodified copies from npm packages.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
from pathlib import Path

from attrs import frozen

FOLDER = Path(__file__).parents[1] / "hermes_trio" / "page" / "vendor"
LIST = "vendor.json"


@frozen
class Package:
    """A package on npm. ``integrity`` is npm's own: SHA-512 in base64."""

    name: str
    version: str
    licence: str
    integrity: str
    files: dict[str, str]  # of ours, by their names there
    sha256: dict[str, str]  # by our names

    @property
    def tarball(self) -> str:
        """The name of the file that ``npm pack`` writes."""
        return f"{self.name.removeprefix('@').replace('/', '-')}-{self.version}.tgz"


def packages() -> list[Package]:
    """Return the packages in the list."""
    return [Package(**entry) for entry in json.loads((FOLDER / LIST).read_text("utf-8"))]


def problems(package: Package, folder: Path = FOLDER) -> list[str]:
    """Return the differences from the list."""
    return [
        f"{name} is not the file of {package.name} {package.version}"
        for name in package.files.values()
        if not (folder / name).is_file()
        or digest((folder / name).read_bytes()) != package.sha256.get(name)
    ]


def strangers(folder: Path = FOLDER) -> list[str]:
    """Return the files that are not in the list."""
    known = {name for package in packages() for name in package.files.values()} | {LIST}
    return sorted({path.name for path in folder.iterdir()} - known)


def unpack(package: Package, tarball: bytes) -> dict[str, bytes]:
    """Return the files of a downloaded package, by their names in the repository.

    Raises:
        ValueError: it is not the package in the list.
    """
    found = "sha512-" + base64.b64encode(hashlib.sha512(tarball).digest()).decode("ascii")
    if found != package.integrity:
        raise ValueError(f"{package.tarball} has the hash {found}")
    with tarfile.open(fileobj=io.BytesIO(tarball)) as archive:
        return {
            ours: _member(archive, f"package/{theirs}") for theirs, ours in package.files.items()
        }


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.extractfile(name)
    if member is None:
        raise ValueError(f"{name} is no file")
    return member.read()


def digest(data: bytes) -> str:
    """Return the SHA-256 in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()
