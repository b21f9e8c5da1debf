"""Every metric has a description, and every name in the dashboard and the rules exists on a server."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hermes_trio.web.metrics import DESCRIPTIONS
from hermes_trio.web.workers import WorkerReport, merge_metrics
from scripts.update_metrics import PLACE, current
from tests.support.server_process import ROOT, LaunchOptions, serving

ALERTS = ROOT / "deploy/prometheus/alerts.yml"
CONFIGURATION = ROOT / "deploy/prometheus/prometheus.yml"
DASHBOARD = ROOT / "deploy/grafana/hermes_trio.json"

BY_PROMETHEUS = {"job", "instance", "le"}
UNITS = ("_seconds", "_bytes", "_total", "_info")
WITHOUT_UNIT = {  # numbers of things
    "hermes_trio_runs_active", "hermes_trio_slots_in_use", "hermes_trio_slots_limit",
    "hermes_trio_streams_open", "hermes_trio_unsaved_ends", "hermes_trio_store_working",
    "hermes_trio_ready", "hermes_trio_workers", "hermes_trio_workers_answering",
}  # fmt: skip

_NAME = re.compile(r"\b(?:hermes_trio|process)_[a-z_]+\b")
_SELECTOR = re.compile(r"([a-z_]+)\{([^}]*)\}")
_MATCHER = re.compile(r'([a-z_]+)(?:=~|!~|!=|=)"')
_GROUPING = re.compile(r"\bby \(([^)]*)\)")
_EXPRESSION = re.compile(r"expr: (?:\|\n((?: {10,}.*\n)+)|(.*)\n)")

Labels = Mapping[str, set[str]]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Labels:
    """The samples of a real server that has run a turn, each with its labels.

    As of one process, and as of one of two workers.
    """
    with serving(LaunchOptions(tmp_path_factory.mktemp("server"))) as server:
        body = {"messages": [{"role": "user", "content": "/terminal date"}]}
        assert server.post("/v1/chat/completions", body).status_code == 200
        text = server.get("/metrics").text
    merged = merge_metrics([WorkerReport(1, "", text), WorkerReport(2, "", text)]).decode()
    found: dict[str, set[str]] = {}
    for part in (text, merged):
        for family in text_string_to_metric_families(part):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


def dashboard_expressions() -> Iterator[tuple[str, str]]:
    """The queries of the dashboard and of its variables, each with its legend."""
    board: dict[str, Any] = json.loads(DASHBOARD.read_text("utf-8"))
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"], ""


def rule_expressions() -> Iterator[tuple[str, str]]:
    """The expressions of the rules."""
    for found in _EXPRESSION.finditer(ALERTS.read_text("utf-8")):
        yield found[1] or found[2], ""


@pytest.mark.slow
@pytest.mark.parametrize(("expression", "legend"), [*dashboard_expressions(), *rule_expressions()])
def test_what_an_expression_names_exists(expression: str, legend: str, served: Labels) -> None:
    names = set(_NAME.findall(expression))
    assert names <= served.keys()
    for name, matchers in _SELECTOR.findall(expression):
        if name != "up":
            assert set(_MATCHER.findall(matchers)) <= served[name] | BY_PROMETHEUS
    known = BY_PROMETHEUS.union(*(served[name] for name in names))
    for group in _GROUPING.findall(expression):
        assert set(group.split(", ")) <= known
    assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= known


def test_the_expressions_were_found() -> None:
    assert len([*rule_expressions()]) == ALERTS.read_text("utf-8").count("- alert:")
    assert len([*dashboard_expressions()]) > 20


@pytest.mark.slow
def test_a_server_serves_what_is_described(served: Labels) -> None:
    ends = {"counter": "", "gauge": "", "histogram": "_count"}
    described = {each.name + ends[each.kind]: set(each.labels) for each in DESCRIPTIONS}
    own = {name: labels for name, labels in served.items() if name.startswith("hermes_trio")}
    buckets = ("_bucket", "_sum")
    assert described == {name: own[name] for name in own if not name.endswith(buckets)}


def test_names_have_units() -> None:
    for each in DESCRIPTIONS:
        assert each.name.startswith("hermes_trio_")
        assert each.name.endswith("_total") == (each.kind == "counter")
        assert each.name.endswith(UNITS) != (each.name in WITHOUT_UNIT)


def test_the_reference_page_is_current() -> None:
    assert PLACE.read_text("utf-8") == current(), (
        f"{PLACE} is stale: run `python -m scripts.update_metrics`"
    )


@pytest.fixture
def promtool() -> str:
    """Prometheus' own checker."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (Debian: apt install prometheus)")
    return found


def check(promtool: str, *arguments: str, folder: Path = ROOT) -> None:
    """Run the checker, which must find nothing."""
    done = subprocess.run(
        [promtool, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_configuration(promtool: str, tmp_path: Path) -> None:
    folder = tmp_path / "prometheus"
    shutil.copytree(CONFIGURATION.parent, folder)
    (folder / "hermes_trio.key").write_text("a key")
    check(promtool, "check", "config", "prometheus.yml", folder=folder)


def test_the_rules_fire_when_they_should(promtool: str) -> None:
    check(promtool, "test", "rules", "tests/monitoring/alerts_test.yml")
