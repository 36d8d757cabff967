"""Whether the service lives, and whether it can work."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from app.routes.access import TheStore

router = APIRouter(tags=["health"])
SHOWN = ("dialect", "revision", "searches", "bytes")          # not where it lies


@router.get("/healthz")
def healthz() -> dict[str, str]:
    return {"status": "ok"}


@router.get("/readyz")
def readyz(store: TheStore) -> dict[str, Any]:
    """200 when the database answers; 503 with the reason otherwise."""
    stats = store.stats()
    return {"status": "ready", "database": {name: stats[name] for name in SHOWN}}
