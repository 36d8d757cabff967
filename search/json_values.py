"""JSON output. RFC 8259 has no NaN and no infinities, so they are written as strings."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import Enum
from typing import Any


def number_name(value: float) -> str:
    """`NaN`, `Infinity` or `-Infinity`, as ECMAScript and Python name them."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def json_values(value: Any) -> Any:
    """`value` as JSON data.

    Floats that are not finite become strings, enumeration members their values, tuples lists.
    """
    if isinstance(value, Enum):
        return json_values(value.value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else number_name(value)
    if isinstance(value, Mapping):
        return {key: json_values(item) for key, item in value.items()}
    return [json_values(item) for item in value] if isinstance(value, (list, tuple)) else value


def json_text(value: Any, *, sort_keys: bool = False) -> str:
    """Indented JSON in ASCII, for files and stdout."""
    return json.dumps(
        json_values(value), indent=2, ensure_ascii=True, allow_nan=False, sort_keys=sort_keys
    )
