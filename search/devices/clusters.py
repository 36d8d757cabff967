"""Thread block clusters: blocks of one launch that start together and reach each other's shared memory.

A kernel's text declares its shape, `__cluster_dims__(2, 1, 1)` before its name, so that it launches like any other;
its template's toml says the same in `cluster`, which is what is checked here. Sources: CUDA C++ Programming Guide,
"Thread Block Clusters" (eight blocks are portable); PTX ISA, ".reqnctapercluster" (sm_90).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import prod

from greenfast.search.devices.facts import Device

Shape = tuple[int, int, int]
ALONE: Shape = (1, 1, 1)  # no cluster: a block is a cluster of its own
PORTABLE_BLOCKS = 8
FIRST_SM = 90


def shape_text(shape: Shape) -> str:
    return " x ".join(map(str, shape))


def declared_clusters(text: str, entries: Iterable[str]) -> tuple[tuple[str, Shape], ...]:
    """The cluster of each entry whose text says `__cluster_dims__(numbers)`."""
    found = []
    for entry in entries:
        declared = re.search(
            rf"__cluster_dims__\s*\(([\d,\s]+)\)[^;{{}}]*?\b{re.escape(entry)}\s*\(", text
        )
        if declared:
            x, y, z = (*(int(word) for word in declared.group(1).split(",")), 1, 1)[:3]
            found.append((entry, (x, y, z)))
    return tuple(found)


def misfit(cluster: Shape, grid: Shape) -> str:
    """Why a launch cannot have this cluster, whatever the device; empty when it can."""
    if min(cluster) < 1:
        return f"a cluster of {shape_text(cluster)} blocks; sizes are whole numbers from 1"
    if any(blocks % size for blocks, size in zip(grid, cluster)):
        return f"the grid of {shape_text(grid)} blocks is no multiple of its cluster of {shape_text(cluster)}"
    return ""


def device_lacks(cluster: Shape, device: Device) -> str:
    """Why the device cannot run such clusters; empty when it can."""
    if prod(cluster) > 1 and device.sm < FIRST_SM:
        return (
            f"a cluster of {shape_text(cluster)} blocks; {device.name} is {device.arch}, and clusters begin with "
            f"sm_{FIRST_SM}"
        )
    if prod(cluster) > PORTABLE_BLOCKS:
        return f"a cluster of {shape_text(cluster)} blocks; {PORTABLE_BLOCKS} are the most that every device runs"
    return ""


def misdeclared(text: str, launched: Iterable[tuple[str, Shape]]) -> str:
    """Where a source and the launches of its template differ; empty where they agree."""
    launched = tuple(launched)
    declared = dict(declared_clusters(text, [entry for entry, _ in launched]))
    for entry, cluster in launched:
        if declared.get(entry, ALONE) != cluster:
            said = (
                f"declares clusters of {shape_text(declared[entry])}"
                if entry in declared
                else "declares no cluster"
            )
            return (
                f"{entry} {said}, and its template launches it in clusters of {shape_text(cluster)}; "
                f"write __cluster_dims__({', '.join(map(str, cluster))}) before its name"
            )
    return ""
