"""Small directed graphs in CSR form: row offsets, then the neighbours of each vertex in order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Graph:
    """`offsets[v]` to `offsets[v + 1]` is the part of `neighbours` that belongs to vertex v."""

    name: str
    offsets: np.ndarray  # int32
    neighbours: np.ndarray  # int32

    @property
    def vertices(self) -> int:
        return len(self.offsets) - 1

    @property
    def edges(self) -> int:
        return len(self.neighbours)


def graph_of(name: str, vertices: int, edges: Iterable[tuple[int, int]]) -> Graph:
    """The graph with these edges, each once and none from a vertex to itself."""
    lists: list[set[int]] = [set() for _ in range(vertices)]
    for source, target in edges:
        if source != target:
            lists[source].add(target)
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int32)
    neighbours = np.array([target for row in lists for target in sorted(row)], dtype=np.int32)
    return Graph(name, offsets, neighbours)


def dense(vertices: int, edges: int, seed: int) -> Graph:
    """Random edges; most vertices share neighbours with others."""
    random = np.random.default_rng(seed)
    pairs = random.integers(0, vertices, (edges, 2)).tolist()
    return graph_of("random", vertices, ((source, target) for source, target in pairs))


def star(vertices: int) -> Graph:
    """The last vertex neighbours all others, in both directions: one long row, many short ones."""
    hub = vertices - 1
    spokes = [(vertex, hub) for vertex in range(hub)]
    return graph_of("star", vertices, [*spokes, *((hub, vertex) for vertex, _ in spokes)])


def layered(vertices: int) -> Graph:
    """Edges from each vertex to later ones only, which share their targets; the last has none."""
    steps = (1, 2, 5, 11)
    return graph_of(
        "layered",
        vertices,
        (
            (vertex, vertex + step)
            for vertex in range(vertices)
            for step in steps
            if vertex + step < vertices
        ),
    )


def edgeless(vertices: int) -> Graph:
    return graph_of("edgeless", vertices, ())
