"""A problem as one span of device memory: canaries, tensor images and workspaces side by side.

The parent describes a problem as JSON and one file of images. The measuring child lays it out,
and compares the span before and after a run. NumPy only.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from greenfast.search.devices.tensor_map import TensorMap
from greenfast.search.errors import UsageError
from greenfast.search.oracle.problem import POISON, GivenArgument, Packed, Problem, Scalar

ALIGN = 256
CANARY_BYTES = 64 * 1024
CANARY = 0xA5
PROBLEMS = ("problems", "problems_file")  # the fields of a request, of which it has one
_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_CANARIES = np.full(CANARY_BYTES + ALIGN, CANARY, np.uint8)
_CANARIES_AT: int = _CANARIES.ctypes.data


def describe(problem: Problem, images: Path) -> dict[str, Any]:
    """The problem as JSON; writes the tensor images to the file `images`, back to back."""
    with images.open("wb") as file:
        for tensor in problem.tensors:
            file.write(tensor.image.data)
    return description(problem, images)


def description(problem: Problem, images: Path) -> dict[str, Any]:
    """The problem as JSON; its images are in the existing file `images`."""
    return {
        "images": str(images),
        "tensors": [
            {"name": tensor.name, "role": tensor.role, "bytes": int(tensor.image.size)}
            for tensor in problem.tensors
        ],
        "workspaces": [
            {"name": workspace.name, "bytes": workspace.bytes, "zero": workspace.zero_fill}
            for workspace in problem.workspaces
        ],
        "launches": [
            {
                "entry": launch.entry,
                "grid": list(launch.grid),
                "block": list(launch.block),
                "smem": launch.smem_dynamic_bytes,
                "arguments": [
                    _argument(value)
                    for value in (
                        problem.arguments if launch.arguments is None else launch.arguments
                    )
                ],
            }
            for launch in problem.launches
        ],
    }


def problems_of(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The described problems of a request, or of the file that it names."""
    if "problems" in request:
        described: list[dict[str, Any]] = request["problems"]
    else:
        described = json.loads(Path(request["problems_file"]).read_bytes())
    return described


def _argument(argument: GivenArgument) -> dict[str, Any]:
    match argument:
        case None:
            return {"scalar": "uint64", "value": 0}
        case Scalar():
            return {"scalar": argument.dtype, "value": argument.value}
        case TensorMap():
            return {"tensor_map": argument.numbers()}
        case Packed():
            raise UsageError(
                "only the emulator's checks take a struct as an argument",
                code="unsupported_argument",
            )
    return {"buffer": argument.name}


@dataclass(frozen=True)
class Arena:
    """The place of each buffer, in bytes from the start. Canaries fill the space between."""

    total_bytes: int
    offsets: Mapping[str, tuple[int, int]]  # name -> (offset, bytes)
    zeroed: tuple[str, ...]  # workspaces that each run must find zeroed
    head_bytes: int  # canaries and tensors; workspaces come after them

    def zeroed_spans(self, base: int) -> list[tuple[int, int]]:
        """(address, bytes) of each zeroed workspace that is not empty, in an arena at `base`."""
        places = (self.offsets[name] for name in self.zeroed)
        return [(base + offset, size) for offset, size in places if size]


def lay_out(described: Mapping[str, Any]) -> Arena:
    offsets, position, head = {}, CANARY_BYTES, CANARY_BYTES
    for tensor in (*described["tensors"], *described["workspaces"]):
        offsets[tensor["name"]] = (position, tensor["bytes"])
        position += -(-tensor["bytes"] // ALIGN) * ALIGN + CANARY_BYTES
        head = position if len(offsets) <= len(described["tensors"]) else head
    return Arena(
        position,
        offsets,
        tuple(workspace["name"] for workspace in described["workspaces"] if workspace["zero"]),
        head,
    )


def starting_bytes(described: Mapping[str, Any], arena: Arena) -> np.ndarray:
    """The arena's bytes before a run."""
    memory = np.full(arena.total_bytes, CANARY, np.uint8)
    memory[: arena.head_bytes] = head_bytes(described, arena)
    for workspace in described["workspaces"]:
        start, size = arena.offsets[workspace["name"]]
        memory[start : start + size] = 0 if workspace["zero"] else POISON
    return memory


def head_bytes(described: Mapping[str, Any], arena: Arena) -> np.ndarray:
    """The bytes before the workspaces: the same for all candidates that run on these tensors."""
    memory = np.empty(arena.head_bytes, np.uint8)
    write_head(described, arena, memory)
    return memory


def write_head(described: Mapping[str, Any], arena: Arena, memory: np.ndarray) -> None:
    """Write those bytes to `memory`."""
    memory.fill(CANARY)
    with Path(described["images"]).open("rb", buffering=0) as file:
        for tensor in described["tensors"]:
            start, size = arena.offsets[tensor["name"]]
            left = memory[start : start + size].data
            while left and (count := file.readinto(left)):
                left = left[count:]
            if left:
                raise EOFError(f"{described['images']} ends in {tensor['name']}")


def damage(
    described: Mapping[str, Any], arena: Arena, before: np.ndarray, after: np.ndarray
) -> tuple[str, str] | None:
    """(reason, sentence) when a run wrote beside its buffers or to its inputs.

    Only the head of `before` is read.
    """
    assert after.size == arena.total_bytes, "the whole arena is looked at"
    # Addresses are numbers here: an array of each part would cost more than its comparison.
    here, there = after.ctypes.data, before.ctypes.data
    position = 0
    for start, size in (*arena.offsets.values(), (arena.total_bytes, 0)):
        if _memcmp(here + position, _CANARIES_AT, start - position):
            return _damage_beside(arena, after)
        position = start + size
    inputs = [tensor["name"] for tensor in described["tensors"] if tensor["role"] == "input"]
    written = [
        name
        for name, (start, size) in ((name, arena.offsets[name]) for name in inputs)
        if _memcmp(there + start, here + start, size)
    ]
    if written:
        return "input_changed", f"the input {', '.join(written)} was written"
    return None


def _damage_beside(arena: Arena, after: np.ndarray) -> tuple[str, str] | None:
    """The first bytes beside buffers that were written; each gap is at most a canary and ALIGN."""
    position, last = 0, ""
    for name, (start, size) in (*arena.offsets.items(), ("", (arena.total_bytes, 0))):
        changed = np.flatnonzero(after[position:start] != CANARY)
        if changed.size:
            past, ahead = int(changed[0]) + 1, start - position - int(changed[-1])
            where = (
                f"{last}, from {past} bytes past its end"
                if last and (past <= ahead or not name)
                else f"{name}, up to {ahead} bytes before its start"
            )
            return "out_of_bounds", f"{changed.size} bytes beside {where} were written"
        position, last = start + size, name
    return None


def outputs(described: Mapping[str, Any], arena: Arena, after: np.ndarray) -> list[np.ndarray]:
    """The images of the tensors that are not inputs, in order."""
    return [
        _part(arena, tensor["name"], after)
        for tensor in described["tensors"]
        if tensor["role"] != "input"
    ]


def _part(arena: Arena, name: str, memory: np.ndarray) -> np.ndarray:
    start, size = arena.offsets[name]
    return memory[start : start + size]
