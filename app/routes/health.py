"""Health checks: whether the process runs, and whether it can work."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
from anyio.to_thread import run_sync
from fastapi import APIRouter

from greenfast.app.routes.access import TheServices
from greenfast.app.wiring import Services
from greenfast.db.store import Store
from greenfast.search.errors import Fault

router = APIRouter(tags=["health"])
SHOWN = ("dialect", "revision", "searches", "bytes")  # not its path
READY_TIMEOUT_S = 1.5


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """200 as long as the process runs. Uses no thread and no database."""
    return {"status": "ok"}


@router.get("/readyz")
async def readyz(services: TheServices) -> dict[str, Any]:
    """200 when the database answers in time; 503 with the reason otherwise."""
    stats = await _stats(services)
    return {"status": "ready", "database": {name: stats[name] for name in SHOWN}}


async def _stats(services: Services) -> dict[str, Any]:
    """The database's figures. Later requests join a query that hangs, which keeps one thread."""
    if services.readiness is None or services.readiness.done():
        services.readiness = asyncio.ensure_future(_look(services.store))
    try:
        return await asyncio.wait_for(asyncio.shield(services.readiness), READY_TIMEOUT_S)
    except TimeoutError:
        raise Fault(
            f"the database did not answer within {READY_TIMEOUT_S:g} s",
            code="database_slow",
            mend="check whether another process holds a lock on it",
        ) from None


async def _look(store: Store) -> dict[str, Any]:
    return await run_sync(store.stats, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
