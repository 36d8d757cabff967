"""Tensor copies in NumPy, from PTX's documentation: an answer beside the emulator's and a GPU's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from greenfast.search.devices.tensor_map import UNIT_BYTES, TensorMap


def box_bytes(tensor_map: TensorMap) -> int:
    """Bytes that one copy moves."""
    return int(np.prod(tensor_map.box)) * tensor_map.element_bytes


# What lies outside a map that fills with NaN, in each 2 bytes and for every type (an H200).
NAN_BYTES = (0xF7, 0x7F)


def box_places(tensor_map: TensorMap, start: int) -> np.ndarray:
    """Where each byte of a dense box lies that begins at `start` in shared memory.

    Rows that are shorter than the swizzle still lie at multiples of it (measured on an H200).
    """
    row_bytes = tensor_map.box[0] * tensor_map.element_bytes
    rows, within = np.divmod(np.arange(box_bytes(tensor_map)), row_bytes)
    places = start + rows * max(row_bytes, tensor_map.swizzle_bytes) + within
    return swizzled(places, tensor_map.swizzle_bytes)


def swizzled(places: np.ndarray, swizzle_bytes: int) -> np.ndarray:
    """The places where a swizzle puts the bytes of these (PTX ISA, "Swizzling modes").

    Bits 4 to 6 of an address are changed by bits 7 to 9, as many as the swizzle has.
    """
    if not swizzle_bytes:
        return places
    return places ^ ((places >> 7) & (swizzle_bytes // UNIT_BYTES - 1)) << 4


def loaded(tensor_map: TensorMap, memory: np.ndarray, at: Sequence[int]) -> np.ndarray:
    """The dense box at the coordinates `at`; what lies outside the tensor has the map's fill."""
    box = np.zeros(box_bytes(tensor_map), np.uint8)
    if tensor_map.fill == "nan":
        box[0::2], box[1::2] = NAN_BYTES
    for in_box, in_memory, count in _runs(tensor_map, at):
        box[in_box : in_box + count] = memory[in_memory : in_memory + count]
    return box


def store(tensor_map: TensorMap, memory: np.ndarray, at: Sequence[int], box: np.ndarray) -> None:
    """Write the part of the dense box that lies inside the tensor.

    The copy engine writes runs of 16 bytes (measured on an H200): where a tensor's row ends within
    one and the box goes on, the box's bytes fill the run.
    """
    beyond = max(0, at[0] + tensor_map.box[0] - tensor_map.sizes[0]) * tensor_map.element_bytes
    for in_box, in_memory, inside in _runs(tensor_map, at):
        count = inside + min(beyond, -(in_memory + inside) % UNIT_BYTES)
        memory[in_memory : in_memory + count] = box[in_box : in_box + count]


def reduce(
    tensor_map: TensorMap,
    memory: np.ndarray,
    at: Sequence[int],
    box: np.ndarray,
    update: Callable[[np.ndarray, np.ndarray], np.ndarray],
    dtype: np.dtype,
) -> None:
    """Replace each element inside the tensor by `update` of it and the box's."""
    for in_box, in_memory, count in _runs(tensor_map, at):
        old = memory[in_memory : in_memory + count].view(dtype)
        memory[in_memory : in_memory + count] = (
            update(old, box[in_box : in_box + count].view(dtype)).astype(dtype).view(np.uint8)
        )


def _runs(tensor_map: TensorMap, at: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Each row's part inside the tensor: its offsets in the box and in memory, and its bytes."""
    size = tensor_map.element_bytes
    first, end = max(at[0], 0), min(at[0] + tensor_map.box[0], tensor_map.sizes[0])
    if first >= end:
        return
    outer = [range(length) for length in reversed(tensor_map.box[1:])]
    for row, steps in enumerate(itertools.product(*outer)):
        indices = [start + step for start, step in zip(at[1:], reversed(steps), strict=True)]
        limits = tensor_map.sizes[1:]
        if all(0 <= index < limit for index, limit in zip(indices, limits, strict=True)):
            in_memory = sum(
                index * stride
                for index, stride in zip(indices, tensor_map.strides_bytes, strict=True)
            )
            in_box = (row * tensor_map.box[0] + first - at[0]) * size
            yield in_box, in_memory + first * size, (end - first) * size
