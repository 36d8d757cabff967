"""Times of functions inside CUDA graphs, in turns, as compiled models run them."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping
from typing import Any

GRAPH_US = 300.0  # of one replay, at least
ROUNDS = 15
MOST_REPEATS = 400


def captured(function: Callable[[], Any], repeats: int) -> Any:
    """A graph of `repeats` calls; the memory of their results belongs to it.

    torch.cuda.graph would give all unused memory back first, which takes as long as the times.
    """
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(side):
        for _ in range(3):
            function()
        torch.cuda.synchronize()
        graph.capture_begin()
        try:
            for _ in range(repeats):
                function()
        finally:
            graph.capture_end()
    torch.cuda.current_stream().wait_stream(side)
    return graph


def replayed_us(graph: Any) -> float:
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1000


Repeated = tuple[Any, int]  # a graph, and the calls that it holds


def repeated_graphs(
    functions: Mapping[str, Callable[[], Any]],
) -> tuple[dict[str, Repeated], dict[str, float]]:
    """Graphs of so many calls that one replay takes GRAPH_US, and the quick time of a call."""
    graphs, quick = {}, {}
    for name, function in functions.items():
        graph = captured(function, 1)
        replayed_us(graph)
        rough = min(replayed_us(graph) for _ in range(3))
        repeats = max(1, min(MOST_REPEATS, int(GRAPH_US / max(rough - 2, 1)) + 1))
        graphs[name] = (captured(function, repeats), repeats)
        replayed_us(graphs[name][0])
    # Two passes: a GPU that is slow for some milliseconds must not rule a function out.
    for name in 2 * list(graphs):
        graph, repeats = graphs[name]
        us = min(replayed_us(graph) for _ in range(2)) / repeats
        quick[name] = min(us, quick.get(name, us))
    return graphs, quick


def in_turns_us(graphs: Mapping[str, Repeated], rounds: int) -> dict[str, list[float]]:
    """Times of a call, one of each function a round, in an order of its own."""
    samples: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(rounds):
        order = list(graphs)
        random.shuffle(order)
        for name in order:
            graph, repeats = graphs[name]
            samples[name].append(replayed_us(graph) / repeats)
    return samples


def samples_us(
    functions: Mapping[str, Callable[[], Any]], *, rounds: int = ROUNDS
) -> dict[str, list[float]]:
    """All times of a call of each function; hot caches."""
    return in_turns_us(repeated_graphs(functions)[0], rounds)


def times_us(
    functions: Mapping[str, Callable[[], Any]], *, rounds: int = ROUNDS, drop_above: float = 1.6
) -> dict[str, dict[str, float]]:
    """The median time of one call of each function, with the quartiles; hot caches.

    Functions that a first round finds `drop_above` times slower than the fastest keep that time.
    """
    import torch

    torch.cuda.empty_cache()  # of the graphs before
    graphs, quick = repeated_graphs(functions)
    fastest = min(quick.values())
    kept = {name: graph for name, graph in graphs.items() if quick[name] <= drop_above * fastest}
    rows = {name: {"us": time, "rough": 1.0} for name, time in quick.items()}
    for name, values in in_turns_us(kept, rounds).items():
        low, middle, high = statistics.quantiles(values, n=4)
        rows[name] = {"us": middle, "low": low, "high": high}
    return rows
