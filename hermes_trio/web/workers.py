"""Reports of the workers of a server, merged into the metrics and the readiness of the whole server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

from attrs import frozen
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from hermes_trio.web.metrics import ANSWERING, DESCRIPTIONS, WORKERS, Merge

WORKER_LABEL = "worker"
_PER_WORKER = "process_"  # a sum of start times or of limits means nothing
_JOIN: Mapping[Merge, Callable[[float, float], float]] = {
    Merge.SUM: float.__add__,
    Merge.LARGEST: max,
    Merge.SMALLEST: min,
}
_MERGE = {each.name: each.merge for each in DESCRIPTIONS}

_Key = tuple[str, tuple[tuple[str, str], ...]]


@frozen
class WorkerReport:
    """The metrics and the readiness of one worker."""

    number: int
    not_ready: str  # why it takes no new runs; "" if it does
    metrics: str | None  # in Prometheus' text format; None if the worker did not answer


@frozen
class Workers:
    """The workers of a server, as one of them sees them."""

    number: int  # of this worker, from 1
    collect: Callable[[], Awaitable[Sequence[WorkerReport]]]  # from the others; never raises


def silent(number: int) -> WorkerReport:
    """Return the report of a worker that has not answered in time."""
    return WorkerReport(number, "does not answer", None)


def explain(reports: Sequence[WorkerReport]) -> str:
    """Return why not all workers are ready; "" if they are."""
    return next(
        (f"worker {each.number}: {each.not_ready}" for each in reports if each.not_ready), ""
    )


def merge_metrics(reports: Sequence[WorkerReport]) -> bytes:
    """Merge the metrics of all workers into one text.

    Samples with the same name and labels are merged as their description says. Those of processes
    get a label with the number of the worker.
    """
    merged = _MergedMetrics(reports)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(merged)
    return generate_latest(registry)


class _MergedMetrics(Collector):
    def __init__(self, reports: Sequence[WorkerReport]) -> None:
        self._families: dict[str, Metric] = {}
        self._values: dict[str, dict[_Key, float]] = {}
        for report in sorted(reports, key=lambda each: each.number):
            for family in text_string_to_metric_families(report.metrics or ""):
                self._add(family, report.number)
        self._workers = len(reports)
        self._answering = sum(report.metrics is not None for report in reports)

    def _add(self, family: Metric, worker: int) -> None:
        self._families.setdefault(family.name, family)
        values = self._values.setdefault(family.name, {})
        more = {WORKER_LABEL: str(worker)} if family.name.startswith(_PER_WORKER) else {}
        join = _JOIN[_MERGE.get(family.name, Merge.SUM)]
        for sample in family.samples:
            key = sample.name, tuple(sorted({**sample.labels, **more}.items()))
            values[key] = join(values[key], sample.value) if key in values else sample.value

    def collect(self) -> Iterator[Metric]:
        """Return the merged families, and how many workers there are."""
        for name, family in self._families.items():
            merged = Metric(name, family.documentation, family.type)
            for (sample, labels), value in self._values[name].items():
                merged.add_sample(sample, dict(labels), value)
            yield merged
        yield GaugeMetricFamily(WORKERS.name, WORKERS.text, self._workers)
        yield GaugeMetricFamily(ANSWERING.name, ANSWERING.text, self._answering)
