"""The timed launches again: with other inputs at the same addresses, and an output for each launch.

Timed launches repeat the same inputs, at the same addresses, one right after the other. A candidate
could keep answers by address, by content, or by the time since its last launch. CuPy is imported:
for children only.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import cupy
from cupy.cuda import runtime

from greenfast.search.targets.cuda.arena import Arena
from greenfast.search.targets.cuda.device_memory import ON_DEVICE, Head
from greenfast.search.targets.cuda.launches import Loaded, Stopwatch, wait
from greenfast.search.targets.cuda.work_left_out import CHANGED, SEPARATE, Ratio
from greenfast.search.timing import LOOKS

OWN_OUTPUTS = 8  # that launches in a row write in turn
ROWS = 6  # as long as a timing's rows: twice in turn, N launches and 2 N
MOST_BYTES = 2**28  # of these outputs' sets
TURNS = 12  # of each comparison of times
WARM_UP_CALLS = 3
FRESH_CALLS = 2 * LOOKS[-1]  # as many as a timing takes, for a module that was loaded again


@dataclass(frozen=True)
class Repetition:
    """Launches of one program: on the ring that is timed, and with outputs of their own."""

    ring: Sequence[Loaded]
    places: Sequence[int]  # the ring's sets
    own: Sequence[Loaded]  # the first set's inputs and workspaces; empty if there is no room
    own_places: Sequence[int]
    spare: int  # a set that no launch uses
    arena: Arena
    own_fit: bool  # these outputs and a set stay in the L2
    stream: cupy.cuda.Stream
    deadline_s: float
    was_kept: bool  # the timed module was still loaded; otherwise its state is built up again

    def run(self, timed: Head, fresh: Head) -> tuple[list[int], list[Ratio]]:
        """(the sets to look at, ratios of times).

        The sets then hold what launches on the inputs of `fresh` left in them.
        """
        watch = Stopwatch(self.ring, self.stream, self.deadline_s)
        for _ in range(WARM_UP_CALLS if self.was_kept else FRESH_CALLS):
            watch()  # whatever is kept from launch to launch is kept now
        ratios = [self._changed(watch, timed, fresh)]
        if self.own_fit:  # else the ratio would compare L2 with DRAM
            ratios.append(self._own(watch))
        self._refill(self.places, timed)
        watch()
        self._refill(self.places, fresh)
        self._refill(self.own_places, fresh)
        self._pass(max(watch.nodes, len(self.ring)))
        return [*_drawn(self.places), *_drawn(self.own_places)], ratios

    def _refill(self, places: Sequence[int], head: Head) -> None:
        """Other inputs and poisoned outputs; workspaces stay as they are."""
        for place in places:
            head.copy_to(place, self.stream.ptr)

    def _pass(self, launches: int) -> None:
        """The timed launches, and without a pause those with outputs of their own."""
        ring = (self.ring[number % len(self.ring)] for number in range(launches))
        self._graph(chain(ring, self.own)).launch(self.stream)
        wait(self.stream, self.deadline_s)

    def _changed(self, watch: Stopwatch, timed: Head, fresh: Head) -> Ratio:
        """Times of launches whose inputs changed, against those that find all as they left it.

        Both kinds follow the same copies, so that caches hold the same.
        """
        changed: list[float] = []
        same: list[float] = []
        for turn in range(TURNS + 1):
            other, own = (timed, fresh)[:: 1 if turn % 2 else -1]
            for times in (changed, same):
                self._copy(self.places[0], self.spare)  # inputs and outputs after the last launch
                self._refill(self.places[:1], other)
                if times is changed:
                    self._refill(self.places[:1], own)
                else:
                    self._copy(self.spare, self.places[0])
                times.append(watch.elapsed_us(partial(self.ring[0].launch, self.stream)))
        return Ratio("on other inputs", changed[1:], same[1:], CHANGED)

    def _copy(self, source: int, place: int) -> None:
        size = self.arena.head_bytes
        runtime.memcpyAsync(place, source, size, ON_DEVICE, self.stream.ptr)

    def _own(self, watch: Stopwatch) -> Ratio:
        """Times of launches in a row that write different outputs, against one output.

        The end of a row that is as long as a timing's is timed: a candidate could work in the first
        launches of each row.
        """
        count = max(watch.nodes, len(self.own))
        separate = self._graph(self.own[number % len(self.own)] for number in range(count))
        again = self._graph([self.ring[0]] * count)
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(TURNS + 1):
            for graph, kept in zip((separate, again), times, strict=True):
                for _ in range(ROWS - 1 if watch.nodes else 0):
                    graph.launch(self.stream)
                kept.append(watch.elapsed_us(partial(graph.launch, self.stream)))
        return Ratio("with outputs of their own", times[0][1:], times[1][1:], SEPARATE)

    def _graph(self, launches: Iterable[Loaded]) -> cupy.cuda.Graph:
        self.stream.begin_capture()
        for loaded in launches:
            loaded.launch(self.stream)
        graph = self.stream.end_capture()
        graph.upload(self.stream)
        return graph


def own_count(arena: Arena) -> int:
    """How many launches in a row get an output of their own; 0 for large ones."""
    count = min(OWN_OUTPUTS, MOST_BYTES // arena.total_bytes)
    return count if count > 1 else 0


def fit(described: Mapping[str, Any], count: int, l2_bytes: int) -> bool:
    """Whether a set and `count` more of its outputs take at most half the L2."""
    sizes = [(tensor["role"] != "input", tensor["bytes"]) for tensor in described["tensors"]]
    every = sum(size for _, size in sizes) + sum(each["bytes"] for each in described["workspaces"])
    written = sum(size for is_output, size in sizes if is_output)
    return count > 1 and every + count * written <= l2_bytes // 2


def _drawn(places: Sequence[int]) -> list[int]:
    """The last set, and another one that no candidate can foresee."""
    if not places:
        return []
    return sorted({places[-1], random.SystemRandom().choice(places)})
