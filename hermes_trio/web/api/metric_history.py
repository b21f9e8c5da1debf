"""``GET /api/metrics/history``: the metrics of the last hour, and the task that records them.

A server with several workers records those of all of them, in each worker.
"""

from __future__ import annotations

import math
from collections import defaultdict

import structlog
import trio
from attrs import asdict
from prometheus_client.parser import text_string_to_metric_families
from quart import Blueprint, Response, request

from hermes_trio.core.errors import bad_request
from hermes_trio.core.metric_history import (
    INTERVAL_SECONDS,
    KEPT_SECONDS,
    NO_VALUES,
    Distribution,
    Reading,
    RouteReading,
)
from hermes_trio.web import metrics
from hermes_trio.web.api.info import collect_metrics
from hermes_trio.web.errors import json_response
from hermes_trio.web.request import app_state, in_thread
from hermes_trio.web.state import AppState

log = structlog.get_logger(__name__)

_BUCKET = "_bucket"

blueprint = Blueprint("metric_history", __name__)


@blueprint.get("/api/metrics/history")
async def metric_history() -> Response:
    """Return the samples of the last hour, or those after a time, and the busiest routes."""
    after = _time_param("after")
    history = app_state().history
    return json_response(
        {
            "object": "hermes.metric_history",
            "interval_seconds": INTERVAL_SECONDS,
            "kept_seconds": KEPT_SECONDS,
            "data": [asdict(each, recurse=False) for each in history.samples(after)],
            "routes": [asdict(each) for each in history.routes()],
        }
    )


def _time_param(name: str) -> float:
    try:
        value = float(request.args.get(name) or 0)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise bad_request(f"'{name}' must be a time in seconds since the epoch.", name)
    return value


async def record_history(state: AppState) -> None:
    """Add a sample to the history of a server at regular intervals until cancelled."""
    read_at = -math.inf
    while True:
        began = trio.current_time()
        try:
            reading = await in_thread(parse_reading, await collect_metrics(state))
        except Exception:
            log.exception("the metrics could not be recorded")  # the next attempt may succeed
        else:
            state.history.add(reading, state.services.wall_clock(), began - read_at)
            read_at = began
        await trio.sleep_until(began + INTERVAL_SECONDS)


def parse_reading(text: bytes) -> Reading:
    """Read the metrics of a server from Prometheus' text format."""
    sums: dict[str, float] = defaultdict(float)  # over all labels
    errors: dict[str, float] = defaultdict(float)  # by route
    buckets: dict[tuple[str, str], dict[float, float]] = defaultdict(lambda: defaultdict(float))
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            sums[sample.name] += sample.value
            route = sample.labels.get("route", "")
            if sample.name.endswith(_BUCKET):
                name = sample.name.removesuffix(_BUCKET)
                buckets[name, route][float(sample.labels["le"])] += sample.value
            elif sample.name == metrics.REQUESTS.name and sample.labels["status"] >= "500":
                errors[route] += sample.value

    def distribution(of: metrics.Description, route: str = "") -> Distribution:
        found = sorted(buckets[of.name, route].items())
        return Distribution(*zip(*found, strict=True)) if found else NO_VALUES

    routes = [route for name, route in buckets if name == metrics.REQUEST_SECONDS.name]
    return Reading(
        workers=sums[metrics.ANSWERING.name],
        live_runs=sums[metrics.ACTIVE.name],
        open_streams=sums[metrics.STREAMS.name],
        loop_lag_seconds=sums[metrics.LAG.name],
        memory_bytes=sums["process_resident_memory_bytes"],
        cpu_seconds=sums["process_cpu_seconds_total"],
        events=sums[metrics.EVENTS.name],
        output_tokens=sums[metrics.OUTPUT_TOKENS.name],
        commits=sums[metrics.COMMITS.name],
        first_text=distribution(metrics.FIRST_TEXT),
        store=distribution(metrics.STORE_LATENCY),
        routes={
            route: RouteReading(distribution(metrics.REQUEST_SECONDS, route), errors[route])
            for route in routes
        },
    )
