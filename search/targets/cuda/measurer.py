"""The child that owns a GPU: loads cubins, runs problems, times kernels.

Its replies go through a process beside it (reporter.py), which looks at memory after runs.

Started as `python -m greenfast.search.targets.cuda.measurer READ_FD WRITE_FD GPU`. A request is
{"do": "hello" | "execute" | "reference" | "measure", ...}. A reply holds "error" when a CUDA call
failed; the parent then replaces the child, because after an illegal address or a trap every call
in that context returns the same error.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime

from greenfast.search.children import serve_requests
from greenfast.search.targets.cuda.arena import (
    ALIGN,
    PROBLEMS,
    Arena,
    damage,
    lay_out,
    outputs,
    problems_of,
)
from greenfast.search.targets.cuda.device_memory import (
    Head,
    Heads,
    Landing,
    Span,
    fetch,
    register,
    start,
)
from greenfast.search.targets.cuda.large_reference import computed
from greenfast.search.targets.cuda.launches import Hung, Loaded, Stopwatch, wait
from greenfast.search.targets.cuda.nvml import Health
from greenfast.search.targets.cuda.repeated import Repetition, fit, own_count
from greenfast.search.targets.cuda.reporter import RUN, SLOT_BYTES
from greenfast.search.targets.cuda.slots import Slots
from greenfast.search.targets.cuda.spans import UNASKED
from greenfast.search.targets.cuda.spots import Spots
from greenfast.search.text import one_line, shortened
from greenfast.search.timing import alone, race, ring_sets

LAUNCH_TIMEOUT = 702  # cudaErrorLaunchTimeout
OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation
MODULES_KEPT = 32  # a module waits for the repetition of its launches while others are timed
WARM_UP_S = 0.03  # clocks need some milliseconds of work to rise
SHORT_WARM_UP_S = 0.003  # where they have not fallen since the last timing
IDLE_S = 0.3
PLACES = 8192  # of 256 bytes: within 2 MiB
LONGEST_ERROR = 300  # characters
ERRORS = (
    runtime.CUDARuntimeError,
    cupy.cuda.driver.CUDADriverError,
    cupy.cuda.memory.OutOfMemoryError,
)


class Measurer:
    """Answers the parent's requests, one at a time, until one breaks the context."""

    def __init__(self, number: int, slots: Slots) -> None:
        self.health = Health(number)  # must precede the context
        cupy.cuda.Device(number).use()
        self.slots = slots
        register(slots.memory)
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.span, self.heads, self.landing = Span(), Heads(), Landing()
        self.modules: OrderedDict[str, cupy.RawModule] = OrderedDict()
        self.idle_since = 0.0  # end of the last timing: clocks fall when nothing runs
        self.replied_s: float | None = None  # when the last reply was ready
        self.at = 0  # which of the request's problems runs
        self.spans: dict[str, float] = {}  # seconds of this request, by activity

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        self.at, self.spans = 0, {}
        if self.replied_s is not None:
            self.spans[UNASKED] = time.perf_counter() - self.replied_s
        try:
            with self.stream:
                return {**self._done(request), "spans": self.spans}
        except Hung as error:
            return {"error": str(error), "code": LAUNCH_TIMEOUT, "at": self.at}
        except ERRORS as error:
            return {
                "error": shortened(one_line(error), LONGEST_ERROR),
                "code": int(getattr(error, "status", OUT_OF_MEMORY)),
                "free_bytes": self._free_bytes(),
                "at": self.at,
            }
        finally:
            self.replied_s = time.perf_counter()

    def _done(self, request: dict[str, Any]) -> dict[str, Any]:
        if request.get("anew"):
            self.heads.clear()
        reply: dict[str, Any] = getattr(self, f"do_{request['do']}")(request)
        return reply

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
        """Run each problem once and write the outputs to the file `outputs`, back to back."""
        problems = problems_of(request)
        arenas = [lay_out(problem) for problem in problems]
        ends = list(accumulate(arena.total_bytes for arena in arenas))
        with self._clock("upload"):
            base = self._take(ends[-1])
            heads = [self.heads.get(*laid_out) for laid_out in zip(problems, arenas, strict=True)]
            places = [
                base + end - arena.total_bytes for end, arena in zip(ends, arenas, strict=True)
            ]
            for place, head, arena in zip(places, heads, arenas, strict=True):
                start(place, head, arena, self.stream.ptr)
            self.stream.synchronize()
        with self._clock("run"):
            for self.at, (problem, arena, place) in enumerate(
                zip(problems, arenas, places, strict=True)
            ):
                self._loaded(request["cubin"], problem, arena, place).launch(self.stream)
                wait(self.stream, request["deadline_s"])
        if ends[-1] <= SLOT_BYTES:
            return {RUN: self._handed_over(request, base, ends[-1])}
        with self._clock("download"):
            after = self.landing.fetch(base, ends[-1], self.stream)
        with self._clock("look"), Path(request["outputs"]).open("wb") as file:
            parts = [
                after[end - arena.total_bytes : end]
                for end, arena in zip(ends, arenas, strict=True)
            ]
            damages = [
                damage(problem, arena, head.host(problem, arena), part)
                for problem, arena, head, part in zip(problems, arenas, heads, parts, strict=True)
            ]
            for problem, arena, part in zip(problems, arenas, parts, strict=True):
                for image in outputs(problem, arena, part):
                    file.write(image.data)
        return {"damage": damages}

    def _handed_over(self, request: dict[str, Any], base: int, size: int) -> dict[str, Any]:
        """What the reporter needs to look at the arenas at `base`, in a slot."""
        with self._clock("wait for a slot"):
            slot = self.slots.take()
        with self._clock("download"):
            fetch(self.slots.memory[slot, :size], base, self.stream)
        given = {name: request[name] for name in PROBLEMS if name in request}
        return {"slot": slot, "outputs": request["outputs"], **given}

    def do_reference(self, request: dict[str, Any]) -> dict[str, Any]:
        """Compute a large reference and write its float64 fields to the file `outputs`."""
        try:
            reference = computed(request, cupy)
        except ERRORS:
            raise
        except Exception as error:  # CuPy lacks a function, or the reference is not written for it
            return {
                "unavailable": shortened(
                    one_line(f"{type(error).__name__}: {error}"), LONGEST_ERROR
                )
            }
        fields = []
        with Path(request["outputs"]).open("wb") as file:
            for name, arrays in reference.items():
                for field, array in arrays.items():
                    fields.append([name, field, None if array is None else list(array.shape)])
                    if array is not None:
                        file.write(np.ascontiguousarray(array, np.float64).data)
        cupy.get_default_memory_pool().free_all_blocks()
        return {"fields": fields}

    def do_measure(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time a program alone or in turns with another, on rings sized for the first's tensors.

        Its outputs go to the file `outputs`, as in `do_execute`.
        """
        programs = [(request["cubin"], request["problem"])]
        if "other_problem" in request:
            programs.append((request["other_cubin"], request["other_problem"]))
        with self._clock("upload"):
            base, rings, heads = self._rings(programs, request)
        with self._clock("prepare"):
            watches = [
                Stopwatch(ring, self.stream, request["deadline_s"], is_trusted=number > 0)
                for number, ring in enumerate(rings)
            ]
            spots = self._spots(request["problem"], watches[0], base, heads[0], len(rings[0]))
            watches[0].spots = spots
        with self._clock("wait"):
            foreign = self.health.quiet(request["quiet_s"])
        with self._clock("race"):
            samples, others = self._race(watches, request)
            # At once: a candidate could tell the repetition from the timing by a pause.
            self._once_more(request, base, heads[0], watches[0])
            self.idle_since = time.monotonic()
        with self._clock("health"):
            health = {**self.health.now(), **foreign}
        with self._clock("look"):
            left = self._look(request, base, heads[0])
        return {
            "samples": samples,
            "others": others,
            "sets": len(rings[0]),
            "nodes": watches[0].nodes,
            "other_nodes": watches[1].nodes if len(watches) == 2 else 0,
            "health": health,
            "damage": [spots.fault if spots is not None and spots.fault else left],
        }

    def _spots(
        self, described: dict[str, Any], watch: Stopwatch, base: int, head: Head, sets: int
    ) -> Spots | None:
        """Of the ring at `base`; None where launches are timed in graphs."""
        if watch.nodes:
            return None
        arena = lay_out(described)
        places = [base + number * arena.total_bytes for number in range(sets)]
        return Spots(described, arena, head.host(described, arena), places, self.stream)

    def do_repeat(self, request: dict[str, Any]) -> dict[str, Any]:
        """Launch as in `do_measure`, with the inputs of the problem `fresh` at the same addresses.

        The outputs of several launches go to the file `outputs`, back to back.
        """
        described, fresh, cubin = request["problem"], request["fresh"], request["cubin"]
        arena, count = lay_out(described), own_count(lay_out(described))
        was_kept = cubin in self.modules
        with self._clock("upload"):
            base, (ring,), (timed_head,) = self._rings([(cubin, described)], request, count + 1)
            fresh_head = self.heads.get(fresh, arena)
            places = [base + number * arena.total_bytes for number in range(len(ring) + count + 1)]
            own_places, own, spare = places[len(ring) : -1], [], places[-1]
            for place in own_places:
                start(place, fresh_head, arena, self.stream.ptr)
                own.append(self._loaded(cubin, described, arena, base, place))
        repetition = Repetition(
            ring,
            places[: len(ring)],
            own,
            own_places,
            spare,
            arena,
            fit(described, count, request["l2_bytes"]),
            self.stream,
            request["deadline_s"],
            was_kept,
        )
        with self._clock("repeat"):
            looked_at, ratios = repetition.run(timed_head, fresh_head)
        damages = []
        with self._clock("look"), Path(request["outputs"]).open("wb") as file:
            for place in looked_at:
                after = self.landing.fetch(place, arena.total_bytes, self.stream)
                damages.append(damage(fresh, arena, fresh_head.host(fresh, arena), after))
                for output in outputs(fresh, arena, after):
                    file.write(output.data)
        suspicions = [ratio.suspicion for ratio in ratios if ratio.suspicion]
        return {
            "damage": damages,
            "suspicion": "; ".join(suspicions),
            "ratios": {ratio.when: [list(ratio.slow), list(ratio.fast)] for ratio in ratios},
        }

    def _race(
        self, watches: Sequence[Stopwatch], request: dict[str, Any]
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Samples of the program and of the other one (none when it is timed alone)."""
        end = time.monotonic() + request["seconds"]
        self._warm_up(watches)
        if len(watches) == 1:
            return alone(watches[0], lambda: time.monotonic() < end), ()
        return race(
            watches[0],
            watches[1],
            request["seed"],
            lambda: time.monotonic() < end,
            request["looks"],
            request["screen"],
        )

    def _once_more(self, request: dict[str, Any], base: int, head: Head, watch: Stopwatch) -> None:
        """Repeat the timed launches, on poisoned memory: an output that they do not write shows."""
        start(base, head, lay_out(request["problem"]), self.stream.ptr)
        watch.again()
        wait(self.stream, request["deadline_s"])

    def _look(self, request: dict[str, Any], base: int, head: Head) -> tuple[str, str] | None:
        """Write the outputs of the repeated launches and return the damage that they did."""
        described, arena = request["problem"], lay_out(request["problem"])
        after = self.landing.fetch(base, arena.total_bytes, self.stream)
        with Path(request["outputs"]).open("wb") as file:
            for output in outputs(described, arena, after):
                file.write(output.data)
        return damage(described, arena, head.host(described, arena), after)

    def _rings(
        self, programs: list[tuple[str, dict[str, Any]]], request: dict[str, Any], more: int = 0
    ) -> tuple[int, list[list[Loaded]], list[Head]]:
        """The address of the first set, each program on all its sets, and each program's head.

        Room for `more` sets follows.
        """
        arenas = [lay_out(described) for _, described in programs]
        sets = ring_sets(
            sum(tensor["bytes"] for tensor in programs[0][1]["tensors"]),
            request["l2_bytes"],
            request["mode"],
        )
        # A process lays out memory the same way each time, so each run draws another placement.
        name = Path(programs[0][0]).name[:32]
        shift = ALIGN * random.Random(f"{request['seed']} {name}").randrange(PLACES)
        set_bytes = sum(arena.total_bytes for arena in arenas)
        base = self._take((sets + more) * set_bytes + ALIGN * PLACES) + shift
        heads, rings, place = [], [], base
        for (cubin, described), arena in zip(programs, arenas, strict=True):
            head, ring = self.heads.get(described, arena), []
            for _ in range(sets):
                start(place, head, arena, self.stream.ptr)
                ring.append(self._loaded(cubin, described, arena, place))
                place += arena.total_bytes
            heads.append(head)
            rings.append(ring)
        self.stream.synchronize()
        return base, rings, heads

    def _warm_up(self, watches: Sequence[Stopwatch]) -> None:
        idle = time.monotonic() - self.idle_since > IDLE_S
        end = time.monotonic() + (WARM_UP_S if idle else SHORT_WARM_UP_S)
        while True:
            for watch in watches:
                watch()
            if time.monotonic() >= end:
                return

    def _loaded(
        self,
        cubin: str,
        described: dict[str, Any],
        arena: Arena,
        base: int,
        outputs_base: int | None = None,
    ) -> Loaded:
        """The program on the arena at `base`; it may share the outputs of another one."""
        if cubin not in self.modules:
            self.modules[cubin] = cupy.RawModule(path=cubin)
        self.modules.move_to_end(cubin)
        while len(self.modules) > MODULES_KEPT:
            self.modules.popitem(last=False)
        addresses = {name: base + offset for name, (offset, _) in arena.offsets.items()}
        if outputs_base is not None:
            addresses |= {
                tensor["name"]: outputs_base + arena.offsets[tensor["name"]][0]
                for tensor in described["tensors"]
                if tensor["role"] != "input"
            }
        return Loaded(self.modules[cubin], described, addresses, arena.zeroed_spans(base))

    def _take(self, size: int) -> int:
        try:
            return self.span.take(size)
        except cupy.cuda.memory.OutOfMemoryError:
            self.heads.clear()  # a cache must not cost a candidate its run
            self.modules.clear()
            return self.span.take(size)

    def _free_bytes(self) -> int:
        try:
            return int(runtime.memGetInfo()[0])
        except ERRORS:
            return 0  # the context is broken

    @contextmanager
    def _clock(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.spans[name] = self.spans.get(name, 0.0) + time.perf_counter() - begin


if __name__ == "__main__":
    shared = Slots(int(sys.argv[2]))
    serve_requests(Measurer(int(sys.argv[3]), shared).answer, int(sys.argv[1]), shared.reply_fd)
