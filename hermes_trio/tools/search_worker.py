"""The search program, run as a child process by :mod:`hermes_trio.tools.search`.

It imports nothing but the standard library, so that it starts quickly and runs isolated (``python
-I -S``).
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from itertools import islice

SKIPPED_DIRECTORIES = frozenset(
    {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".mypy_cache", ".ruff_cache"}
)
MAX_FILE_BYTES = 20_000_000
MAX_LINE_CHARS = 300
EXIT_BAD_PATTERN = 2
_BINARY_PROBE_BYTES = 8_192


def search(
    root: str, start: str, pattern: str, target: str, names: str, limit: int
) -> Iterator[str]:
    """Yield up to ``limit`` lines of results, and a final note if there are more.

    Args:
        root: the workspace; results are relative to it, and nothing outside it is read.
        start: the directory or file in the workspace to search.
        pattern: a regular expression for ``content``, or a glob for ``name``.
        target: ``content`` or ``name``.
        names: a glob that file names must match; empty for all files.
        limit: the maximum number of results.

    Raises:
        re.error: the pattern is not a valid regular expression.
    """
    paths = iter_files(root, start)
    if names:
        paths = filter(glob_matcher(names), paths)
    if target == "name":
        results: Iterator[str] = filter(glob_matcher(pattern), paths)
    else:
        compiled = re.compile(pattern)
        results = (line for path in paths for line in matching_lines(compiled, root, path))
    for number, line in enumerate(islice(results, limit + 1)):
        yield line if number < limit else f"[more than {limit} results]"


def glob_matcher(glob: str) -> Callable[[str], bool]:
    """Return a predicate for paths.

    A glob matches the file name, or the whole path if it contains a slash. Without wildcards it
    matches any path that contains it.
    """
    if not re.search(r"[*?\[]", glob):
        return lambda path: glob in path
    match = re.compile(fnmatch.translate(glob.removeprefix("./").replace("**/", "*"))).match
    return lambda path: bool(match(path if "/" in glob else os.path.basename(path)))


def iter_files(root: str, start: str) -> Iterator[str]:
    """Yield all regular files, sorted by name, relative to ``root``.

    Links to files inside the root are followed; links to directories are not.
    """
    if os.path.isfile(start):
        yield os.path.relpath(start, root)
    for directory, subdirectories, names in os.walk(start):
        subdirectories[:] = sorted(set(subdirectories) - SKIPPED_DIRECTORIES)
        for name in sorted(names):
            path = os.path.join(directory, name)
            if _is_inside(path, root) and os.path.isfile(path):
                yield os.path.relpath(path, root)


def _is_inside(path: str, root: str) -> bool:
    return not os.path.islink(path) or os.path.realpath(path).startswith(os.path.join(root, ""))


def matching_lines(pattern: re.Pattern[str], root: str, path: str) -> Iterator[str]:
    """Yield the lines of a file that match, with path and line number.

    Binary and huge files are skipped.
    """
    try:
        with open(os.path.join(root, path), "rb") as file:
            if (
                b"\0" in file.read(_BINARY_PROBE_BYTES)
                or os.fstat(file.fileno()).st_size > MAX_FILE_BYTES
            ):
                return
            file.seek(0)
            for number, data in enumerate(file, 1):
                line = data.decode("utf-8", "replace").rstrip("\r\n")
                if pattern.search(line):
                    yield f"{path}:{number}: {line[:MAX_LINE_CHARS]}{'…' * (len(line) > MAX_LINE_CHARS)}"
    except OSError:
        return  # deleted meanwhile, or not readable


def main() -> None:
    """Read a request from standard input and write each result as it is found."""
    request = json.load(sys.stdin)
    try:
        for line in search(**request):
            sys.stdout.buffer.write(f"{line}\n".encode("utf-8", "replace"))
            sys.stdout.buffer.flush()
    except re.error as error:
        sys.stdout.write(f"{error}\n")
        sys.exit(EXIT_BAD_PATTERN)


if __name__ == "__main__":
    main()
