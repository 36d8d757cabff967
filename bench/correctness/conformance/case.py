"""A small kernel that exercises one primitive, as the same text on the emulator and on a GPU."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from greenfast.search.devices.tensor_map import TensorMap

Index3 = tuple[int, int, int]


@dataclass(frozen=True)
class Case:
    """`source` is `extern "C" __global__ void k(inputs..., outputs..., maps...)`.

    Inputs and outputs are pointers, and each map is a `const __grid_constant__ gf::TensorMap`.
    """

    name: str
    source: str
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]  # of the right type and size; the content does not matter
    maps: tuple[TensorMap, ...] = ()  # of inputs and outputs, by their names
    grid: Index3 = (1, 1, 1)
    block: Index3 = (32, 1, 1)
    cluster: Index3 = (1, 1, 1)
    smem_dynamic_bytes: int = 0
    architecture: int = 80  # the first sm_ that has it
    arch_specific: bool = False  # compiled for `sm_90a`, which runs on sm_90 only
    # Bounds that hold instead of equality: |a - b| <= relative |b| + absolute, by output.
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)
    # Outputs as NumPy computes them from PTX's documentation, where that is possible.
    expected: dict[str, np.ndarray] = field(default_factory=dict)
    # The launch ends with an illegal instruction; on the emulator, with a fault that says why.
    fails: bool = False


# Every byte of an output before the launch; those that the kernel does not write must agree, too.
POISON = 0xFF


def blank(dtype, *shape: int) -> np.ndarray:
    return np.zeros(shape, dtype)


def poisoned(bytes_: int) -> np.ndarray:
    """An output as it is before the launch."""
    return np.full(bytes_, POISON, np.uint8)
