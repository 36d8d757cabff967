"""The child that owns a GPU: loads cubins, runs problems, times kernels. CuPy is imported here only.

Started as `python -m greenfast.search.targets.cuda.measurer READ_FD WRITE_FD GPU`. A request is {"do": "hello" | "execute" |
"measure", ...}; a reply holds "error" when CUDA refused or broke something. The parent replaces a child that said so:
after an illegal address or a trap the context answers every call with the same error.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime

from greenfast.search.children import serve_requests
from greenfast.search.targets.cuda.arena import ALIGN, Arena, damage, lay_out, outputs
from greenfast.search.targets.cuda.device_memory import Head, Heads, Landing, Span, start
from greenfast.search.targets.cuda.large_reference import computed
from greenfast.search.targets.cuda.nvml import Health
from greenfast.search.text import shortened
from greenfast.search.timing import GRAPH_US, alone, graph_nodes, race, ring_sets

SCALARS = {"int32": np.int32, "int64": np.int64, "float32": np.float32, "uint64": np.uint64}
SPIN_S = 0.002  # short work is polled, longer work slept for
LAUNCH_TIMEOUT = 702  # cudaErrorLaunchTimeout
NOT_READY = 600  # cudaErrorNotReady
OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation
MODULES_KEPT = 8
WARM_UP_S = 0.03  # clocks need some milliseconds of work to rise
SHORT_WARM_UP_S = 0.003  # where they have not fallen since the last timing
IDLE_S = 0.3
PLACES = 8192  # of 256 bytes: within 2 MiB
ESTIMATE_LAUNCHES = 8
ERRORS = (
    runtime.CUDARuntimeError,
    cupy.cuda.driver.CUDADriverError,
    cupy.cuda.memory.OutOfMemoryError,
)


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
    stream.synchronize()  # raises what a launch brought about


class Loaded:
    """A cubin, a problem and where its buffers lie: what can be launched."""

    def __init__(
        self,
        module: cupy.RawModule,
        described: dict[str, Any],
        addresses: dict[str, int],
        zeroed: list[tuple[int, int]],
    ) -> None:
        self._zeroed = zeroed
        self._calls = []
        for one in described["launches"]:
            function = module.get_function(one["entry"])
            if one["smem"]:
                function.max_dynamic_shared_size_bytes = one["smem"]
            arguments = tuple(
                np.uint64(addresses[value["buffer"]])
                if "buffer" in value
                else SCALARS[value["scalar"]](value["value"])
                for value in one["arguments"]
            )
            self._calls.append(
                (function, tuple(one["grid"]), tuple(one["block"]), arguments, one["smem"])
            )

    def launch(self, stream: cupy.cuda.Stream) -> None:
        for address, size in self._zeroed:
            runtime.memsetAsync(address, 0, size, stream.ptr)
        for function, grid, block, arguments, smem in self._calls:
            function(grid, block, arguments, shared_mem=smem)


class Measurer:
    """Answers the parent's requests, one at a time, until one breaks the context."""

    def __init__(self, number: int) -> None:
        self.health = Health(number)  # before there is a context
        cupy.cuda.Device(number).use()
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.span, self.heads, self.landing = Span(), Heads(), Landing()
        self.modules: OrderedDict[str, cupy.RawModule] = OrderedDict()
        self.idle_since = 0.0  # of the last timing's end: clocks fall when nothing runs
        self.at = 0  # of several problems the one that runs
        self.spans: dict[str, float] = {}  # seconds of this request, by what they went into

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        self.at, self.spans = 0, {}
        try:
            with self.stream:
                return {**getattr(self, f"do_{request['do']}")(request), "spans": self.spans}
        except Hung as error:
            return {"error": str(error), "code": LAUNCH_TIMEOUT, "at": self.at}
        except ERRORS as error:
            return {
                "error": shortened(str(error)),
                "code": int(getattr(error, "status", OUT_OF_MEMORY)),
                "free_bytes": self._free_bytes(),
                "at": self.at,
            }

    def do_hello(self, request: dict[str, Any]) -> dict[str, Any]:
        free, total = runtime.memGetInfo()
        return {
            "cupy": cupy.__version__,
            "runtime": runtime.runtimeGetVersion(),
            "free_bytes": free,
            "total_bytes": total,
            "pid": os.getpid(),
            "nvml": self.health.version,
        }

    def do_execute(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run each problem once; their outputs go to the file `outputs`, one after the other."""
        problems = request["problems"]
        arenas = [lay_out(problem) for problem in problems]
        ends = list(accumulate(one.total_bytes for one in arenas))
        with self._clock("upload"):
            base = self._take(ends[-1])
            heads = [self.heads.get(*both) for both in zip(problems, arenas)]
            places = [base + end - one.total_bytes for end, one in zip(ends, arenas)]
            for place, head, arena in zip(places, heads, arenas):
                start(place, head, arena, self.stream.ptr)
            self.stream.synchronize()
        with self._clock("run"):
            for self.at, (one, arena, place) in enumerate(zip(problems, arenas, places)):
                self._loaded(request["cubin"], one, arena, place).launch(self.stream)
                wait(self.stream, request["deadline_s"])
        with self._clock("download"):
            after = self.landing.fetch(base, ends[-1], self.stream)
        with self._clock("look"), Path(request["outputs"]).open("wb") as file:
            parts = [after[end - one.total_bytes : end] for end, one in zip(ends, arenas)]
            found = [
                damage(one, arena, head.host, part)
                for one, arena, head, part in zip(problems, arenas, heads, parts)
            ]
            for one, arena, part in zip(problems, arenas, parts):
                for image in outputs(one, arena, part):
                    file.write(image.data)
        return {"damage": found}

    def do_reference(self, request: dict[str, Any]) -> dict[str, Any]:
        """Outputs of a large reference, as float64, one field after the other in the file `outputs`."""
        try:
            found = computed(request, cupy)
        except ERRORS:
            raise
        except Exception as error:  # CuPy lacks a function, or the author's text is not made for it
            return {"unavailable": shortened(f"{type(error).__name__}: {error}")}
        fields = []
        with Path(request["outputs"]).open("wb") as file:
            for name, one in found.items():
                for field, array in one.items():
                    fields.append([name, field, None if array is None else list(array.shape)])
                    if array is not None:
                        file.write(np.ascontiguousarray(array, np.float64).data)
        cupy.get_default_memory_pool().free_all_blocks()
        return {"fields": fields}

    def do_measure(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time one program alone, or two in turn, on rings of the first one's tensors; what they left as in `execute`."""
        both = [(request["cubin"], request["problem"])]
        if "other_problem" in request:
            both.append((request["other_cubin"], request["other_problem"]))
        with self._clock("upload"):
            base, rings, heads = self._rings(both, request)
        with self._clock("prepare"):
            times = [Stopwatch(ring, self.stream, request["deadline_s"]) for ring in rings]
        with self._clock("wait"):
            foreign = self.health.quiet(request["quiet_s"])
        with self._clock("race"):
            end = time.monotonic() + request["seconds"]
            self._warm_up(times)
            if len(times) == 2:
                samples, others = race(
                    times[0],
                    times[1],
                    request["seed"],
                    lambda: time.monotonic() < end,
                    request["looks"],
                    request["screen"],
                )
            else:
                samples, others = alone(times[0], lambda: time.monotonic() < end), ()
            self.idle_since = time.monotonic()
        with self._clock("health"):
            health = {**self.health.now(), **foreign}
        with self._clock("look"):
            # What the timed launches left: poisoned again, so that an output which they no longer write shows.
            described, arena = request["problem"], lay_out(request["problem"])
            start(base, heads[0], arena, self.stream.ptr)
            times[0].again()
            wait(self.stream, request["deadline_s"])
            after = self.landing.fetch(base, arena.total_bytes, self.stream)
            with Path(request["outputs"]).open("wb") as file:
                for output in outputs(described, arena, after):
                    file.write(output.data)
            found = damage(described, arena, heads[0].host, after)
        return {
            "samples": samples,
            "others": others,
            "sets": len(rings[0]),
            "nodes": times[0].nodes,
            "other_nodes": times[1].nodes if len(times) == 2 else 0,
            "health": health,
            "damage": [found],
        }

    def _rings(
        self, both: list[tuple[str, dict[str, Any]]], request: dict[str, Any]
    ) -> tuple[int, list[list[Loaded]], list[Head]]:
        """Where the first set begins, each program on all its sets, and what the sets begin with."""
        arenas = [lay_out(one) for _, one in both]
        sets = ring_sets(
            sum(tensor["bytes"] for tensor in both[0][1]["tensors"]),
            request["l2_bytes"],
            request["mode"],
        )
        # A process lays out memory the same way each time; a placement drawn for each run keeps it from being special.
        shift = ALIGN * random.Random(f"{request['seed']} {Path(both[0][0]).name[:32]}").randrange(
            PLACES
        )
        base = self._take(sets * sum(one.total_bytes for one in arenas) + ALIGN * PLACES) + shift
        heads, rings, place = [], [], base
        for (cubin, described), arena in zip(both, arenas):
            head, ring = self.heads.get(described, arena), []
            for _ in range(sets):
                start(place, head, arena, self.stream.ptr)
                ring.append(self._loaded(cubin, described, arena, place))
                place += arena.total_bytes
            heads.append(head)
            rings.append(ring)
        self.stream.synchronize()
        return base, rings, heads

    def _warm_up(self, times: list[Stopwatch]) -> None:
        idle = time.monotonic() - self.idle_since > IDLE_S
        end = time.monotonic() + (WARM_UP_S if idle else SHORT_WARM_UP_S)
        while True:
            for time_ in times:
                time_()
            if time.monotonic() >= end:
                return

    def _loaded(self, cubin: str, described: dict[str, Any], arena: Arena, base: int) -> Loaded:
        if cubin not in self.modules:
            self.modules[cubin] = cupy.RawModule(path=cubin)
        self.modules.move_to_end(cubin)
        while len(self.modules) > MODULES_KEPT:
            self.modules.popitem(last=False)
        addresses = {name: base + offset for name, (offset, _) in arena.offsets.items()}
        zeroed = [
            (addresses[name], arena.offsets[name][1])
            for name in arena.zeroed
            if arena.offsets[name][1]
        ]
        return Loaded(self.modules[cubin], described, addresses, zeroed)

    def _take(self, size: int) -> int:
        try:
            return self.span.take(size)
        except cupy.cuda.memory.OutOfMemoryError:
            self.heads.clear()  # what is kept to save time must not cost a candidate its run
            return self.span.take(size)

    def _free_bytes(self) -> int:
        try:
            return int(runtime.memGetInfo()[0])
        except ERRORS:
            return 0  # a broken context answers nothing

    @contextmanager
    def _clock(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.spans[name] = self.spans.get(name, 0.0) + time.perf_counter() - begin


class Stopwatch:
    """Calling it gives microseconds a launch, over a ring of input sets."""

    def __init__(self, ring: list[Loaded], stream: cupy.cuda.Stream, deadline_s: float) -> None:
        self._ring, self._stream, self._next, self._deadline_s = ring, stream, 0, deadline_s
        self._begin, self._end = cupy.cuda.Event(), cupy.cuda.Event()
        for _ in range(2):
            self._launch_next()  # the first launch of a function loads it
        self.nodes = graph_nodes(self._estimate_us(), len(ring))
        self._graphs = [self._graph(count * self.nodes) for count in (1, 2)] if self.nodes else []

    def __call__(self) -> float:
        if not self.nodes:
            self._launch_next()  # while this one runs, the timed one is queued: no launch latency in it
            return self._elapsed_us(self._launch_next)
        for _ in range(3):
            short, long = (self._elapsed_us(graph.launch) for graph in self._graphs)
            if long > short:
                return (long - short) / self.nodes
        return long / (2 * self.nodes)  # never seen on a quiet GPU: an upper bound of the time

    def again(self) -> None:
        """Once more what was timed, from the first set on."""
        self._next = 0
        self._graphs[0].launch() if self.nodes else self._launch_next()

    def _estimate_us(self) -> float:
        single = min(self._elapsed_us(self._launch_next) for _ in range(2))
        if single >= 2 * GRAPH_US:  # too long for a launch's latency to matter here
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
