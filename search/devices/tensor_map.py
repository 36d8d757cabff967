"""Tensor maps: the numbers by which a TMA copies boxes of a tensor, and their limits.

A kernel takes a map as a `const __grid_constant__ gf::TensorMap` of 128 bytes, which each runner
encodes from these numbers for the addresses that it gives the buffers. Sources: CUDA Driver API,
"cuTensorMapEncodeTiled"; PTX ISA, "Tensors".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from greenfast.search.kernels.tensor_map_spec import MOST_AXES

# Bytes of an element, by the names of types in kernel.toml and launch.toml.
ELEMENT_BYTES = {
    "fp16": 2,
    "bf16": 2,
    "float32": 4,
    "float64": 8,
    "e4m3": 1,
    "e5m2": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
}
# Types that can be filled with NaN. A map of e4m3 is one of plain bytes.
FLOATS = ("fp16", "bf16", "float32", "float64")
SWIZZLES_BYTES = (0, 32, 64, 128)
L2_PROMOTIONS_BYTES = (0, 64, 128, 256)
LARGEST_BOX = 256  # elements of an axis
UNIT_BYTES = 16  # of addresses, strides and a box's rows
STRIDES_BELOW_BYTES = 2**40
FIRST_SM = 90
MAP_BYTES, MAP_ALIGNMENT = 128, 64  # of a CUtensorMap


@dataclass(frozen=True)
class TensorMap:
    """A map of `buffer`. Axes are innermost first, and the first one has a stride of one element.

    An empty axis is described as one element, since no map can have an empty one. A kernel must
    not copy from it.
    """

    name: str
    buffer: str
    dtype: str  # a key of ELEMENT_BYTES
    sizes: tuple[int, ...]  # elements
    strides_bytes: tuple[int, ...]  # of the axes after the first
    box: tuple[int, ...]  # elements that one copy moves along each axis
    swizzle_bytes: int = 0
    fill: str = "zero"  # of elements outside the tensor
    l2_promotion_bytes: int = 0
    # The kernel's parameter is no __grid_constant__: its address is that of a copy, which TMA
    # cannot read.
    in_local_memory: bool = False

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.dtype]

    def numbers(self) -> dict[str, Any]:
        """The map without its name, as JSON."""
        return {
            "buffer": self.buffer,
            "dtype": self.dtype,
            "sizes": list(self.sizes),
            "strides_bytes": list(self.strides_bytes),
            "box": list(self.box),
            "swizzle_bytes": self.swizzle_bytes,
            "fill": self.fill,
            "l2_promotion_bytes": self.l2_promotion_bytes,
        }


@dataclass(frozen=True)
class Misfit:
    """The reason why no GPU has such a map, and the numbers that would work."""

    sentence: str
    mend: str

    def __str__(self) -> str:
        return f"{self.sentence}; {self.mend}"


def misfit(tensor_map: TensorMap) -> Misfit | None:
    """The first limit that a map passes; None when it can be encoded."""
    return _shape_misfit(tensor_map) or box_misfit(
        tensor_map.box, tensor_map.dtype, tensor_map.swizzle_bytes, tensor_map.l2_promotion_bytes
    )


def _shape_misfit(tensor_map: TensorMap) -> Misfit | None:
    rank = tensor_map.rank
    if not 1 <= rank <= MOST_AXES:
        return Misfit(f"it has {rank} axes", f"a tensor map has 1 to {MOST_AXES}")
    if len(tensor_map.strides_bytes) != rank - 1 or len(tensor_map.box) != rank:
        return Misfit(
            f"{rank} sizes, {len(tensor_map.strides_bytes)} strides and a box of "
            f"{len(tensor_map.box)} sizes",
            f"{rank} axes have {rank - 1} strides, since the first has none, and a box of "
            f"{rank} sizes",
        )
    if tensor_map.fill == "nan" and tensor_map.dtype not in FLOATS:
        return Misfit(
            f"{tensor_map.dtype} cannot be filled with NaN",
            f'fill = "zero", or a type of {", ".join(FLOATS)}',
        )
    for axis, size in enumerate(tensor_map.sizes):
        if not 1 <= size < 2**32:
            return Misfit(f"axis {axis} has {size:,} elements", "1 to 4,294,967,295 are possible")
    for axis, stride in enumerate(tensor_map.strides_bytes, 1):
        if stride % UNIT_BYTES or not 0 <= stride < STRIDES_BELOW_BYTES:
            return Misfit(
                f"the stride of axis {axis} is {stride:,} bytes",
                f"strides are multiples of {UNIT_BYTES} bytes below 2**40, which is a multiple of "
                f"{_elements(tensor_map.dtype)} elements of {tensor_map.dtype}",
            )
    return None


def box_misfit(
    box: tuple[int, ...], dtype: str, swizzle_bytes: int, l2_promotion_bytes: int
) -> Misfit | None:
    """The same for the numbers that a candidate's parameters decide."""
    if swizzle_bytes not in SWIZZLES_BYTES:
        return Misfit(f"a swizzle of {swizzle_bytes} bytes", _one_of(SWIZZLES_BYTES))
    if l2_promotion_bytes not in L2_PROMOTIONS_BYTES:
        return Misfit(
            f"an L2 promotion of {l2_promotion_bytes} bytes", _one_of(L2_PROMOTIONS_BYTES)
        )
    for axis, size in enumerate(box):
        if not 1 <= size <= LARGEST_BOX:
            return Misfit(
                f"the box has {size:,} elements along axis {axis}",
                f"1 to {LARGEST_BOX} are possible; copy a larger tile as several boxes",
            )
    row_bytes = box[0] * ELEMENT_BYTES[dtype]
    if row_bytes % UNIT_BYTES:
        return Misfit(
            f"a row of the box takes {row_bytes} bytes",
            f"its length is a multiple of {UNIT_BYTES} bytes, which is a multiple of "
            f"{_elements(dtype)} elements of {dtype}",
        )
    if swizzle_bytes and row_bytes > swizzle_bytes:
        return Misfit(
            f"a row of the box takes {row_bytes} bytes, and the swizzle spans {swizzle_bytes}",
            f"at most {swizzle_bytes // ELEMENT_BYTES[dtype]} elements of {dtype} fit; copy a "
            "wider tile as several boxes",
        )
    return None


def _elements(dtype: str) -> int:
    return max(1, UNIT_BYTES // ELEMENT_BYTES[dtype])


def _one_of(choices: tuple[int, ...]) -> str:
    return "it may be " + ", ".join(map(str, choices))
