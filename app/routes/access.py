"""Dependencies of handlers: the application's services and store."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from typing import Annotated, Any, cast

from fastapi import Depends, Request

from greenfast.app.views.known_fields import query_names
from greenfast.app.wiring import Services
from greenfast.db.store import Store
from greenfast.search.errors import UsageError
from greenfast.search.text import visible

LONGEST_QUOTE = 80
MOST_ITEMS, MOST_VALUES = 1000, 30_000  # 1000 workloads, each with its dims and options


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


async def each_field_once(request: Request) -> None:
    """Refuse a body with an object that gives a field twice, of which Python keeps the last."""
    if request.scope["route"].body_field is None:
        return
    with suppress(ValueError, RecursionError):  # no JSON: FastAPI refuses it
        body = json.loads(await request.body(), object_pairs_hook=_once)
        if isinstance(body, (list, dict)):
            _require_few_items(body)


def _require_few_items(body: Any) -> None:
    """UsageError for more items than any request needs: each wrong one takes time to refuse."""
    waiting, values = [("", body)], 0
    while waiting:
        field, value = waiting.pop()
        if len(value) > MOST_ITEMS:
            raise _too_many(field, len(value), f"a list or an object has at most {MOST_ITEMS:,}")
        values += len(value)
        if values > MOST_VALUES:
            raise _too_many("", values, f"a body has at most {MOST_VALUES:,}")
        items = value.items() if isinstance(value, dict) else enumerate(value)
        waiting += [
            (f"{field}.{name}"[:LONGEST_QUOTE] if field else str(name)[:LONGEST_QUOTE], each)
            for name, each in items
            if isinstance(each, (list, dict))
        ]


def _too_many(field: str, count: int, most: str) -> UsageError:
    error = UsageError(
        f"{visible(field) or 'the body'} holds {count:,} items or more; {most}",
        code="too_many_items",
    )
    if field == "workloads":
        error.code = "bad_workloads"
    error.field = visible(field)
    return error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for name, times in Counter(name for name, _ in pairs).items():
        if times > 1:
            raise UsageError(
                f"{name[:LONGEST_QUOTE]!r} is given {times} times in an object of the body",
                code="repeated_field",
                mend=f"give {name[:LONGEST_QUOTE]!r} once",
            )
    return dict(pairs)


TheServices = Annotated[Services, Depends(_services)]
TheStore = Annotated[Store, Depends(_store)]
