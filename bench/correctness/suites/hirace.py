"""Indigo's CUDA files as HiRace's artifact holds them: graph kernels with planted bugs.

A file's name is a list of words. Words that end in `Bug` name what was planted; `boundsBug` is an
index that is not compared with the number of vertices, all others are races. `block` and `warp`
say who works on a vertex, and `persistent` that each of them takes several.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench.correctness.suites.cases import BOUNDS, RACE, LaunchCase, Memory, SuiteCase
from bench.correctness.suites.graphs import Graph, dense, edgeless, layered, star

SOURCES = Path("indigo/indigo_sources")
HEADERS = Path("indigo/indigo_include")
ENTRY = "test_kernel"
THREADS = 64  # of a block; two warps
PERSISTENT_BLOCKS = 3
ARGUMENTS = ("nindex", "nlist", "data1", "data2")


def cases(checkout: Path) -> list[SuiteCase]:
    """All files, in order of their names."""
    folder = checkout / SOURCES
    paths = sorted(folder.rglob("*.cu"), key=lambda path: path.name)
    return [case_of(path, checkout / HEADERS) for path in paths]


def case_of(path: Path, headers: Path) -> SuiteCase:
    words = path.stem.split("_")
    return SuiteCase(path.stem, path, label(words), launches(words), (headers,))


def label(words: list[str]) -> frozenset[str]:
    """The kinds of the planted bugs."""
    return frozenset(
        BOUNDS if word == "boundsBug" else RACE for word in words if word.endswith("Bug")
    )


def launches(words: list[str]) -> tuple[LaunchCase, ...]:
    """The kernel on graphs of several shapes.

    Where each vertex has a thread, the first graphs leave threads without a vertex, and the last
    has one for each thread, so that an index out of bounds does not hide a race.
    """
    vertices = 12 if "block" in words else 24 if "warp" in words else 80
    graphs = (
        dense(vertices, 5 * vertices, seed=1),
        star(THREADS + 6),
        layered(vertices),
        edgeless(3),
    )
    plans = [launch(graph, blocks_for(graph, words), THREADS) for graph in graphs]
    whole = dense(THREADS, 4 * THREADS, seed=2)
    if not {"block", "warp", "persistent"} & set(words):
        plans.append(launch(whole, 2, THREADS // 2, "whole"))
    return tuple(plans)


def blocks_for(graph: Graph, words: list[str]) -> int:
    """The blocks that give each vertex a worker; few where a worker takes several vertices."""
    if "persistent" in words:
        return PERSISTENT_BLOCKS
    per_block = 1 if "block" in words else THREADS // 32 if "warp" in words else THREADS
    return -(-graph.vertices // per_block)


def launch(graph: Graph, grid: int, block: int, name: str = "") -> LaunchCase:
    """A launch with data as the suite's host code fills it: 0, then random ids."""
    random = np.random.default_rng(graph.vertices)
    size = max(graph.vertices, graph.edges, 1)
    data1, data2 = (
        random.integers(0, limit, size, np.int32) for limit in (graph.vertices, graph.edges or 1)
    )
    # A vertex refers to earlier ones only, so that paths end.
    data1[: graph.vertices] %= np.arange(graph.vertices, dtype=np.int32) + 1
    data1[0] = data2[0] = 0
    neighbours = graph.neighbours if graph.edges else np.zeros(1, np.int32)
    memory = (
        Memory("nindex", "input", graph.offsets),
        Memory("nlist", "input", neighbours),
        Memory("data1", "output", data1),
        Memory("data2", "output", data2),
    )
    return LaunchCase(name or graph.name, ENTRY, grid, block, memory, (*ARGUMENTS, graph.vertices))
