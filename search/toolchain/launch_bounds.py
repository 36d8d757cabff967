"""A kernel's bounds on its launches, as the compiler understood them.

PTX ISA, "Performance-Tuning Directives: .maxntid": a launch of a larger block fails. "Cluster
Dimension Directives": which blocks form a cluster. A text says the same by words that a macro or a
comment may hold, so a text alone tells nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import prod

from greenfast.search.devices.clusters import ALONE, Shape, shape_text

_CLUSTER = re.compile(r"\.reqnctapercluster\s+([\d,\s]+)")
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


def other_clusters(ptx: str, launched: Iterable[tuple[str, Shape]]) -> str:
    """How the compiled clusters differ from the launched ones; empty if they do not."""
    for entry, cluster in launched:
        header = _header(ptx, entry)
        compiled = _CLUSTER.search(header)
        shape = ALONE
        if compiled is not None:
            x, y, z = (*(int(size) for size in compiled[1].split(",")), 1, 1)[:3]
            shape = (x, y, z)
        if header and shape != cluster:
            return (
                f"{entry} is compiled for clusters of {shape_text(shape)}, and its template "
                f"launches it in clusters of {shape_text(cluster)}"
            )
        if compiled is None and ".explicitcluster" in header:
            return f"{entry} is compiled for clusters whose size each launch gives, and none does"
        if ".blocksareclusters" in header:
            return f"{entry} is compiled for grids of clusters, and is launched on grids of blocks"
    return ""


def _header(ptx: str, entry: str) -> str:
    """The entry's parameters and directives; empty if it is not in `ptx`."""
    header = re.search(rf"\.entry\s+{re.escape(entry)}\s*\([^{{]*", ptx)
    return header[0] if header else ""


def _bound(ptx: str, entry: str) -> int | None:
    bound = _BOUND.search(_header(ptx, entry))
    return prod(int(size) for size in bound[1].split(",")) if bound else None
