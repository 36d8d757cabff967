"""The child that owns a GPU: loads cubins, runs problems, times kernels. CuPy is imported here only.

Started as `python -m search.targets.cuda.measurer READ_FD WRITE_FD GPU`. A request is {"do": "hello" | "execute" |
"measure", ...}; a reply holds "error" when CUDA refused or broke something. The parent replaces a child that said so:
after an illegal address or a trap the context answers every call with the same error.
"""

from __future__ import annotations

import os
import sys
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime

from search.children import serve_requests
from search.targets.cuda.arena import Arena, damage, lay_out, outputs, starting_bytes
from search.targets.cuda.nvml import Health
from search.targets.cuda.timing import GRAPH_US, alone, graph_nodes, race, ring_sets

SCALARS = {"int32": np.int32, "int64": np.int64, "float32": np.float32, "uint64": np.uint64}
TO_DEVICE, TO_HOST = 1, 2                        # cudaMemcpyKind
SPIN_S = 0.002                                   # short work is polled, longer work slept for
LAUNCH_TIMEOUT = 702                             # cudaErrorLaunchTimeout
NOT_READY = 600                                  # cudaErrorNotReady
OUT_OF_MEMORY = 2                                # cudaErrorMemoryAllocation
MODULES_KEPT = 4
WARM_UP_S = 0.03                                 # clocks need some milliseconds of work to rise
ESTIMATE_LAUNCHES = 8
ERRORS = (runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError, cupy.cuda.memory.OutOfMemoryError)


class Hung(Exception):
    """A launch did not end; only the end of this process ends it."""


def wait(stream: cupy.cuda.Stream, deadline_s: float) -> None:
    """Until the stream's work is done. Only the GPU's time is counted: our own copies are not the candidate's."""
    begin = time.monotonic()
    while runtime.streamQuery(stream.ptr) == NOT_READY:
        waited = time.monotonic() - begin
        if waited > deadline_s:
            raise Hung(f"no end within {deadline_s:g} s")
        if waited > SPIN_S:
            time.sleep(SPIN_S)
    stream.synchronize()                         # raises what a launch brought about


class Memory:
    """One growing allocation, so that jobs do not wait for cudaMalloc."""

    def __init__(self) -> None:
        self._held: cupy.cuda.Memory | None = None

    def take(self, size: int) -> int:
        """The device address of at least `size` bytes, aligned to 256; refused before the host lays out as much."""
        if self._held is None or self._held.size < size:
            self._held = None
            free = runtime.memGetInfo()[0]
            if size > free:
                raise cupy.cuda.memory.OutOfMemoryError(size, 0, 0)
            self._held = cupy.cuda.Memory(max(size, 2**20))
        return self._held.ptr


class Loaded:
    """A cubin, a problem and where its buffers lie: what can be launched."""

    def __init__(self, module: cupy.RawModule, described: dict[str, Any], addresses: dict[str, int],
                 zeroed: list[tuple[int, int]]) -> None:
        self._zeroed = zeroed
        self._calls = []
        for one in described["launches"]:
            function = module.get_function(one["entry"])
            if one["smem"]:
                function.max_dynamic_shared_size_bytes = one["smem"]
            arguments = tuple(np.uint64(addresses[value["buffer"]]) if "buffer" in value
                              else SCALARS[value["scalar"]](value["value"]) for value in one["arguments"])
            self._calls.append((function, tuple(one["grid"]), tuple(one["block"]), arguments, one["smem"]))

    def launch(self, stream: cupy.cuda.Stream) -> None:
        for address, size in self._zeroed:
            runtime.memsetAsync(address, 0, size, stream.ptr)
        for function, grid, block, arguments, smem in self._calls:
            function(grid, block, arguments, shared_mem=smem)


