"""The best times that this GPU gives: copies, products, empty launches, bare loads.

    python -m bench.gpu.ceilings OUT.json

Needs CuPy, and PyTorch for the bf16 product. A measured ceiling is a fact about a run. A time is
called implausible by the architecture's peak, never by a measured ceiling.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.command_line import require_gpu, script_parser
from bench.environment import basic_environment
from bench.results import Row, write_json
from greenfast.search.timing import median

SAMPLES, DISCARDED = 20, 3
PRODUCT_SIZE, COPY_BYTES = 8192, 2**30
DEVICE_TO_DEVICE = 3  # cudaMemcpyKind
SHAPES = {  # B, H, S, D; fp16
    "mission": (2, 8, 256, 64),
    "long": (2, 8, 2048, 64),
    "d128": (2, 8, 1024, 128),
}
TILES, THREADS = (32, 64, 128), (128, 256)
KERNELS = r"""
extern "C" __global__ void empty() {}

// Each block loads a tile of q and all of its head's k and v in 16-byte pieces, and writes a tile
// of o: attention without its arithmetic.
extern "C" __global__ void load_only(const uint4* q, const uint4* k, const uint4* v, uint4* o,
                                     int rows, int pieces, int tile)
{
    const long long head = (long long)(blockIdx.z * gridDim.y + blockIdx.y) * rows * pieces;
    const int mine = blockIdx.x * tile * pieces;
    uint4 sum = make_uint4(0, 0, 0, 0);
    auto take = [&](uint4 x) { sum.x ^= x.x; sum.y ^= x.y; sum.z ^= x.z; sum.w ^= x.w; };
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
Launch = Callable[[Any], None]  # takes the stream


class Call:
    """A launch in the form that a stopwatch takes."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch

    def launch(self, stream: Any) -> None:
        self._launch(stream)


def timed(launch: Launch, stream: Any) -> list[float]:
    """Samples in microseconds, taken by graphs of N and 2N launches or one launch at a time."""
    from greenfast.search.targets.cuda.launches import Stopwatch

    watch = Stopwatch([Call(launch)], stream, 20.0)
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        watch()
    return [watch() for _ in range(SAMPLES)]


def ceiling(name: str, samples: list[float], figure: str, note: str, **more: Any) -> Row:
    return {
        "what": "ceiling",
        "name": name,
        "us": round(median(samples), 4),
        "figure": figure,
        "note": note,
        **more,
        "samples": [round(sample, 4) for sample in samples],
    }


def empty_node(module: Any, stream: Any) -> Row:
    empty = module.get_function("empty")
    samples = timed(lambda stream: empty((1,), (32,), ()), stream)
    return ceiling("empty kernel, one node of a graph", samples, "", "graphs")


def device_copy(cupy: Any, stream: Any) -> Row:
    source, target = (cupy.zeros(COPY_BYTES, cupy.uint8) for _ in range(2))

    def copy(stream: Any) -> None:
        cupy.cuda.runtime.memcpyAsync(
            target.data.ptr, source.data.ptr, COPY_BYTES, DEVICE_TO_DEVICE, stream.ptr
        )

    samples = timed(copy, stream)
    figure = f"{2 * COPY_BYTES / median(samples) / 1e6:.2f} TB/s read and written"
    return ceiling("copy of 1 GiB on the device", samples, figure, "one by one")


def load_only(cupy: Any, module: Any, stream: Any, name: str) -> Row:
    """The fastest choice of tile and threads for one shape."""
    batch, heads, rows, dim = SHAPES[name]
    elements = batch * heads * rows * dim
    tensors = [cupy.random.randint(0, 2**31, elements // 2, cupy.int32) for _ in range(4)]
    function = module.get_function("load_only")

    def samples_of(tile: int, threads: int) -> list[float]:
        scalars = map(cupy.int32, (rows, dim * 2 // 16, tile))
        arguments, grid = (*tensors, *scalars), (rows // tile, heads, batch)
        return timed(lambda stream: function(grid, (threads,), arguments), stream)

    choices = [(samples_of(tile, threads), tile, threads) for tile in TILES for threads in THREADS]
    samples, tile, threads = min(choices, key=lambda choice: median(choice[0]))
    moved = (rows // tile) * 2 * elements * 2 + 2 * elements * 2
    return ceiling(
        f"load-only attention, `{name}`",
        samples,
        f"{moved / median(samples) / 1e6:.2f} TB/s out of L2 and L1",
        f"tiles of {tile} queries, {threads} threads a block, hot",
        moved_bytes=moved,
    )


def product() -> list[Row]:
    """PyTorch's bf16 matrix product; nothing if PyTorch is not installed."""
    try:
        import torch
    except ImportError:
        return []
    shape = (PRODUCT_SIZE, PRODUCT_SIZE)
    a, b = (torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    samples = []
    for _ in range(DISCARDED + SAMPLES):
        begin.record()
        torch.matmul(a, b)
        end.record()
        end.synchronize()
        samples.append(1000 * begin.elapsed_time(end))
    samples = samples[DISCARDED:]
    return [
        ceiling(
            f"bf16 product of {PRODUCT_SIZE}x{PRODUCT_SIZE} matrices",
            samples,
            f"{2 * PRODUCT_SIZE**3 / median(samples) / 1e6:.0f} TFLOP/s",
            f"torch {torch.__version__}, random values, one by one",
        )
    ]


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    options = parser.parse_args()
    require_gpu()
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    module = cupy.RawModule(code=KERNELS, options=("--std=c++17",))
    with stream:
        rows = [
            empty_node(module, stream),
            device_copy(cupy, stream),
            *(load_only(cupy, module, stream, name) for name in SHAPES),
        ]
    rows += product()
    environment = {
        **basic_environment(),
        "gpu": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(),
        "cupy": cupy.__version__,
        "cuda_runtime": cupy.cuda.runtime.runtimeGetVersion(),
    }
    write_json(options.out, {"environment": environment, "rows": rows})
    for row in rows:
        print(f"{row['name']:45} {row['us']:10.2f} us  {row['figure']}  ({row['note']})")


if __name__ == "__main__":
    main()
