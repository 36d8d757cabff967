"""Dependencies of handlers: the application's services and store."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request

from greenfast.app.wiring import Services
from greenfast.db.store import Store


async def _services(request: Request) -> Services:
    return cast(Services, request.app.state.services)


async def _store(request: Request) -> Store:
    return cast(Services, request.app.state.services).store


TheServices = Annotated[Services, Depends(_services)]
TheStore = Annotated[Store, Depends(_store)]
