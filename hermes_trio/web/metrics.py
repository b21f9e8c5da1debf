"""Prometheus metrics: labelled by route template only, never per token."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

# A stream of an agent may last for minutes.
_SECONDS = (0.005, 0.02, 0.1, 0.5, 1, 5, 15, 60, 300, 1800)


class Metrics:
    """The figures of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "hermes_trio_http_requests_total",
            "Answers begun",
            ["route", "method", "status"],
            registry=self.registry,
        )
        self._runs = Counter(
            "hermes_trio_runs_total", "Runs that ended", ["status", "reason"], registry=self.registry
        )
        self._run_seconds = Histogram(
            "hermes_trio_run_seconds", "Length of a run", buckets=_SECONDS, registry=self.registry
        )
        self._active = Gauge("hermes_trio_runs_active", "Runs that are live", registry=self.registry)
        self._slots = Gauge("hermes_trio_slots_in_use", "Slots that are taken", registry=self.registry)

    def answered(self, route: str, method: str, status: int) -> None:
        """An answer began."""
        self._requests.labels(route, method, str(status)).inc()

    def run_ended(self, status: str, reason: str, seconds: float) -> None:
        """A run ended."""
        self._runs.labels(status, reason).inc()
        self._run_seconds.observe(seconds)

    def observe_state(self, active: int, slots: int) -> None:
        """Take over what is counted elsewhere."""
        self._active.set(active)
        self._slots.set(slots)
