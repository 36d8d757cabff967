"""axpy with a template whose parameter `bug` plants a mistake; every other value is correct."""

from __future__ import annotations

import shutil
from pathlib import Path

ALBUM = Path(__file__).resolve().parents[1] / "kernels"

# The value of `bug`: the stage and the reasons with which it must be rejected.
BUGS = {
    "offset": ("correctness", {"wrong_values"}),
    "no_tail": ("correctness", {"unwritten", "out_of_bounds", "wrong_values"}),
    "unwritten_shared": ("safety", {"uninitialised"}),
    "does_not_compile": ("compile", {"compile_error"}),
}

TOML = """\
name = "planted"
kernel = "axpy"
idea = "One element a thread, with a mistake where `bug` names one."

[parameters.threads]
type = "int"
values = [64, 128]
default = 128
doc = "threads a block"

[parameters.bug]
type = "choice"
values = ["none", "offset", "no_tail", "unwritten_shared", "does_not_compile"]
default = "none"
doc = "the mistake"

[tiles]
tile_q = "threads"

[[launches]]
entry = "axpy_planted"
grid = ["ceil_div(N, threads)", "1", "1"]
block = ["threads", "1", "1"]
smem_dynamic_bytes = 0

[presets.plain]
doc = "128 threads, no mistake"
parameters = {}
"""

TEXT = """\
// One element a thread: y[i] = a * x[i] + b.
#include <cuda_fp16.h>
#include <cuda_bf16.h>

#include "gf/dtype.cuh"

using Element = {{ "__half" if dtype == "fp16" else "__nv_bfloat16" }};
constexpr int threads = {{ threads }};

extern "C" __global__ void __launch_bounds__(threads)
axpy_planted(const Element* __restrict__ x,      // [N]
             Element* __restrict__ y,            // [N]
             int N, float a, float b)
{
    int i = blockIdx.x * threads + threadIdx.x;
{% if bug == "offset" %}
    if (i < N) y[i] = gf::from_float<Element>(a * gf::to_float(x[i]) + b + 1.0f);
{% elif bug == "no_tail" %}
    y[i] = gf::from_float<Element>(a * gf::to_float(x[i < N ? i : 0]) + b);
{% elif bug == "unwritten_shared" %}
    __shared__ Element tile[threads];
    bool odd = gf::to_float(tile[threadIdx.x]) == 12345.0f;  // nobody wrote it
    if (i < N) y[i] = gf::from_float<Element>(a * gf::to_float(x[i]) + b + (odd ? 1.0f : 0.0f));
{% elif bug == "does_not_compile" %}
    if (i < N) y[i] = no_such_function(x[i]);
{% else %}
    if (i < N) y[i] = gf::from_float<Element>(a * gf::to_float(x[i]) + b);
{% endif %}
}
"""


def write_planted(folder: Path) -> Path:
    """A folder of templates that holds axpy with this template only."""
    kernel = folder / "axpy"
    kernel.mkdir(parents=True)
    text = (ALBUM / "axpy" / "kernel.toml").read_text()
    (kernel / "kernel.toml").write_text(text.replace('"right:plain"', '"planted:plain"'))
    shutil.copy(ALBUM / "axpy" / "reference.py", kernel)
    (kernel / "planted.toml").write_text(TOML)
    (kernel / "planted.cu.j2").write_text(TEXT)
    return folder
