"""Figures, thresholds, pages and plots from the reports of clients."""

from __future__ import annotations

import math
import os
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from attrs import evolve

from benchmarks import contenders, loads
from benchmarks.client.orders import Order, Report, Spread
from benchmarks.contenders import Address, order_for
from benchmarks.figures import MEASURES, Result, figures_of, tabulate
from benchmarks.loads import Kind, by_name, quick
from benchmarks.page import COLUMNS, Setting, page
from benchmarks.plots import PLOTS, bars_of, draw
from benchmarks.report import Run, merge_runs, read_report, write_report
from benchmarks.sampling import Usage, look_at, parse_stat, parse_status
from benchmarks.sanity import problems
from benchmarks.thresholds import COMPARISONS, THRESHOLDS, Comparison, Term, Threshold, Verdict

(BURST,) = by_name(["burst"])
REPORT = Report(
    seconds=2.0, started=4, finished=3, failed=1, unanswered=0, tokens=60_000, frames=100, keepalives=0,
    received=1, first=Spread(1, 2, 3), lag=Spread(4, 5, 6), gap=Spread(7, 8, 9), late=Spread(10, 11, 12), busy=0.3,
)  # fmt: skip
SETTING = Setting("3.11", "6.1", 2, ("trio 0.35",), 3, 0.1)
NAMES = {measure.name for measure in MEASURES}


def result(load: str, contender: str, **figures: float) -> Result:
    return Result(load, contender, figures)


def test_figures_come_from_client_and_kernel() -> None:
    before, highest = Usage(1.0, 1_000, 3, 10), Usage(2.2, 3_048, 5, 12)
    figures = figures_of(BURST, REPORT, before, highest)
    assert figures["tokens_per_s"] == 30_000
    assert figures["cpu_per_token"] == pytest.approx(20.0)
    assert (figures["rss_per_stream"], figures["rss_growth"]) == (2_048, 2.0)
    assert (figures["threads"], figures["files"], figures["delivered"]) == (5, 12, 1.0)
    assert (figures["lag_p99"], figures["gap_p99"], figures["late_max"]) == (5, 8, 12)
    assert set(figures) <= NAMES


def test_a_run_without_tokens_has_no_figures_of_tokens() -> None:
    figures = figures_of(BURST, evolve(REPORT, tokens=0, unanswered=4), Usage(), Usage())
    assert not {"lag_p50", "rss_per_stream"} & set(figures)
    assert figures["delivered"] == 0.0


def test_repeats_become_medians() -> None:
    table = tabulate([result("burst", "ours", tokens_per_s=value) for value in (5.0, 1.0, 3.0)])
    assert table.get("burst", "ours", "tokens_per_s") == 3.0
    assert table.get("burst", "ours", "lag_p99") is None
    assert table.get("burst", "peer", "tokens_per_s") is None


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [(30.0, 2.0, Verdict.MET), (29.0, 2.0, Verdict.NOT_MET), (30.0, None, Verdict.NOT_MEASURED)],
)
def test_a_quotient_is_compared_with_its_bound(
    ours: float, theirs: float | None, verdict: Verdict
) -> None:
    results = [result("burst", "ours", tokens_per_s=ours)]
    results += [] if theirs is None else [result("burst", "peer", tokens_per_s=theirs)]
    threshold = Threshold(
        "t", "x", Term("burst", "ours", "tokens_per_s"), 15, Term("burst", "peer", "tokens_per_s")
    )
    assert threshold.judge(tabulate(results)).verdict is verdict


def test_an_upper_bound_is_one() -> None:
    threshold = Threshold("t", "x", Term("10x50", "ours", "lag_p99"), 20, at_most=True)
    assert threshold.judge(tabulate([result("10x50", "ours", lag_p99=20.0)])).verdict is Verdict.MET
    assert (
        threshold.judge(tabulate([result("10x50", "ours", lag_p99=20.1)])).verdict
        is Verdict.NOT_MET
    )
    assert math.isnan(threshold.judge(tabulate([])).value)


def test_every_bar_and_every_plot_is_about_something_that_is_measured() -> None:
    measured = {(load.name, name) for load in loads.ALL for name in load.contenders} | {
        ("start-up", "ours")
    }
    compared: tuple[Threshold | Comparison, ...] = (*THRESHOLDS, *COMPARISONS)
    terms = [term for one in compared for term in (one.term, one.over) if term is not None]
    assert {(term.load, term.contender) for term in terms} <= measured
    assert {term.measure for term in terms} | {plot.measure for plot in PLOTS} <= NAMES
    assert {plot.load for plot in PLOTS} <= {load.name for load in loads.ALL}
    assert {name for columns in COLUMNS.values() for name in columns} <= NAMES
    assert {name for _, name in measured} <= set(contenders.BY_NAME)


