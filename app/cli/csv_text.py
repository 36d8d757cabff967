"""Rows as CSV in which no spreadsheet finds a formula, and no terminal a control sequence."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from greenfast.search.text import visible

WIDE = ("\uff1d", "\uff0b", "\uff0d", "\uff20")  # =, +, - and @ as East Asian Excel reads them
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", *WIDE)


def csv_text(titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """The rows below their titles (RFC 4180)."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_cell(title) for title in titles])
    for row in rows:
        writer.writerow([_cell(value) for value in row])
    return out.getvalue()


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return value
    shown = visible(value)
    return f"'{shown}" if shown.startswith(FORMULA) else shown
