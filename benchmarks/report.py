"""The files of a run: results as JSON, the page, the plots."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import msgspec
from attrs import evolve, frozen

from benchmarks.figures import Result, tabulate
from benchmarks.page import Setting, page
from benchmarks.plots import PLOTS, bars_of, draw
from benchmarks.startup import Interpreters

OURS = ("trio", "quart", "quart-trio", "hypercorn", "h11", "h2", "msgspec")
PEER = ("hermes-agent", "aiohttp")
PLAIN = ("starlette", "uvicorn", "uvloop", "httptools")
_ASK = "import sys, importlib.metadata as m; print(*(f'{n} {m.version(n)}' for n in sys.argv[1:]), sep='\\n')"


@frozen
class Run:
    """A benchmark run, as stored."""

    setting: Setting
    results: tuple[Result, ...]


def merge_runs(before: Run, now: Run) -> Run:
    """Return an earlier run in which the loads measured now are replaced."""
    again = {result.load for result in now.results}
    kept = [result for result in before.results if result.load not in again]
    return evolve(before, results=(*kept, *now.results))


def describe_setting(interpreters: Interpreters, repeats: int, load_average: float) -> Setting:
    """Describe the machine and the installed packages."""
    ours = [f"{name} {metadata.version(name)}" for name in OURS]
    theirs = [*_versions(interpreters.peer, PEER), *_versions(interpreters.plain, PLAIN)]
    return Setting(
        python=platform.python_version(),
        kernel=platform.release().split("-")[0],
        cores=os.cpu_count() or 1,
        packages=(*ours, *theirs),
        repeats=repeats,
        load_average=load_average,
    )


def _versions(python: str, names: Sequence[str]) -> list[str]:
    if not python:
        return []
    done = subprocess.run([python, "-c", _ASK, *names], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def write_report(run: Run, folder: Path) -> list[Path]:
    """Write results, page and plots, and return their paths."""
    place = folder / "benchmark"
    place.mkdir(parents=True, exist_ok=True)
    table = tabulate(run.results)
    files = {
        place / "results.json": msgspec.json.format(msgspec.json.encode(run), indent=1).decode(),
        folder / "benchmark.md": page(table, run.setting),
    }
    for plot in PLOTS:
        if bars := bars_of(plot, table):
            files[place / plot.file_name] = draw(plot, bars)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    return list(files)


def read_report(folder: Path) -> Run:
    """Read the results of an earlier run."""
    return msgspec.json.decode((folder / "benchmark" / "results.json").read_bytes(), type=Run)
