"""Dependencies of handlers: the application's services and store."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, cast

from fastapi import Depends, Request

from greenfast.app.views.known_fields import query_names
from greenfast.app.wiring import Services
from greenfast.db.store import Store
from greenfast.search.errors import UsageError

LONGEST_QUOTE = 80


async def _services(request: Request) -> Services:
    return cast(Services, request.app.state.services)


async def _store(request: Request) -> Store:
    return cast(Services, request.app.state.services).store


async def known_query_only(request: Request) -> None:
    """Refuse a parameter that would otherwise be ignored: one misspelt, or given twice."""
    names = query_names(request.scope["route"])
    given = Counter(name for name, _ in request.query_params.multi_items())
    for name, times in given.items():
        if name not in names:
            known = f"known: {', '.join(names)}" if names else "this path takes no parameters"
            raise UsageError(
                f"unknown field {name[:LONGEST_QUOTE]!r} in the query",
                code="unknown_field",
                mend=known,
            )
        if times > 1 and not names[name]:
            raise UsageError(
                f"{name} is given {times} times in the query",
                code="repeated_field",
                mend=f"give {name} once",
            )


TheServices = Annotated[Services, Depends(_services)]
TheStore = Annotated[Store, Depends(_store)]
