"""`greenfast serve` and `greenfast worker`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from greenfast.app.cli.options import Address, Executor
from greenfast.app.cli.services import opened_services
from greenfast.app.settings import Settings
from greenfast.app.views.terminal import say


def serve(
    host: Annotated[
        str | None,
        typer.Option(
            "--host", metavar="ADDRESS", help="The address to listen on. [default: 127.0.0.1]"
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="N",
            min=0,
            max=65535,
            help="The port; 0 takes any free one. [default: 8741]",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            min=0,
            max=1024,
            help="Worker processes; 0 serves only pages and the API. [default: 1]",
        ),
    ] = None,
    accept_weak_sandbox: Annotated[
        bool,
        typer.Option(
            "--accept-weak-sandbox",
            help="Serve other people even if this Linux kernel lacks seccomp or Landlock.",
        ),
    ] = False,
) -> int:
    """Start the dashboard and the REST API, with workers that run submitted searches.

    The printed URL opens the dashboard; /api/v1/openapi.json there describes the API. `greenfast
    doctor` lists the settings. Ctrl-C ends it; running searches are queued again.
    """
    from greenfast.app.service.server import run_server

    settings = Settings.from_environment()
    if host is not None:
        settings = replace(settings, host=host)
    if port is not None:
        settings = replace(settings, port=port)
    if workers is not None:
        settings = replace(settings, workers=workers)
    if accept_weak_sandbox:
        settings = replace(settings, accept_weak_sandbox=True)
    return run_server(settings)


def worker(
    once: Annotated[bool, typer.Option("--once", help="Exit when no search is queued.")] = False,
    executor: Executor = None,
    address: Address = None,
    lifeline: Annotated[int | None, typer.Option("--lifeline", hidden=True)] = None,
) -> int:
    """Run queued searches, one after another.

    `greenfast serve` starts its own workers; this command adds one, on this machine or on another
    that uses the same database. SIGTERM or Ctrl-C queues the running search again and exits with 0.
    """
    from greenfast.app.service.worker import Stop, Worker, end_with

    with opened_services(executor, address) as services:
        stop = Stop(services.settings.drain_s, on_force=services.interrupt)
        stop.on_signals()
        if lifeline is not None:
            end_with(lifeline, stop)
        Worker(services, stop, say).run(once=once)
    return 0
