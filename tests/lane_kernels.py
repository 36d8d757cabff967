"""Kernels that show where a lane's wmma elements lie (entry `k`, 32 threads).

The emulator and a GPU run the same texts.
"""

from __future__ import annotations

import numpy as np

ROW_ELEMENTS = 24  # of the operands' tile: 16, and a gap that no load may use

# The hardware stores a fragment whose lane l holds 8 l + e in element e; the header's map is
# written beside it.
ACCUMULATOR = """
#include <mma.h>
#include "gf/wmma_lanes.cuh"
namespace wmma = nvcuda::wmma;
extern "C" __global__ void k(float* stored, int* described, int* half)
{
    const int lane = threadIdx.x;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> tile;
    for (int e = 0; e < tile.num_elements; ++e) {
        tile.x[e] = lane * tile.num_elements + e;
        described[lane * tile.num_elements + e] =
            gf::accumulator_row(lane, e) * 16 + gf::accumulator_column(lane, e);
        half[lane * tile.num_elements + e] = gf::accumulator_half(e);
    }
    wmma::store_matrix_sync(stored, tile, 16, wmma::mem_row_major);
}
"""

# What an operand holds in each lane, as CUDA's load and as gf::load_fragment leave them.
OPERAND = """
#include <mma.h>
#include "gf/dtype.cuh"
#include "gf/wmma_fragment.cuh"
namespace wmma = nvcuda::wmma;
using Element = %(element)s;
extern "C" __global__ void k(const Element* matrix, float* theirs, float* ours)
{
    constexpr int row_elements = %(row_elements)d;
    __shared__ __align__(128) Element tile[16 * row_elements];
    for (int i = threadIdx.x; i < 16 * row_elements; i += 32)
        tile[i] = matrix[i];
    __syncthreads();
    wmma::fragment<wmma::%(use)s, 16, 16, 16, Element, wmma::%(order)s> one, other;
    wmma::load_matrix_sync(one, tile, row_elements);
    gf::load_fragment(other, [&](int row, int column) {
        return tile + row * row_elements + column;
    });
    for (int e = 0; e < 16; ++e) {               // bf16 operands have 8, fp16 ones hold them twice
        theirs[threadIdx.x * 16 + e] = gf::to_float<Element>(one.x[e %% one.num_elements]);
        ours[threadIdx.x * 16 + e] = gf::to_float<Element>(other.x[e %% other.num_elements]);
    }
}
"""
OPERANDS = tuple(
    (use, order, dtype)
    for use, order in (
        ("matrix_a", "row_major"),
        ("matrix_b", "col_major"),
        ("matrix_b", "row_major"),
    )
    for dtype in ("fp16", "bf16")
)


def operand_text(use: str, order: str, dtype: str) -> str:
    element = {"fp16": "__half", "bf16": "__nv_bfloat16"}[dtype]
    return OPERAND % {"use": use, "order": order, "element": element, "row_elements": ROW_ELEMENTS}


def operand_tile(dtype: str) -> np.ndarray:
    """256 different numbers in rows of ROW_ELEMENTS, as raw bits; the gap holds NaN."""
    import ml_dtypes

    tile = np.full((16, ROW_ELEMENTS), np.nan, np.float32)
    tile[:, :16] = np.arange(256).reshape(16, 16)
    return tile.astype({"fp16": np.float16, "bf16": ml_dtypes.bfloat16}[dtype]).view(np.uint16)


def described_by_script() -> np.ndarray:
    """[16, 16]: the number 8 l + e of the element that scripts/make_lane_map.py puts there."""
    from importlib.util import module_from_spec, spec_from_file_location
    from pathlib import Path

    path = Path(__file__).resolve().parent.parent / "scripts" / "make_lane_map.py"
    spec = spec_from_file_location("make_lane_map", path)
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.HEADER.read_text("utf-8") == script.header(), "run scripts/make_lane_map.py"
    tile = np.full((16, 16), -1)
    for lane, elements in enumerate(script.lane_map()):
        for element, at in enumerate(elements):
            tile[at] = lane * len(elements) + element
    assert (np.sort(tile.ravel()) == np.arange(256)).all(), "each place once"
    return tile
