"""The server under a profiler: ``python -m benchmarks.profiled FILE serve …``.

The first SIGUSR1 starts the profiler. The second one writes the calls and seconds of each library to
the file and ends the server. Calls of built-in functions count for their caller.
"""

from __future__ import annotations

import cProfile
import json
import pstats
import signal
import site
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from attrs import frozen

from hermes_trio.cli import main

BUILT_IN = "~"
ROOT = Path(__file__).parents[1]


@frozen
class Share:
    """The calls and seconds of one library."""

    library: str
    calls: int
    seconds: float


def shares(profile: cProfile.Profile) -> Iterator[Share]:
    """Return a share for each library, the longest first."""
    stats: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]  # typeshed does not know it
    single = sorted(_single(stats), key=lambda share: share.library)
    summed = [
        _sum(name, tuple(group)) for name, group in groupby(single, lambda share: share.library)
    ]
    return iter(sorted(summed, key=lambda share: -share.seconds))


def _single(stats: dict[Any, Any]) -> Iterator[Share]:
    for (file, _, _), (_, calls, own, _, callers) in stats.items():
        if file == BUILT_IN:
            for (caller, _, _), (_, times, seconds, _) in callers.items():
                yield Share(library_of(caller), times, seconds)
        else:
            yield Share(library_of(file), calls, own)


def _sum(library: str, parts: tuple[Share, ...]) -> Share:
    return Share(library, sum(part.calls for part in parts), sum(part.seconds for part in parts))


def library_of(file: str) -> str:
    """Return the library of a file; hermes_trio is divided into its packages."""
    path = Path(file)
    if path.is_relative_to(ROOT / "hermes_trio"):
        return ".".join(path.relative_to(ROOT).with_suffix("").parts[:2])
    for folder in site.getsitepackages():
        if path.is_relative_to(folder):
            return path.relative_to(folder).parts[0]
    return (
        "generated code" if file.startswith("<") else "Python's own" if path.is_absolute() else file
    )


def run(file: Path) -> None:
    """Serve, and handle the signals."""
    profile = cProfile.Profile()

    def write(*_: object) -> None:
        profile.disable()
        found = [[share.library, share.calls, share.seconds] for share in shares(profile)]
        file.write_text(json.dumps(found))
        signal.raise_signal(signal.SIGTERM)

    def start(*_: object) -> None:
        signal.signal(signal.SIGUSR1, write)
        profile.enable()

    signal.signal(signal.SIGUSR1, start)
    main()


if __name__ == "__main__":
    target = Path(sys.argv.pop(1))
    run(target)
