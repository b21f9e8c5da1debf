"""``python -m scripts.update_vendor``.

Fetch the third-party packages of the page, verify them, and copy their files.

Needs npm and the network. With ``--check`` nothing is fetched: the existing files are compared with
the list.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.vendored import FOLDER, Package, digest, packages, problems, strangers, unpack

PATIENCE = 120


def main(arguments: list[str]) -> int:
    """Return the exit code; problems are printed on standard error."""
    if "--check" not in arguments:
        for package in packages():
            _copy(package)
    wrong = [line for package in packages() for line in problems(package)]
    wrong += [f"{name} is not in the list" for name in strangers()]
    sys.stderr.writelines(f"{line}\n" for line in wrong)
    return 1 if wrong else 0


def _copy(package: Package) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", f"{package.name}@{package.version}"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=PATIENCE)
        for name, data in unpack(package, Path(folder, package.tarball).read_bytes()).items():
            (FOLDER / name).write_bytes(data)
            sys.stdout.write(f"{digest(data)}  {name}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