class Measurer:
    """Answers the parent's requests, one at a time, until one breaks the context."""

    def __init__(self, number: int) -> None:
        cupy.cuda.Device(number).use()
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.memory = Memory()
        self.modules: OrderedDict[str, cupy.RawModule] = OrderedDict()
        self.health = Health(number)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            with self.stream:
                return getattr(self, f"do_{request['do']}")(request)
        except Hung as error:
            return {"error": str(error), "code": LAUNCH_TIMEOUT}
        except ERRORS as error:
            return {"error": str(error)[:300], "code": int(getattr(error, "status", OUT_OF_MEMORY)),
                    "free_bytes": self._free_bytes()}

    def do_hello(self, request: dict[str, Any]) -> dict[str, Any]:
        free, total = runtime.memGetInfo()
        return {"cupy": cupy.__version__, "runtime": runtime.runtimeGetVersion(), "free_bytes": free,
                "total_bytes": total, "pid": os.getpid(), "nvml": self.health.version}

    def _free_bytes(self) -> int:
        try:
            return int(runtime.memGetInfo()[0])
        except ERRORS:
            return 0                             # a broken context answers nothing

    def do_execute(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run one problem once; its outputs go to the file `outputs`."""
        described = request["problem"]
        arena = lay_out(described)
        base = self.memory.take(arena.total_bytes)
        before = starting_bytes(described, arena)
        loaded = self._loaded(request["cubin"], described, arena, base)
        self._upload(base, before)
        loaded.launch(self.stream)
        wait(self.stream, request["deadline_s"])
        return self._finished(request, described, arena, base, before)

    def do_measure(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time one program alone, or two in turn, on rings of the first one's tensors."""
        described = request["problem"]
        arenas = [lay_out(described)]
        described_other = request.get("other_problem")
        if described_other:
            arenas.append(lay_out(described_other))
        sets = ring_sets(sum(one["bytes"] for one in described["tensors"]), request["l2_bytes"], request["mode"])
        sizes = [arena.total_bytes for arena in arenas]
        base = self.memory.take(sets * sum(sizes))
        rings, before = [], None
        position = base
        cubins = (request["cubin"], request.get("other_cubin"))
        for cubin, one, arena in zip(cubins, (described, described_other), arenas):
            start = starting_bytes(one, arena)
            before = start if before is None else before
            ring = []
            for _ in range(sets):
                self._upload(position, start)
                ring.append(self._loaded(cubin, one, arena, position))
                position += arena.total_bytes
            rings.append(ring)
        times = [Stopwatch(ring, self.stream, request["deadline_s"]) for ring in rings]
        end = time.monotonic() + request["seconds"]
        self._warm_up(times)
        if len(times) == 2:
            samples, others = race(times[0], times[1], request["seed"], lambda: time.monotonic() < end)
        else:
            samples, others = alone(times[0], lambda: time.monotonic() < end), ()
        health = self.health.now()
        # What the timed launches left: poisoned again, so that an output which they no longer write shows.
        self._upload(base, before)
        times[0].again()
        wait(self.stream, request["deadline_s"])
        return {"samples": samples, "others": others, "sets": sets, "nodes": times[0].nodes,
                "other_nodes": times[1].nodes if len(times) == 2 else 0, "health": health,
                **self._finished(request, described, arenas[0], base, before)}

    def _warm_up(self, times: list[Stopwatch]) -> None:
        end = time.monotonic() + WARM_UP_S
        while True:
            for one in times:
                one()
            if time.monotonic() >= end:
                return

    def _finished(self, request: dict[str, Any], described: dict[str, Any], arena: Arena, base: int,
                  before: np.ndarray) -> dict[str, Any]:
        after = np.empty(arena.total_bytes, np.uint8)
        runtime.memcpy(after.ctypes.data, base, after.nbytes, TO_HOST)
        with Path(request["outputs"]).open("wb") as file:
            for one in outputs(described, arena, after):
                file.write(one.data)
        return {"damage": damage(described, arena, before, after)}

    def _loaded(self, cubin: str, described: dict[str, Any], arena: Arena, base: int) -> Loaded:
        if cubin not in self.modules:
            self.modules[cubin] = cupy.RawModule(path=cubin)
        self.modules.move_to_end(cubin)
        while len(self.modules) > MODULES_KEPT:
            self.modules.popitem(last=False)
        addresses = {name: base + offset for name, (offset, _) in arena.offsets.items()}
        zeroed = [(addresses[name], arena.offsets[name][1]) for name in arena.zeroed if arena.offsets[name][1]]
        return Loaded(self.modules[cubin], described, addresses, zeroed)

    def _upload(self, base: int, memory: np.ndarray) -> None:
        runtime.memcpy(base, memory.ctypes.data, memory.nbytes, TO_DEVICE)
        runtime.deviceSynchronize()              # a pageable copy may return before it has arrived


class Stopwatch:
    """Calling it gives microseconds a launch, over a ring of input sets."""

    def __init__(self, ring: list[Loaded], stream: cupy.cuda.Stream, deadline_s: float) -> None:
        self._ring, self._stream, self._next, self._deadline_s = ring, stream, 0, deadline_s
        self._begin, self._end = cupy.cuda.Event(), cupy.cuda.Event()
        for _ in range(2):
            self._launch_next()                  # the first launch of a function loads it
        self.nodes = graph_nodes(self._estimate_us())
        self._graphs = [self._graph(count * self.nodes) for count in (1, 2)] if self.nodes else []

    def __call__(self) -> float:
        if not self.nodes:
            self._launch_next()                  # while this one runs, the timed one is queued: no launch latency in it
            return self._elapsed_us(self._launch_next)
        for _ in range(3):
            short, long = (self._elapsed_us(graph.launch) for graph in self._graphs)
            if long > short:
                return (long - short) / self.nodes
        return long / (2 * self.nodes)           # never seen on a quiet GPU: an upper bound of the time

    def again(self) -> None:
        """Once more what was timed, from the first set on."""
        self._next = 0
        self._graphs[0].launch() if self.nodes else self._launch_next()

    def _estimate_us(self) -> float:
        single = min(self._elapsed_us(self._launch_next) for _ in range(2))
        if single >= 2 * GRAPH_US:               # too long for a launch's latency to matter here
            return single
        graph = self._graph(ESTIMATE_LAUNCHES)
        return min(self._elapsed_us(graph.launch) for _ in range(3)) / ESTIMATE_LAUNCHES

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

    def _elapsed_us(self, start) -> float:
        self._begin.record(self._stream)
        start()
        self._end.record(self._stream)
        wait(self._stream, self._deadline_s)
        return 1000.0 * cupy.cuda.get_elapsed_time(self._begin, self._end)


if __name__ == "__main__":
    serve_requests(Measurer(int(sys.argv[3])).answer, int(sys.argv[1]), int(sys.argv[2]))
