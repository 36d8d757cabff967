"""Pages by key, not by offset: new rows shift nothing, and every page costs the same.

Also the parts of long lists of values, which one statement could not take.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, true, tuple_
from sqlalchemy.orm import Session

from greenfast.db.rows import Page
from greenfast.search.errors import UsageError

LARGEST_PAGE = 500
LARGEST_INTEGER = 2**31 - 1  # of an integer column of PostgreSQL
MOST_VALUES = 400  # in one statement
T = TypeVar("T")


def check_limit(limit: int) -> int:
    if not isinstance(limit, int) or not 1 <= limit <= LARGEST_PAGE:
        raise UsageError(
            f"limit is {limit}; a page has between 1 and {LARGEST_PAGE} rows", code="bad_limit"
        )
    return limit


def cursor_of(order: str, values: Sequence[Any]) -> str:
    """The position where the next page starts, valid for lists of the same `order`."""
    text = json.dumps([order, *values], separators=(",", ":"), allow_nan=False)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def values_of(cursor: str | None, order: str, types: Sequence[type]) -> tuple[Any, ...] | None:
    """The values given to `cursor_of`; None without a cursor.

    UsageError `bad_cursor` when the cursor belongs to another list.
    """
    if cursor is None:
        return None
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        written_order, *values = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        good = (
            written_order == order and len(values) == len(types) and all(map(_fits, values, types))
        )
    except (ValueError, TypeError, RecursionError):
        good = False
    if not good:
        raise UsageError(
            "the cursor is not one of this list",
            code="bad_cursor",
            mend="start without a cursor, and keep sort and filters while paging",
        )
    return tuple(values)


def _fits(value: Any, kind: type) -> bool:
    if value is None:
        return kind is float
    if kind is float:
        return (
            isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e308
        )
    if kind is int:
        return type(value) is int and abs(value) <= LARGEST_INTEGER
    return type(value) is kind


def page_of(
    rows: Sequence[T],
    limit: int,
    order: str,
    key: Callable[[T], Sequence[Any]],
    item: Callable[[T], Any],
) -> Page[Any]:
    """A page from `rows`, which were fetched with a limit of `limit + 1`."""
    shown = rows[:limit]
    more = cursor_of(order, key(shown[-1])) if len(rows) > limit else None
    return Page(tuple(item(row) for row in shown), more)


def after(
    columns: Sequence[Any], values: Sequence[Any] | None, descending: bool
) -> ColumnElement[bool]:
    """The condition for rows behind `values` in the order of `columns`."""
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
    """Rows by `column`, then `number`. Rows without a value come last in either direction."""
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


def parts_of(values: Collection[T]) -> Iterator[list[T]]:
    """The values in lists that a statement can take."""
    ordered = list(values)
    for start in range(0, len(ordered), MOST_VALUES):
        yield ordered[start : start + MOST_VALUES]
