"""The buffers of a tensor whose parts lie far apart (oracle/far.py).

Each part is a buffer, and between two of them lies a reserved one. Buffers follow each other in the
emulator's memory as native/global_memory.cpp lays them out, so the reserved ones' sizes follow from
the parts' distance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from greenfast.search.oracle.far import Spread
from greenfast.search.oracle.problem import Problem, Tensor, poison_of
from greenfast.search.targets.emulator.runs import Buffer

GUARD_BYTES = 2**20  # GlobalMemory::guard_bytes
PAGE_BYTES = 4096
ALIGNMENT = 256


def tensor_buffers(
    tensor: Tensor, check: bool = False, alignment: int = ALIGNMENT
) -> Iterator[Buffer]:
    """The tensor's buffer, or one for each part; in a checked run, one that knows its gaps."""
    fill = "poison" if tensor.starts_poisoned else "image"
    poison = poison_of(tensor.dtype)
    if tensor.spread is None:
        owned = tensor.owned_bytes if check else None
        yield Buffer(
            tensor.name,
            tensor.role,
            tensor.image,
            fill,
            poison,
            owned,
            alignment=min(alignment, ALIGNMENT),
        )
        return
    parts = tensor.image.reshape(tensor.spread.parts, -1)
    gap = np.broadcast_to(np.uint8(0), _gap_bytes(tensor.spread, parts.shape[1]))
    for number, part in enumerate(parts):
        if number:
            yield Buffer(f"{tensor.name}.gap{number}", "workspace", gap, "reserved")
        yield Buffer(part_name(tensor, number), tensor.role, part, fill, poison)


def part_name(tensor: Tensor, number: int) -> str:
    return tensor.name if number == 0 else f"{tensor.name}.{number}"


def whole_outputs(problem: Problem, outputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """Outputs with their parts joined to whole images."""
    if all(tensor.spread is None for tensor in problem.tensors):
        return outputs
    return {
        tensor.name: np.concatenate(
            [
                outputs[part_name(tensor, number)]
                for number in range(tensor.spread.parts if tensor.spread else 1)
            ]
        )
        for tensor in problem.tensors
        if tensor.role != "input" and tensor.name in outputs
    }


def _gap_bytes(spread: Spread, part_bytes: int) -> int:
    """The gap in the buffer: the distance without the part's pages, two guards, a canary page."""
    used = _pages(part_bytes) + 2 * GUARD_BYTES
    return spread.distance_bytes - used - PAGE_BYTES


def _pages(size_bytes: int) -> int:
    aligned = -(-size_bytes // ALIGNMENT) * ALIGNMENT
    return PAGE_BYTES - (-aligned // PAGE_BYTES) * PAGE_BYTES
