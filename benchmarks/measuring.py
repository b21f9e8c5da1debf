"""One measurement: a contender, a sampler beside it, and the client."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import msgspec
import trio
from attrs import evolve

from benchmarks.client.orders import Order, Report
from benchmarks.contenders import Contender, order_for
from benchmarks.figures import Result, figures_of
from benchmarks.loads import Kind, Load
from benchmarks.sampling import Sampler
from benchmarks.startup import ROOT, Interpreters, serving

# Creates what is created lazily (imports, pools, caches), so that no contender is measured cold.
WARM_UP_TURNS = 20


async def measure(load: Load, contender: Contender, interpreters: Interpreters) -> Result:
    """Start a contender, warm it up, measure it and stop it.

    Raises:
        NotStarted: the contender did not start.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        async with serving(contender, interpreters, Path(folder)) as address:
            await ask(warm_up(order_for(short(load), contender, address)))
            sampler = Sampler(address.pid)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sampler.run)
                report = await ask(order_for(load, contender, address))
                sampler.look()
                nursery.cancel_scope.cancel()
    figures = figures_of(load, report, sampler.before, sampler.highest)
    return Result(load.name, contender.name, figures, report.complaint)


def short(load: Load) -> Load:
    """Return the same load with short turns."""
    kind = Kind.STREAM if load.kind in (Kind.IDLE, Kind.SLOW, Kind.RESUME) else load.kind
    return evolve(load, kind=kind, tokens=5, rate=0.0, seconds=0.0)


def warm_up(order: Order) -> Order:
    """Run a few short turns of the same kind."""
    return evolve(order, streams=4, ramp=0.0, turns=WARM_UP_TURNS, limit=30.0)


async def ask(order: Order) -> Report:
    """Run the client in its own process, and return its report."""
    done = await trio.run_process(
        [sys.executable, "-m", "benchmarks.client"],
        stdin=msgspec.json.encode(order),
        capture_stdout=True,
        cwd=ROOT,
    )
    return msgspec.json.decode(done.stdout, type=Report)
