"""The web application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from greenfast.app.dashboard.router import router
from greenfast.app.routes import api, health, login
from greenfast.app.routes.auth import Guard
from greenfast.app.service.admission import Admission
from greenfast.app.views.ledger_jobs import LedgerJobs
from greenfast.app.views.problems import add_problem_handlers
from greenfast.app.wiring import Services


def create_app(services: Services) -> FastAPI:
    """REST, health checks, login and dashboard. Handlers find `services` on app.state.

    Raises the errors of opening the database.
    """
    services.open_store()
    services.ledger_jobs = LedgerJobs(services.settings, services.stopping)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        services.stopping.set()

    app = FastAPI(
        title="greenfast",
        version="1",
        summary="Search for the fastest CUDA kernel that is also correct",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.services = services
    add_problem_handlers(app)
    app.include_router(api())
    app.include_router(health.router)
    app.include_router(login.router)
    app.include_router(router)
    app.add_middleware(Admission)
    app.add_middleware(Guard, settings=services.settings)
    return app