def test_a_quick_load_has_some_of_the_contenders_and_less_to_do() -> None:
    for load in loads.ALL:
        small = quick(load)
        assert set(small.contenders) <= set(load.contenders)
        assert small.expected_tokens <= load.expected_tokens
        assert small.streams <= 20


def test_an_unknown_load_is_named() -> None:
    with pytest.raises(ValueError, match="no load nonsense: there are burst"):
        by_name(["burst", "nonsense"])


@pytest.mark.parametrize("load", loads.ALL, ids=lambda load: load.name)
def test_every_order_travels_as_json(load: loads.Load) -> None:
    for name in load.contenders:
        order = order_for(load, contenders.BY_NAME[name], Address(1, 2))
        assert msgspec.json.decode(msgspec.json.encode(order), type=Order) == order
        assert (order.setup is not None) == (load.kind is Kind.RESUME)


def test_sanity_names_what_is_wrong() -> None:
    assert problems([result("burst", "ours", tokens_per_s=9.0, delivered=1.0, failed=0.0)]) == ()
    found = problems(
        [
            Result(
                "burst",
                "ours",
                {"tokens_per_s": 9.0, "delivered": 0.5, "failed": 2.0},
                "status 500",
            ),
            result("burst", "peer", tokens_per_s=9.0, client_busy=0.95),
        ]
    )
    assert found == (
        "burst, ours: 2 turns failed, the first with 'status 500'",
        "burst, ours: 50.0% of the tokens delivered",
        "burst, peer: the client was busy all the time",
        "burst: tokens/s: ours / hermes-agent is 1.00, less than 3.0",
    )


def test_a_page_has_a_row_for_each_contender_and_says_which_bars_are_not_met() -> None:
    table = tabulate(
        [
            result("burst", "ours", tokens_per_s=1_000.0, lag_p99=1.0),
            result("burst", "ours", tokens_per_s=3_000.0, lag_p99=1.0),
            result("burst", "peer", tokens_per_s=1_000.0),
            result("churn", "records", turns_per_s=900.0),
            result("churn", "starlette", turns_per_s=1_000.0),
        ]
    )
    text = page(table, SETTING)
    assert (
        "| turns/s at churn: limit with records / Starlette + uvicorn | 0.90 |" in text.splitlines()
    )
    assert "turns/s at churn: ours / limit with records" not in text
    assert "| hermes-trio | 2,000 (1,000 to 3,000) |" in text
    assert (
        "| burst | tokens/s: ours / hermes-agent | at least 12 | 2.00 | **not met** |"
        in text.splitlines()
    )
    assert "![1 stream, as fast as possible" in text
    assert "## 10 streams" not in text


@pytest.mark.parametrize("is_log", [False, True])
def test_a_plot_is_an_image_with_a_bar_for_each_contender(is_log: bool) -> None:
    plot = evolve(PLOTS[0], is_log=is_log, title="a < b & c")
    table = tabulate(
        [result("burst", "ours", tokens_per_s=100.0), result("burst", "peer", tokens_per_s=0.0)]
    )
    image = ElementTree.fromstring(draw(plot, bars_of(plot, table)))
    assert len(image.findall("{http://www.w3.org/2000/svg}rect")) == 3  # the paper and two bars
    assert [text.text for text in image.iter("{http://www.w3.org/2000/svg}text")][:2] == [
        "a < b & c",
        "hermes-trio",
    ]


def test_a_run_is_written_and_can_be_read_again(tmp_path: Path) -> None:
    run = Run(SETTING, (result("burst", "ours", tokens_per_s=5.0),))
    written = write_report(run, tmp_path)
    assert read_report(tmp_path) == run
    assert {path.name for path in written} == {
        "results.json",
        "benchmark.md",
        "burst-tokens-per-s.svg",
    }


def test_a_load_that_is_measured_again_takes_the_place_of_what_it_was() -> None:
    before = Run(
        SETTING,
        (result("burst", "ours", tokens_per_s=5.0), result("churn", "ours", turns_per_s=1.0)),
    )
    now = Run(
        SETTING,
        (result("churn", "ours", turns_per_s=2.0), result("churn", "peer", turns_per_s=3.0)),
    )
    assert merge_runs(before, now) == Run(SETTING, (before.results[0], *now.results))


def test_the_kernel_is_read() -> None:
    stat = "7 (a) b) S 1 1 1 0 -1 0 0 0 0 0 150 50 0 0 20 0 1 0 1 1 1"
    assert parse_stat(stat) * 100 == pytest.approx(200 * 100 / os.sysconf("SC_CLK_TCK"))
    assert parse_status("Name:\tx\nVmRSS:\t  2048 kB\nThreads:\t3\n") == Usage(rss=2_048, threads=3)
    assert look_at(os.getpid()).threads >= 1
