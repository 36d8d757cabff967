"""What this GPU gives at best, measured: `python bench/gpu/ceilings.py OUT.json` (CuPy; PyTorch for the bf16 product).

A measured ceiling is a fact about a run; what calls a time implausible is the architecture's peak, never this.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from pathlib import Path

import cupy

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from greenfast.search.targets.cuda.launches import Stopwatch
from greenfast.search.timing import median

SAMPLES = 20
PRODUCT, COPY_BYTES = 8192, 2**30
SHAPES = {
    "mission": (2, 8, 256, 64),
    "long": (2, 8, 2048, 64),
    "d128": (2, 8, 1024, 128),
}  # B, H, S, D; fp16
TILES = (32, 64, 128)
KERNELS = r"""
extern "C" __global__ void empty() {}

// Each block loads a tile of q and all of its head's k and v in 16-byte pieces, and writes a tile of o: attention without
// its arithmetic.
extern "C" __global__ void load_only(const uint4* q, const uint4* k, const uint4* v, uint4* o, int rows, int pieces, int tile)
{
    const long long head = (long long)(blockIdx.z * gridDim.y + blockIdx.y) * rows * pieces;
    const int mine = blockIdx.x * tile * pieces;
    uint4 sum = make_uint4(0, 0, 0, 0);
    auto take = [&](uint4 one) { sum.x ^= one.x; sum.y ^= one.y; sum.z ^= one.z; sum.w ^= one.w; };
    for (int i = threadIdx.x; i < tile * pieces; i += blockDim.x)
        take(q[head + mine + i]);
    #pragma unroll 8
    for (int i = threadIdx.x; i < rows * pieces; i += blockDim.x) {
        take(k[head + i]);
        take(v[head + i]);
    }
    for (int i = threadIdx.x; i < tile * pieces; i += blockDim.x)
        o[head + mine + i] = sum;
}
"""


class Call:
    """Something to launch, as a stopwatch takes it."""

    def __init__(self, launch) -> None:
        self._launch = launch

    def launch(self, stream) -> None:
        self._launch(stream)


def timed(launch, stream) -> tuple[float, list[float]]:
    """Median and samples in microseconds, by graphs of N and 2N launches or one by one."""
    watch = Stopwatch([Call(launch)], stream, 20.0)
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        watch()
    samples = [watch() for _ in range(SAMPLES)]
    return median(samples), samples


def row(name: str, us: float, samples: list[float], figure: str, note: str, **more) -> dict:
    return {
        "what": "ceiling",
        "name": name,
        "us": round(us, 4),
        "figure": figure,
        "note": note,
        **more,
        "samples": [round(sample, 4) for sample in samples],
    }


def load_only(module, stream) -> list[dict]:
    """The fastest tile of each shape, with two blocks' worth of threads an SM at least."""
    found = []
    for name, (batch, heads, rows, dim) in SHAPES.items():
        q, k, v, o = (
            cupy.random.randint(0, 2**31, batch * heads * rows * dim // 2, cupy.int32)
            for _ in range(4)
        )
        pieces, best = dim * 2 // 16, None
        for tile in TILES:
            for threads in (128, 256):
                function = module.get_function("load_only")
                arguments = (q, k, v, o, cupy.int32(rows), cupy.int32(pieces), cupy.int32(tile))
                grid = (rows // tile, heads, batch)
                us, samples = timed(lambda stream: function(grid, (threads,), arguments), stream)
                best = min(best or (us, samples, tile, threads), (us, samples, tile, threads))
        us, samples, tile, threads = best
        moved = (
            batch * heads * (rows // tile) * 2 * rows * dim * 2 + 2 * batch * heads * rows * dim * 2
        )
        found.append(
            row(
                f"load-only attention, `{name}`",
                us,
                samples,
                f"{moved / us / 1e6:.2f} TB/s out of L2 and L1",
                f"tiles of {tile} queries, {threads} threads a block, hot",
                moved_bytes=moved,
            )
        )
    return found


def product() -> list[dict]:
    try:
        import torch
    except ImportError:
        return []
    a, b = (torch.randn(PRODUCT, PRODUCT, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    samples = []
    for number in range(SAMPLES + 3):
        begin.record()
        a @ b
        end.record()
        end.synchronize()
        if number >= 3:
            samples.append(1000 * begin.elapsed_time(end))
    us = median(samples)
    return [
        row(
            f"bf16 product of {PRODUCT}x{PRODUCT} matrices",
            us,
            samples,
            f"{2 * PRODUCT**3 / us / 1e6:.0f} TFLOP/s",
            f"torch {torch.__version__}, random values, one by one",
        )
    ]


def main(out: Path) -> None:
    stream, module = (
        cupy.cuda.Stream(non_blocking=True),
        cupy.RawModule(code=KERNELS, options=("--std=c++17",)),
    )
    rows = []
    with stream:
        empty = module.get_function("empty")
        us, samples = timed(lambda stream: empty((1,), (32,), ()), stream)
        rows.append(row("empty kernel, one node of a graph", us, samples, "", "graphs"))
        source, target = (cupy.zeros(COPY_BYTES, cupy.uint8) for _ in range(2))
        us, samples = timed(
            lambda stream: cupy.cuda.runtime.memcpyAsync(
                target.data.ptr, source.data.ptr, COPY_BYTES, 3, stream.ptr
            ),
            stream,
        )
        rows.append(
            row(
                "copy of 1 GiB on the device",
                us,
                samples,
                f"{2 * COPY_BYTES / us / 1e6:.2f} TB/s read and written",
                "one by one",
            )
        )
        rows += load_only(module, stream)
    rows += product()
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    environment = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "gpu": properties["name"].decode(),
        "cupy": cupy.__version__,
        "cuda_runtime": cupy.cuda.runtime.runtimeGetVersion(),
        "python": platform.python_version(),
    }
    out.write_text(json.dumps({"environment": environment, "rows": rows}, indent=1) + "\n")
    for one in rows:
        print(f"{one['name']:45} {one['us']:10.2f} us  {one['figure']}  ({one['note']})")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
