"""Thread block clusters: blocks of a launch that start together and share their shared memory.

A kernel's text declares its cluster with `__cluster_dims__(2, 1, 1)` before its name, so that it
launches like any other. Its template's toml repeats the shape as `cluster`, which is checked here.
Sources: CUDA C++ Programming Guide, "Thread Block Clusters" (eight blocks are portable); PTX ISA,
".reqnctapercluster" (sm_90).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import prod

from greenfast.search.devices.facts import Device

Shape = tuple[int, int, int]
ALONE: Shape = (1, 1, 1)  # a launch without clusters
PORTABLE_BLOCKS = 8
FIRST_SM = 90
_BETWEEN = re.compile(r"[;{}]")  # declarations
_SIZE = r"\s*+(\d{1,9})\s*+"
_CLUSTER = re.compile(rf"__cluster_dims__\s*+\({_SIZE}(?:,{_SIZE})?(?:,{_SIZE})?\)", re.ASCII)
_CALLED = re.compile(r"\b([A-Za-z_]\w*+)\s*+\(", re.ASCII)


def shape_text(shape: Shape) -> str:
    return " x ".join(map(str, shape))


def declared_clusters(text: str, entries: Iterable[str]) -> tuple[tuple[str, Shape], ...]:
    """The cluster of each entry whose text has `__cluster_dims__(numbers)`."""
    declared: dict[str, Shape] = {}
    for declaration in _BETWEEN.split(text):
        if (dims := _CLUSTER.search(declaration)) is None:
            continue
        shape = int(dims[1]), int(dims[2] or 1), int(dims[3] or 1)
        for name in _CALLED.findall(declaration, dims.end()):
            declared.setdefault(name, shape)
    return tuple((entry, declared[entry]) for entry in entries if entry in declared)


def misfit(cluster: Shape, grid: Shape) -> str:
    """The reason why no device can launch this cluster on this grid; empty when it fits."""
    if min(cluster) < 1:
        return f"a cluster of {shape_text(cluster)} blocks; sizes are whole numbers from 1"
    if any(blocks % size for blocks, size in zip(grid, cluster, strict=True)):
        return (
            f"the grid of {shape_text(grid)} blocks is not a multiple of its cluster of "
            f"{shape_text(cluster)}"
        )
    return ""


def device_lacks(cluster: Shape, device: Device) -> str:
    """The reason why the device cannot run such clusters; empty when it can."""
    if prod(cluster) > 1 and device.sm < FIRST_SM:
        return (
            f"a cluster of {shape_text(cluster)} blocks; {device.name} is {device.arch}, and "
            f"clusters need sm_{FIRST_SM}"
        )
    if prod(cluster) > PORTABLE_BLOCKS:
        return (
            f"a cluster of {shape_text(cluster)} blocks; at most {PORTABLE_BLOCKS} run on every "
            "device"
        )
    return ""


def misdeclared(text: str, launched: Iterable[tuple[str, Shape]]) -> str:
    """How a source and its template's launches contradict each other; empty when they agree."""
    launched = tuple(launched)
    declared = dict(declared_clusters(text, [entry for entry, _ in launched]))
    for entry, cluster in launched:
        if declared.get(entry, ALONE) != cluster:
            declaration = (
                f"declares clusters of {shape_text(declared[entry])}"
                if entry in declared
                else "declares no cluster"
            )
            return (
                f"{entry} {declaration}, but its template launches it in clusters of "
                f"{shape_text(cluster)}; {_agreement(declared.get(entry), cluster)}"
            )
    return ""


def _agreement(declared: Shape | None, launched: Shape) -> str:
    """What makes the two agree."""
    if launched != ALONE:
        return f"write __cluster_dims__({', '.join(map(str, launched))}) before its name"
    return f"write cluster = {list(declared or ALONE)} under its [[launches]]"
