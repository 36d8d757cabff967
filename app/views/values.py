"""The values of a parameter in the order in which people read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def in_order(values: Sequence[Any]) -> list[Any]:
    """Numbers by size, false before true; other values as their template lists them."""
    if all(type(value) in (int, float) for value in values) or all(
        type(value) is bool for value in values
    ):
        return sorted(values)
    return list(values)
