"""``python -m benchmarks``: measure, write the results, and compare them with the thresholds."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import trio
from attrs import frozen

from benchmarks import contenders, loads
from benchmarks.contenders import CLIENT_CORE, Contender
from benchmarks.figures import Result, tabulate
from benchmarks.loads import Load
from benchmarks.measuring import measure
from benchmarks.report import Run, describe_setting, merge_runs, read_report, write_report
from benchmarks.sanity import problems
from benchmarks.startup import Interpreters, NotStarted, measure_startup
from benchmarks.thresholds import Verdict, judge

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs" / "discussion"
ELSEWHERE = ROOT / "build" / "bench"


@frozen
class Choice:
    """What to measure, and with what."""

    loads: tuple[Load, ...]
    only: frozenset[str]  # contenders; none: all
    repeat: int
    interpreters: Interpreters

    def measurements(self) -> Iterator[tuple[Load, Contender]]:
        """Return the measurements in order: contenders take turns, so that a busy minute affects all."""
        for load in self.loads:
            for name in load.contenders:
                if self._is_wanted(contenders.BY_NAME[name]):
                    yield load, contenders.BY_NAME[name]

    def _is_wanted(self, contender: Contender) -> bool:
        has_home = bool(self.interpreters.of(contender.program))
        return has_home and (not self.only or contender.name in self.only)


def main() -> int:
    """Run the benchmark that the command line describes. Return the exit code."""
    options = parser().parse_args()
    is_part = (options.only or options.contender) and not options.update
    out = options.out or (ELSEWHERE if is_part else DOCS)
    if options.render:
        return finish(read_report(out), out)
    os.sched_setaffinity(0, {CLIENT_CORE})  # this process, too, leaves the servers alone
    choice = choose(options)
    if not options.quick:
        combined = partial(merge_runs, read_report(out)) if options.update else _unchanged
        return finish(repeated(choice, out, combined), out)
    with tempfile.TemporaryDirectory() as folder:  # small loads say nothing about the thresholds
        run = repeated(choice, Path(folder))
    return complain(problems(run.results))


def _unchanged(run: Run) -> Run:
    return run


def repeated(choice: Choice, out: Path, combined: Callable[[Run], Run] = _unchanged) -> Run:
    """Measure everything repeatedly.

    Results are written after each repeat, so an interruption loses only the current one.
    """
    load_average = os.getloadavg()[0]
    results: list[Result] = []
    for times in range(1, choice.repeat + 1):
        results += trio.run(measure_all, choice)
        run = combined(
            Run(describe_setting(choice.interpreters, times, load_average), tuple(results))
        )
        write_report(run, out)
    return run


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m benchmarks")
    made.add_argument(
        "--quick", action="store_true", help="small loads; fails if something does not work"
    )
    made.add_argument(
        "--only", action="append", default=[], metavar="LOAD", help="only this load; repeatable"
    )
    made.add_argument(
        "--contender", action="append", default=[], metavar="NAME", help="only this one; repeatable"
    )
    made.add_argument(
        "--update",
        action="store_true",
        help="keep the results that are there of all loads but those of --only",
    )
    made.add_argument("--repeat", type=int, default=0, help="how often; 3, or once if quick")
    made.add_argument(
        "--out",
        type=Path,
        help="folder for the files; else docs/discussion, or build/bench if not all is measured",
    )
    made.add_argument(
        "--render", action="store_true", help="measure nothing: write page and plots anew"
    )
    made.add_argument(
        "--peer-python", default="", help="interpreter that has hermes-agent; else left out"
    )
    made.add_argument(
        "--plain-python", default="", help="interpreter that has Starlette; else left out"
    )
    return made  # fmt: skip


def choose(options: argparse.Namespace) -> Choice:
    """Return what the arguments select.

    Raises:
        SystemExit: a name is unknown.
    """
    if unknown := set(options.contender) - set(contenders.BY_NAME):
        raise SystemExit(
            f"no contender {', '.join(unknown)}: there are {', '.join(contenders.BY_NAME)}"
        )
    if options.update and (options.contender or not options.only):
        raise SystemExit("--update measures whole loads again: those of --only")
    try:
        chosen = loads.by_name(options.only)
    except ValueError as error:
        raise SystemExit(str(error)) from None
    return Choice(
        tuple(map(loads.quick, chosen)) if options.quick else chosen,
        frozenset(options.contender),
        max(1, options.repeat or (1 if options.quick else 3)),
        Interpreters(peer=options.peer_python, plain=options.plain_python),
    )


async def measure_all(choice: Choice) -> list[Result]:
    """Run the measurements one after the other."""
    results = [await _start_up()]
    for load, contender in choice.measurements():
        results.append(await _measured(load, contender, choice.interpreters))
        tell(_line(results[-1]))
    return results


async def _measured(load: Load, contender: Contender, interpreters: Interpreters) -> Result:
    try:
        return await measure(load, contender, interpreters)
    except NotStarted as error:
        complaint = f"did not start: {str(error)[-500:]}"
        return Result(load.name, contender.name, {"failed": float(load.streams)}, complaint)


async def _start_up() -> Result:
    with tempfile.TemporaryDirectory() as folder:
        return Result("start-up", "ours", {"start_up": await measure_startup(Path(folder))})


def _line(result: Result) -> str:
    names = (
        "tokens_per_s",
        "turns_per_s",
        "first_p50",
        "lag_p99",
        "cpu_per_turn",
        "rss_per_stream",
        "delivered",
    )
    shown = "  ".join(
        f"{name} {result.figures[name]:,.1f}" for name in names if name in result.figures
    )
    return f"{result.load:>8} {result.contender:<22} {shown}  {result.complaint}"


def finish(run: Run, folder: Path) -> int:
    """Write the files, and print the thresholds and the measured figures."""
    for judgement in judge(tabulate(run.results)):
        if judgement.verdict is not Verdict.NOT_MEASURED:
            threshold, sign = judgement.threshold, "<=" if judgement.threshold.at_most else ">="
            verdict = judgement.verdict.name.lower().replace("_", " ")
            tell(
                f"{verdict:>8}  {threshold.topic}: {threshold.text}: {judgement.value:,.2f} {sign} {threshold.bound:g}"
            )
    for path in write_report(run, folder):
        tell(f"written: {path}")
    return 0


def complain(found: Sequence[str]) -> int:
    """Print what is wrong. Return the exit code: 1 if anything is."""
    for problem in found:
        tell(f"wrong: {problem}")
    return 1 if found else 0


def tell(line: str) -> None:
    """Print a line immediately."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
