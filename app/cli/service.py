"""`greenfast serve` and `greenfast worker`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from greenfast.app.cli.lists import opened_services
from greenfast.app.cli.output import say
from greenfast.app.service.worker import Stop, Worker, end_with
from greenfast.app.settings import Settings


def add_service_commands(app: typer.Typer) -> None:
    app.command("serve")(serve)
    app.command("worker")(worker)


def serve(
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="0: any free one.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=0, max=1024, help="Worker processes; 0: the API only."),
    ] = None,
) -> int:
    """REST and dashboard, with workers that run what is submitted. Ctrl-C ends it cleanly."""
    from greenfast.app.service.server import run_server

    given = {
        name: value
        for name, value in (("host", host), ("port", port), ("workers", workers))
        if value is not None
    }
    return run_server(replace(Settings.from_environment(), **given))


def worker(
    once: Annotated[bool, typer.Option("--once", help="End when no search is waiting.")] = False,
    lifeline: Annotated[int | None, typer.Option("--lifeline", hidden=True)] = None,
) -> int:
    """Run queued searches, one after another. SIGTERM or Ctrl-C gives the running one back and exits 0."""
    with opened_services() as services:
        stop = Stop(services.settings.drain_s, on_force=services.interrupt)
        stop.on_signals()
        if lifeline is not None:
            end_with(lifeline, stop)
        Worker(services, stop, say).run(once=once)
    return 0
