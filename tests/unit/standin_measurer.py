"""A measuring child for machines without a GPU, started like the real one.

Requests, layout and replies are the same. Host memory plays device memory, and a "cubin" is text
that describes the kernel.
"""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path

import numpy as np

from greenfast.search.children import serve_requests
from greenfast.search.targets.cuda.arena import (
    PROBLEMS,
    damage,
    lay_out,
    outputs,
    problems_of,
    starting_bytes,
)
from greenfast.search.targets.cuda.large_reference import computed
from greenfast.search.targets.cuda.reporter import RUN
from greenfast.search.targets.cuda.slots import Slots


class Breaks(Exception):
    pass


class Hangs(Exception):
    pass


def run(cubin: str, described: dict, arena, memory: np.ndarray) -> None:
    """Copy x to y, and what else the words say."""
    words = Path(cubin).read_text().split()
    (x, size), (y, _) = arena.offsets["x"], arena.offsets["y"]
    if "dies" in words:
        os._exit(3)
    if f"breaks_at_{memory[x]}" in words:
        raise Breaks
    memory[y : y + size] = memory[x : x + size]
    seen = Path(f"{cubin}.seen")
    if "hangs" in words or ("hangs_once" in words and not seen.exists()):
        seen.touch()
        raise Hangs
    if "past_the_end" in words:
        memory[y + size] ^= 1
    if "writes_x" in words:
        memory[x] ^= 1


def reference(request: dict) -> dict:
    """With NumPy under another name for CuPy."""
    other = types.SimpleNamespace(**vars(np), asnumpy=np.asarray)
    try:
        outputs_by_name = computed(request, other)
    except Exception as error:
        return {"unavailable": str(error)}
    parts = [
        (name, field, array)
        for name, fields in outputs_by_name.items()
        for field, array in fields.items()
    ]
    Path(request["outputs"]).write_bytes(
        b"".join(array.tobytes() for _, _, array in parts if array is not None)
    )
    return {
        "fields": [
            (name, field, None if array is None else array.shape) for name, field, array in parts
        ]
    }


def handed_over(request: dict, memories: list[np.ndarray]) -> dict:
    """As the real child does: its reporter looks at the memory."""
    slot, memory = slots.take(), np.concatenate(memories)
    slots.memory[slot, : memory.size] = memory
    given = {name: request[name] for name in PROBLEMS if name in request}
    return {"slot": slot, "outputs": request["outputs"], **given}


def answer(request: dict) -> dict:
    if request["do"] == "hello":
        return {"cupy": "none", "runtime": 0, "nvml": "", "pid": os.getpid()}
    if request["do"] == "reference":
        return reference(request)
    problems = problems_of(request) if request["do"] == "execute" else [request["problem"]]
    memories = []
    for at, problem in enumerate(problems):
        arena = lay_out(problem)
        memories.append((problem, arena, starting_bytes(problem, arena)))
        try:
            run(request["cubin"], problem, arena, memories[-1][2])
        except Breaks:
            return {"error": "an illegal address", "code": 700, "at": at}
        except Hangs:
            return {"error": "no end within 3 s", "code": 702, "at": at}
    if request["do"] == "execute":
        return {"spans": {}, RUN: handed_over(request, [after for _, _, after in memories])}
    ((problem, arena, after),) = memories
    with Path(request["outputs"]).open("wb") as file:
        for image in outputs(problem, arena, after):
            file.write(image.data)
    options = {name: request[name] for name in ("mode", "looks", "screen") if name in request}
    return {
        "damage": [damage(problem, arena, starting_bytes(problem, arena), after)],
        "samples": [2.0] * 16,
        "others": [1.0] * 16 if "other_problem" in request else [],
        "sets": 1,
        "nodes": 100,
        "health": {},
        "said": options,
    }


if __name__ == "__main__":
    slots = Slots(int(sys.argv[2]))
    serve_requests(answer, int(sys.argv[1]), slots.reply_fd)
