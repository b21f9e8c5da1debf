"""The server in a worker process: as the only process of a server, but with orders and shared reports."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import trio
from attrs import evolve

from hermes_trio import logs
from hermes_trio.bootstrap import open_server
from hermes_trio.preparation import Prepared, prepare
from hermes_trio.server.main import cancel_start, run_trio, serve_requests
from hermes_trio.server.process_secrets import forbid_inspection
from hermes_trio.server.shutdown import ShutdownTimeouts, start_watchdog
from hermes_trio.server.signals import ReloadHandlers, SignalCallback, handle_signals
from hermes_trio.server.sockets import close_all
from hermes_trio.server.worker import StopRequests, SupervisorLink
from hermes_trio.server.worker_channel import Ready, WorkerPlan, own
from hermes_trio.server.worker_reports import ReportCollector, serve_reports, socket_path
from hermes_trio.web.api.info import report_worker
from hermes_trio.web.workers import Workers


def serve(plan: WorkerPlan, link: SupervisorLink) -> None:
    """Serve until the supervisor or a signal asks to stop.

    Raises:
        ConfigurationError: The server cannot start as it is configured.
    """
    settings = plan.settings
    logs.configure(settings.log_level, settings.log_format, worker=plan.number)
    if settings.sandbox != "off":
        forbid_inspection()
    sockets = [own(descriptor) for descriptor in plan.sockets]
    try:
        # As without workers, agents find these variables while they are imported, and later not.
        os.environ.update(plan.environment)
        prepared = prepare(settings, credentials=plan.credentials)
        for name in plan.environment:
            os.environ.pop(name, None)
        run_trio(partial(_serve, plan, prepared, sockets, link))
    finally:
        close_all(sockets)
        if link.is_lost:
            with suppress(OSError):  # another worker still has a socket in it, and removes it later
                plan.reports_dir.rmdir()


async def _serve(
    plan: WorkerPlan, prepared: Prepared, sockets: Sequence[socket.socket], link: SupervisorLink
) -> None:
    """Serve until an order or a signal; one that comes before the server listens cancels the start."""
    starting = trio.CancelScope()
    callback = SignalCallback(partial(cancel_start, starting))
    requests, reloads = StopRequests(callback), ReloadHandlers()
    timeouts = ShutdownTimeouts.from_settings(plan.settings)
    collector = ReportCollector(plan.reports_dir, plan.number, plan.settings.workers)
    async with handle_signals(SignalCallback(requests.drain), reloads.request):
        link.attach(requests.obey, partial(start_watchdog, timeouts.total))
        with starting:
            workers = Workers(plan.number, collector.collect)
            async with open_server(evolve(prepared, workers=workers)) as server:
                report = partial(report_worker, server.state, plan.number)
                async with serve_reports(socket_path(plan.reports_dir, plan.number), report):
                    await serve_requests(
                        plan.settings,
                        sockets,
                        server,
                        callback,
                        reloads,
                        lambda _url: link.report(Ready()),
                    )
