"""Bytes of outputs that each timed launch must write, where launches are timed one by one.

Launches repeat each other's work, so a candidate could leave it out in those that are timed, which
it might know by the time since its last launch, or by their number. So right before each of them, a
few bytes that earlier launches wrote get what they held before, at random places. The launch has to
write them again. Graphs of short launches have checks of their own (repeated.py). CuPy is imported:
for children only.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import cupy
import numpy as np
from cupy.cuda import runtime

from greenfast.search.oracle.problem import POISON, WHOLE_POISON
from greenfast.search.targets.cuda.arena import Arena
from greenfast.search.targets.cuda.device_memory import TO_HOST

SPOT_BYTES = 4
TRIED, BEFORE_EACH = 64, 2  # spots of an output that are tried, and taken away before a launch
SENTENCE = "a timed launch did not write the bytes of an output that were taken away before it"


class Spots:
    """Places in the outputs of a ring's sets, known once launches have written them."""

    def __init__(
        self,
        described: Mapping[str, Any],
        arena: Arena,
        before: np.ndarray,
        places: Sequence[int],
        stream: cupy.cuda.Stream,
    ) -> None:
        """`before` holds the bytes of a set before any launch, `places` the sets' addresses.

        Outputs that a kernel adds to are left out: they did not begin with poison.
        """
        self._places, self._stream, self._random = places, stream, random.SystemRandom()
        self._room = np.empty(SPOT_BYTES, np.uint8)
        self._taken: list[tuple[int, int]] = []  # address and value
        self.fault: tuple[str, str] | None = None
        tried = [
            offset + SPOT_BYTES * self._random.randrange(size // SPOT_BYTES)
            for offset, size in _outputs(described, arena)
            for _ in range(TRIED)
        ]
        self._offsets = [
            (offset, value)
            for offset, value in ((each, _poison(before, each)) for each in tried)
            if value is not None and not self._holds(places[0] + offset, value)
        ]

    def take(self, number: int) -> None:
        """Take some away from set `number` of the ring, in the stream's order."""
        count = min(BEFORE_EACH, len(self._offsets))
        chosen = self._random.sample(self._offsets, count)
        self._taken = [(self._places[number] + offset, value) for offset, value in chosen]
        for address, value in self._taken:
            runtime.memsetAsync(address, value, SPOT_BYTES, self._stream.ptr)

    def look(self) -> None:
        """After the launch: note a fault if it has not written what was taken away."""
        if any(self._holds(address, value) for address, value in self._taken):
            self.fault = "unwritten", SENTENCE

    def _holds(self, address: int, value: int) -> bool:
        runtime.memcpy(self._room.ctypes.data, address, SPOT_BYTES, TO_HOST)
        return bool((self._room == value).all())


def _outputs(described: Mapping[str, Any], arena: Arena) -> list[tuple[int, int]]:
    """(offset, bytes) of each tensor that is no input and has room for a spot."""
    places = (
        arena.offsets[tensor["name"]]
        for tensor in described["tensors"]
        if tensor["role"] != "input"
    )
    return [place for place in places if place[1] >= SPOT_BYTES]


def _poison(before: np.ndarray, offset: int) -> int | None:
    """The poison that fills a spot before any launch; None: it holds something else."""
    spot = before[offset : offset + SPOT_BYTES]
    value = int(spot[0])
    return value if value in (POISON, WHOLE_POISON) and bool((spot == value).all()) else None
