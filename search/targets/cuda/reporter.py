"""The process beside the one that owns a GPU: it looks at memory after runs, and sends replies.

`python -m greenfast.search.targets.cuda.reporter READ_FD WRITE_FD MEMORY_FD FREE_FD`

Looking at tens of megabytes takes milliseconds, in which the GPU would wait. So its process copies
them into one of a few slots of shared memory and goes on. What it would have replied comes here,
with the slot's number, and the complete reply goes to the parent. All replies come through here, so
they keep their order. The number of a slot that is free again goes back through FREE_FD.
"""

from __future__ import annotations

import mmap
import os
import sys
import time
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from greenfast.search.children import Parent
from greenfast.search.targets.cuda.arena import (
    Arena,
    damage,
    head_bytes,
    lay_out,
    outputs,
    problems_of,
)
from greenfast.search.targets.cuda.spans import BESIDE

SLOTS = 3  # as many as requests are sent ahead
SLOT_BYTES = 64 * 2**20  # runs that need more memory are looked at by the GPU's process
KEPT_BYTES = 2**30  # of tensors before a run
RUN = "run_beside"  # the field of a reply that this process completes


class Looker:
    """Completes replies to `execute`."""

    def __init__(self, memory: np.ndarray) -> None:
        """`memory` is [slots, bytes]."""
        self._memory = memory
        self._heads: OrderedDict[str, np.ndarray] = OrderedDict()
        self._bytes = 0

    def completed(self, reply: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
        """The reply with the damage of each problem, whose outputs are then in their file.

        `run` names the slot that holds the arenas back to back, the problems and the file.
        """
        begin = time.perf_counter()
        memory, position, damages = self._memory[run["slot"]], 0, []
        with Path(run["outputs"]).open("wb") as file:
            for problem in problems_of(run):
                arena = lay_out(problem)
                after = memory[position : position + arena.total_bytes]
                damages.append(damage(problem, arena, self._head(problem, arena), after))
                for image in outputs(problem, arena, after):
                    file.write(image.data)
                position += arena.total_bytes
        spans = {**reply["spans"], BESIDE: time.perf_counter() - begin}
        return {**reply, "damage": damages, "spans": spans}

    def _head(self, problem: Mapping[str, Any], arena: Arena) -> np.ndarray:
        """The bytes before a run, which no candidate can change: they come from the parent."""
        key = Path(problem["images"]).name  # its content, in whichever folder
        if key in self._heads:
            self._heads.move_to_end(key)
            return self._heads[key]
        head = self._heads[key] = head_bytes(problem, arena)
        self._bytes += head.nbytes
        while self._bytes > KEPT_BYTES and len(self._heads) > 1:
            self._bytes -= self._heads.popitem(last=False)[1].nbytes
        return head


def main(read_fd: int, write_fd: int, memory_fd: int, free_fd: int) -> None:
    shared = mmap.mmap(memory_fd, SLOTS * SLOT_BYTES, prot=mmap.PROT_READ)
    looker = Looker(np.frombuffer(shared, np.uint8).reshape(SLOTS, SLOT_BYTES))
    pipe = Parent(read_fd, write_fd)
    while (reply := pipe.request()) is not None:
        run = reply.pop(RUN, None)
        if run is None:
            pipe.reply(reply)
            continue
        pipe.reply(looker.completed(reply, run))
        os.write(free_fd, bytes([run["slot"]]))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
