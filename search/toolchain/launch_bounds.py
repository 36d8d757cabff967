"""How many threads a block may have: `__launch_bounds__` as the compiler understood it.

PTX ISA, "Performance-Tuning Directives: .maxntid": a launch of a larger block fails.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

_BOUND = re.compile(r"\.(?:maxntid|reqntid)\s+([\d,\s]+)")


def over_launch_bounds(ptx: str, entries: Sequence[str], threads: int) -> str:
    """Why no kernel of `entries` runs in blocks of `threads`; empty when one may, or is unknown."""
    bounds = [_bound(ptx, entry) for entry in entries]
    largest = max((bound for bound in bounds if bound is not None), default=0)
    if None in bounds or not largest or threads <= largest:
        return ""
    return (
        f"the template launches blocks of {threads} threads, and the __launch_bounds__ of "
        f"{', '.join(entries)} allow at most {largest}: the launch fails"
    )


def _bound(ptx: str, entry: str) -> int | None:
    header = re.search(rf"\.entry\s+{re.escape(entry)}\s*\([^{{]*", ptx)
    bound = _BOUND.search(header[0]) if header else None
    return prod(int(size) for size in bound[1].split(",")) if bound else None
