"""A kernel of a few lines with a template that takes tensor maps, written into a folder."""

from __future__ import annotations

from pathlib import Path

from greenfast.search.kernels.catalogue import Catalogue

KERNEL = """
name = "rows"
title = "y = x, by rows"
baseline = "plain:default"

[alignment]
pointer_bytes = 16
stride_elements = 8

[options]
dtype = { values = ["fp16", "bf16"], default = "fp16" }

[dims]
B = { time = "run", doc = "batches" }
R = { time = "run", doc = "rows" }
C = { time = "compile", values = [64, 128], doc = "columns" }

[[arguments]]
name = "x"
kind = "input"
dtype = "dtype"
shape = ["B", "R", "C"]

[[arguments]]
name = "y"
kind = "output"
dtype = "dtype"
shape = ["B", "R", "C"]
contiguous = true

[[arguments]]
name = "R"
kind = "scalar"
dtype = "int32"
value = "R"

[[arguments]]
name = "x_batch_stride"
kind = "scalar"
dtype = "int64"
value = "stride(x, 0)"

[[arguments]]
name = "x_row_stride"
kind = "scalar"
dtype = "int64"
value = "stride(x, 1)"

[work]
flop = "B * R * C"
bytes = "4 * B * R * C"

[workloads.small]
title = "two batches"
dims = { B = 2, R = 100, C = 128 }

[[checks]]
name = "padded_rows"
dims = { B = 2, R = 5 }
inputs = "normal"
layout = "padded"
seeds = 1
"""
PLAIN = """
name = "plain"
kernel = "rows"
idea = "One element a thread."

[parameters.unroll]
type = "int"
values = [1, 2]
default = 1

[[launches]]
entry = "rows_plain"
grid = ["R", "B", "1"]
block = ["C", "1", "1"]

[presets.default]
parameters = {}
"""
MAPPED = """
name = "mapped"
kernel = "rows"
idea = "A box a block."
minimum_sm = 90

[parameters.tile]
type = "int"
values = [32, 64, 128]
default = 64

[parameters.width]
type = "int"
values = [32, 64, 128]
default = 64

[[launches]]
entry = "rows_mapped"
grid = ["ceil_div(R, tile)", "B", "1"]
block = ["128", "1", "1"]
smem_dynamic_bytes = "tile * 256"

[[workspaces]]
name = "partial"
bytes = "B * R * 16"

[presets.default]
parameters = {}
"""
MAPS = """
[[tensor_maps]]
name = "x_map"
tensor = "x"
box = ["width", "tile", "1"]
swizzle_bytes = 128
fill = "nan"
l2_promotion_bytes = 256

[[tensor_maps]]
name = "y_map"
tensor = "y"
sizes = ["C", "R * B"]
strides = ["C"]
box = ["8", "tile"]

[[tensor_maps]]
name = "partial_map"
tensor = "partial"
dtype = "float32"
sizes = ["4", "R"]
strides = ["4"]
box = ["4", "16"]
when = "tile > 32"
"""
TEXT = """struct alignas(64) Map { unsigned long long words[16]; };
extern "C" __global__ void
rows_mapped(const unsigned short* x, unsigned short* y, int R, long long x_batch_stride,
            long long x_row_stride, float* partial, const __grid_constant__ Map x_map,
            const __grid_constant__ Map y_map
            {{ ", const __grid_constant__ Map partial_map" if tile > 32 }})
{
    for (int row = 0; row < R; ++row)
        y[(blockIdx.y * R + row) * {{ C }} + threadIdx.x] =
            x[blockIdx.y * x_batch_stride + row * x_row_stride + threadIdx.x];
}
"""
BOXES = """
name = "boxes"
kernel = "rows"
idea = "The copy engine brings a tile as boxes; threads read it through its swizzle."
minimum_sm = 90
arch_specific = true

[parameters.tile]
type = "int"
values = [32, 64, 128]
default = 64

[parameters.swizzle]
type = "int"
values = [0, 32, 64, 128]
default = 128

[locals]
width = "swizzle // 2 if swizzle > 0 else 64"

[[launches]]
entry = "rows_boxes"
grid = ["ceil_div(R, tile)", "B", "1"]
block = ["128", "1", "1"]
smem_dynamic_bytes = "tile * C * 2 + 1024 + 16"

[presets.default]
parameters = {}

[[tensor_maps]]
name = "x_map"
tensor = "x"
box = ["width", "tile", "1"]
swizzle_bytes = "swizzle"
l2_promotion_bytes = 128
"""
BOXES_TEXT = """#include "gf/shared.cuh"
#include "gf/tensor_copy.cuh"

constexpr int tile = {{ tile }}, width = {{ width }}, row_bytes = 2 * width;
constexpr int swizzle = {{ swizzle }}, span = {{ 1 if swizzle == 0 else 8 // (128 // swizzle) }};

extern "C" __global__ void __launch_bounds__(128)
rows_boxes(const unsigned short* x, unsigned short* y, int R, long long x_batch_stride,
           long long x_row_stride, const __grid_constant__ gf::TensorMap x_map)
{
    GF_DYNAMIC_SHARED(unsigned char, raw);
    const unsigned long long start = reinterpret_cast<unsigned long long>(raw);
    unsigned char* box = raw + (1024 - start % 1024) % 1024;
    unsigned long long* barrier =
        reinterpret_cast<unsigned long long*>(box + tile * {{ C }} * 2);
    const int first = blockIdx.x * tile;
    if (threadIdx.x == 0) {
        gf::mbarrier_init(barrier, 1);
        gf::mbarrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        gf::mbarrier_expect_bytes(barrier, tile * {{ C }} * 2);
        for (int i = 0; i < {{ C }} / width; ++i)
            gf::tensor_load(box + i * tile * row_bytes, &x_map, barrier, i * width, first,
                            blockIdx.y);
    }
    gf::mbarrier_wait(barrier, 0);
    for (int at = threadIdx.x; at < tile * {{ C }}; at += blockDim.x) {
        const int row = at / {{ C }}, column = at % {{ C }}, inside = column % width;
        const int turn = row * row_bytes / 128 % span;  // which 16-byte pieces trade places
        const int piece = inside / 8 ^ turn;
        const unsigned char* from =
            box + (column / width * tile + row) * row_bytes + piece * 16;
        if (first + row < R)
            y[(static_cast<long long>(blockIdx.y) * R + first + row) * {{ C }} + column] =
                reinterpret_cast<const unsigned short*>(from)[inside % 8];
    }
}
"""
REFERENCE = """
import numpy as np

def make_inputs(dims, options, recipe, seed, tiles):
    shape = (dims["B"], dims["R"], dims["C"])
    return {"x": np.random.default_rng(seed).normal(size=shape).astype(np.float16)}

def reference(dims, options, inputs):
    value = inputs["x"].astype(np.float64)
    return {"y": {"value": value, "bound": 0 * value, "rounded": value}}
"""


def write_rows(folder: Path, change=lambda file, text: text, *, boxes: bool = False) -> Catalogue:
    """The catalogue of the kernel; `change(file, text)` may replace its texts.

    `boxes`: with a template that copies by its maps.
    """
    texts = {
        "kernel.toml": KERNEL,
        "plain.toml": PLAIN,
        "plain.cu.j2": "",
        "mapped.toml": MAPPED + MAPS,
        "mapped.cu.j2": TEXT,
        "reference.py": REFERENCE,
    }
    if boxes:
        texts |= {"boxes.toml": BOXES, "boxes.cu.j2": BOXES_TEXT}
    (folder / "rows").mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        (folder / "rows" / file).write_text(change(file, text))
    return Catalogue([folder])
