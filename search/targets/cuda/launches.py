"""Launches of a loaded cubin on the GPU, and their times. CuPy is imported: for children only."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import cupy
import numpy as np
from cupy.cuda import runtime

from greenfast.search.targets.cuda.spots import Spots
from greenfast.search.timing import GRAPH_US, UNCOVERED_US, graph_nodes

SCALARS = {
    "int32": np.int32,
    "int64": np.int64,
    "float32": np.float32,
    "float64": np.float64,
    "uint64": np.uint64,
}
SPIN_S = 0.002  # a wait polls for so long, then it sleeps between polls
NOT_READY = 600  # cudaErrorNotReady
ESTIMATE_LAUNCHES = 8


class Hung(Exception):
    """A launch did not end. Only the end of this process stops it."""


def wait(stream: cupy.cuda.Stream, deadline_s: float) -> None:
    """Return when the stream's work is done; Hung after `deadline_s`.

    The clock starts with the call, so copies that ended before do not count against the candidate.
    """
    begin = time.monotonic()
    while runtime.streamQuery(stream.ptr) == NOT_READY:
        waited = time.monotonic() - begin
        if waited > deadline_s:
            raise Hung(f"no end within {deadline_s:g} s")
        if waited > SPIN_S:
            time.sleep(SPIN_S)
    stream.synchronize()  # raises the error of a failed launch


class Launchable(Protocol):
    """One pass over one set of inputs."""

    def launch(self, stream: cupy.cuda.Stream) -> None: ...


class Loaded:
    """A cubin with a problem and the addresses of its buffers, ready to launch."""

    def __init__(
        self,
        module: cupy.RawModule,
        described: dict[str, Any],
        addresses: dict[str, int],
        zeroed: list[tuple[int, int]],
    ) -> None:
        """`zeroed`: (address, bytes) of the workspaces that each pass must find zeroed."""
        self._zeroed = zeroed
        self._calls = []
        for launch in described["launches"]:
            function = module.get_function(launch["entry"])
            if launch["smem"]:
                function.max_dynamic_shared_size_bytes = launch["smem"]
            arguments = tuple(_argument(value, addresses) for value in launch["arguments"])
            grid, block = tuple(launch["grid"]), tuple(launch["block"])
            self._calls.append((function, grid, block, arguments, launch["smem"]))

    def launch(self, stream: cupy.cuda.Stream) -> None:
        for address, size in self._zeroed:
            runtime.memsetAsync(address, 0, size, stream.ptr)
        for function, grid, block, arguments, smem in self._calls:
            function(grid, block, arguments, shared_mem=smem)


def _argument(value: dict[str, Any], addresses: dict[str, int]) -> Any:
    if "buffer" in value:
        return np.uint64(addresses[value["buffer"]])
    if "tensor_map" in value:
        # Beside peers a Python without cuda-bindings may run this, for kernels without maps.
        from greenfast.search.targets.cuda.tensor_maps import encoded

        return encoded(value["tensor_map"], addresses[value["tensor_map"]["buffer"]])
    return SCALARS[value["scalar"]](value["value"])


class Stopwatch:
    """Calling it returns microseconds per pass, over a ring of input sets."""

    def __init__(
        self,
        ring: Sequence[Launchable],
        stream: cupy.cuda.Stream,
        deadline_s: float,
        *,
        is_trusted: bool = False,
    ) -> None:
        """`is_trusted`: it gains nothing if it can tell timed launches by the time before them."""
        self._ring, self._stream, self._next, self._deadline_s = ring, stream, 0, deadline_s
        self.spots: Spots | None = None  # that launches which are timed one by one must write
        self._begin, self._end = cupy.cuda.Event(), cupy.cuda.Event()
        for _ in range(2):
            self._launch_next()  # the first launch of a function loads it
        estimate_us = self._estimate_us()
        self._is_covered = not is_trusted or estimate_us < UNCOVERED_US
        self.nodes = graph_nodes(estimate_us, len(ring))
        self._graphs = [self._graph(count * self.nodes) for count in (1, 2)] if self.nodes else []

    def __call__(self) -> float:
        if not self.nodes:
            if self._is_covered:  # while this launch runs, the timed one is queued
                self._launch_next()
            return self._launch_us()
        for _ in range(3):
            short, long = (self.elapsed_us(graph.launch) for graph in self._graphs)
            if long > short:
                return (long - short) / self.nodes
        return long / (2 * self.nodes)  # never seen on a quiet GPU: an upper bound of the time

    def again(self) -> None:
        """Repeat the timed work, from the first set on."""
        self._next = 0
        self._graphs[0].launch() if self.nodes else self._launch_next()

    def _launch_us(self) -> float:
        """Microseconds of one launch, which must write what is taken away before it."""
        if self.spots is None:
            return self.elapsed_us(self._launch_next)
        self.spots.take(self._next % len(self._ring))
        took_us = self.elapsed_us(self._launch_next)
        self.spots.look()
        return took_us

    def _estimate_us(self) -> float:
        # Other work on the GPU may hold one of them up.
        single = min(self.elapsed_us(self._launch_next) for _ in range(2))
        if single >= 2 * GRAPH_US:  # too long for a launch's latency to matter
            return single
        graph = self._graph(ESTIMATE_LAUNCHES)
        return min(self.elapsed_us(graph.launch) for _ in range(3)) / ESTIMATE_LAUNCHES

    def _launch_next(self) -> None:
        self._ring[self._next % len(self._ring)].launch(self._stream)
        self._next += 1

    def _graph(self, nodes: int) -> cupy.cuda.Graph:
        self._stream.begin_capture()
        for number in range(nodes):
            self._ring[number % len(self._ring)].launch(self._stream)
        graph = self._stream.end_capture()
        graph.upload(self._stream)
        return graph

    def elapsed_us(self, start: Callable[[], object]) -> float:
        """Microseconds of what `start` puts into the stream."""
        self._begin.record(self._stream)
        start()
        self._end.record(self._stream)
        wait(self._stream, self._deadline_s)
        return 1000.0 * float(cupy.cuda.get_elapsed_time(self._begin, self._end))
