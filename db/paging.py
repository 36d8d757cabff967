"""Pages by key, not by offset: rows that arrive move nothing, and the last page costs what the first does."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, true, tuple_
from sqlalchemy.orm import Session

from greenfast.db.rows import Page
from greenfast.search.errors import UsageError

LARGEST_PAGE = 500
LARGEST_INTEGER = 2**63 - 1
T = TypeVar("T")


def check_limit(limit: int) -> int:
    if not isinstance(limit, int) or not 1 <= limit <= LARGEST_PAGE:
        raise UsageError(f"a page of {limit}", code="bad_limit", mend=f"1 to {LARGEST_PAGE}")
    return limit


def cursor_of(order: str, values: Sequence[Any]) -> str:
    """Where the next page starts; good only for a list in the same `order`."""
    text = json.dumps([order, *values], separators=(",", ":"), allow_nan=False)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def values_of(cursor: str | None, order: str, types: Sequence[type]) -> tuple[Any, ...] | None:
    """What `cursor_of` was given; None without a cursor. UsageError when it is not one of this list."""
    if cursor is None:
        return None
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        found, *values = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        good = found == order and len(values) == len(types) and all(map(_fits, values, types))
    except (ValueError, TypeError, RecursionError):
        good = False
    if not good:
        raise UsageError(
            "the cursor is not one of this list",
            code="bad_cursor",
            mend="start without a cursor, and keep sort and filters while paging",
        )
    return tuple(values)


def _fits(value: Any, wanted: type) -> bool:
    if value is None:
        return wanted is float
    if wanted is float:
        return (
            isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e308
        )
    return type(value) is wanted and (wanted is not int or abs(value) <= LARGEST_INTEGER)


def page_of(
    rows: Sequence[T],
    limit: int,
    order: str,
    key: Callable[[T], Sequence[Any]],
    item: Callable[[T], Any],
) -> Page[Any]:
    """A page of rows that were fetched with one more than `limit`."""
    shown = rows[:limit]
    more = cursor_of(order, key(shown[-1])) if len(rows) > limit else None
    return Page(tuple(item(one) for one in shown), more)


def after(
    columns: Sequence[Any], values: Sequence[Any] | None, descending: bool
) -> ColumnElement[bool]:
    """The rows behind `values` in the order of `columns`."""
    if values is None:
        return true()
    return tuple_(*columns) < tuple_(*values) if descending else tuple_(*columns) > tuple_(*values)


def sorted_rows(
    session: Session,
    query: Select[Any],
    column: Any,
    number: Any,
    descending: bool,
    behind: tuple[Any, int] | None,
    limit: int,
) -> list[Any]:
    """Rows by `column`, then `number`; those without a value last, whichever the direction."""
    rows: list[Any] = []
    if behind is None or behind[0] is not None:
        keys = [column.desc(), number.desc()] if descending else [column, number]
        known = query.where(column.is_not(None), after((column, number), behind, descending))
        rows = list(session.execute(known.order_by(*keys).limit(limit)))
    if len(rows) < limit:
        past = number > behind[1] if behind is not None and behind[0] is None else true()
        rows += session.execute(
            query.where(column.is_(None), past).order_by(number).limit(limit - len(rows))
        )
    return rows
