"""The files of others are what their list says, to the byte."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile

import pytest
from attrs import evolve

from scripts.update_vendor import main
from scripts.vendored import FOLDER, Package, packages, problems, strangers, unpack


@pytest.mark.parametrize("package", packages(), ids=lambda package: package.name)
def test_the_files_are_those_of_the_package(package: Package) -> None:
    assert problems(package) == []
    assert any(name.endswith(".LICENSE.txt") for name in package.files.values())
    assert package.integrity.startswith("sha512-")


def test_every_file_is_in_the_list() -> None:
    assert strangers() == []
    assert main(["--check"]) == 0


def test_a_changed_file_is_noticed() -> None:
    first = packages()[0]
    name = next(iter(first.sha256))
    wrong = evolve(first, sha256={**first.sha256, name: "0" * 64})
    assert problems(wrong) == [f"{name} is not the file of {first.name} {first.version}"]
    assert len(problems(first, FOLDER.parent)) == len(first.files)


def archive(**files: bytes) -> bytes:
    """A package as npm packs it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as packed:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(data)
            packed.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def test_only_the_package_that_is_meant_is_unpacked() -> None:
    data = archive(LICENSE=b"free", code=b"1")
    right = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
    package = Package("x", "1", "MIT", right, {"LICENSE": "x.LICENSE.txt"}, {})
    assert unpack(package, data) == {"x.LICENSE.txt": b"free"}
    with pytest.raises(ValueError, match="has the hash"):
        unpack(evolve(package, integrity="sha512-other"), data)
