"""Searches a folder. This is a program of its own, and imports nothing but the standard library.

A regular expression can take for ever, and Python lets nothing else run meanwhile. Therefore
:mod:`hermes_trio.tools.search_files` runs this file in a child process, which can be killed.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from itertools import islice

SKIPPED = frozenset(
    {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".mypy_cache", ".ruff_cache"}
)
LARGEST = 20_000_000
LONGEST_LINE = 300
_PROBED = 8_192

Matcher = Callable[[str], bool]


def search(root: str, start: str, pattern: str, target: str, names: str, limit: int) -> Iterator[str]:
    """Lines that tell what was found, at most so many, and one more if there is more.

    Args:
        root: the workspace; paths are told relative to it, and nothing outside of it is read.
        start: the folder or file below it where the search begins.
        pattern: a regular expression for ``content``, or a glob for ``name``.
        target: one of these two.
        names: a glob; other files are not looked at.
        limit: how many lines.
    """
    wanted = matcher(names) if names else _any
    paths = (path for path in files_below(root, start) if wanted(path))
    for number, line in enumerate(islice(_found(root, paths, pattern, target), limit + 1)):
        yield line if number < limit else f"[there is more than these {limit}]"


def _found(root: str, paths: Iterator[str], pattern: str, target: str) -> Iterator[str]:
    if target == "name":
        yield from filter(matcher(pattern), paths)
        return
    compiled = re.compile(pattern)
    for path in paths:
        yield from lines_with(compiled, root, path)


def _any(_path: str) -> bool:
    return True


def matcher(glob: str) -> Matcher:
    """Tells whether a path fits a glob: its name, or the whole if the glob has a slash. No wildcard means a part."""
    if not re.search(r"[*?\[]", glob):
        return lambda path: glob in path
    fits = re.compile(fnmatch.translate(glob.removeprefix("./").replace("**/", "*"))).match
    return lambda path: bool(fits(path if "/" in glob else os.path.basename(path)))


def files_below(root: str, start: str) -> Iterator[str]:
    """All regular files, by name, relative to the root. Links are followed to files of the root, never to folders."""
    if os.path.isfile(start):
        yield os.path.relpath(start, root)
    for folder, subfolders, names in os.walk(start):
        subfolders[:] = sorted(set(subfolders) - SKIPPED)
        for name in sorted(names):
            path = os.path.join(folder, name)
            if is_inside(path, root) and os.path.isfile(path):
                yield os.path.relpath(path, root)


def is_inside(path: str, root: str) -> bool:
    """Whether a path, with its links followed, is below the root."""
    return not os.path.islink(path) or os.path.realpath(path).startswith(os.path.join(root, ""))


def lines_with(pattern: re.Pattern[str], root: str, path: str) -> Iterator[str]:
    """The lines of a file that match. Binary and huge files have none."""
    try:
        with open(os.path.join(root, path), "rb") as file:
            if b"\0" in file.read(_PROBED) or os.fstat(file.fileno()).st_size > LARGEST:
                return
            file.seek(0)
            for number, data in enumerate(file, 1):
                line = data.decode("utf-8", "replace").rstrip("\r\n")
                if pattern.search(line):
                    yield f"{path}:{number}: {line[:LONGEST_LINE]}{'…' * (len(line) > LONGEST_LINE)}"
    except OSError:
        return  # it may have gone, or be somebody else's


def main() -> None:
    """Read what to do from standard input; write what was found as it is found."""
    request = json.load(sys.stdin)
    try:
        for line in search(**request):
            sys.stdout.buffer.write(f"{line}\n".encode("utf-8", "replace"))
            sys.stdout.buffer.flush()
    except re.error as error:
        sys.stdout.write(f"{error}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
