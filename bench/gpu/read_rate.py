"""How fast can a kernel read a cache of keys and values, if it does nothing else?

    python -m bench.gpu.read_rate OUT.json

Decoding reads K and V once and computes little, so this is a floor of its time. One thread a block
copies to a ring in shared memory with bulk copies, and nobody looks at the bytes. It is timed as
candidates are, on data that is read again and again (`hot`: what fits stays in the L2), and on a
ring of buffers (`cold`).
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.command_line import require_gpu, script_parser
from bench.environment import basic_environment
from bench.gpu.ceilings import DISCARDED, SAMPLES, Call
from bench.results import Row, write_json
from greenfast.search.timing import median

MIB = 2**20
BYTES = (16 * MIB, 128 * MIB)  # of K and V: a small batch, and 8 sequences of 4,096 keys
RING = 3  # buffers of the cold rows
BULK = [
    (piece, stages)
    for piece, stages in itertools.product((4096, 8192, 16384), (4, 8, 12))
    if piece * stages <= 200 * 1024
]
KERNELS = r"""
// Each block copies its equal part of `data` through `stages` places of `piece` bytes.
extern "C" __global__ void bulk(const char* data, long long bytes, int piece, int stages)
{
    extern __shared__ __align__(128) char places[];
    __shared__ __align__(8) unsigned long long arrived[16];
    if (threadIdx.x != 0) return;
    const unsigned barrier = (unsigned)__cvta_generic_to_shared(arrived);
    const unsigned place = (unsigned)__cvta_generic_to_shared(places);
    for (int i = 0; i < stages; ++i)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(barrier + 8 * i));
    asm volatile("fence.mbarrier_init.release.cluster;");
    const int count = (int)(bytes / piece);
    auto copy = [&](int number, int stage) {
        const unsigned full = barrier + 8 * stage;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                     :: "r"(full), "r"(piece) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                     " [%0], [%1], %2, [%3];"
                     :: "r"(place + stage * piece), "l"(data + (long long)number * piece),
                        "r"(piece), "r"(full) : "memory");
    };
    int next = blockIdx.x, stage = 0, phase = 0, ahead = 0;
    for (; ahead < stages && next < count; ++ahead, next += gridDim.x)
        copy(next, ahead);
    for (int number = blockIdx.x; number < count; number += gridDim.x) {
        asm volatile("{ .reg .pred done;\n"
                     "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                     "@!done bra again; }" :: "r"(barrier + 8 * stage), "r"(phase) : "memory");
        if (next < count) {
            copy(next, stage);
            next += gridDim.x;
        }
        if (++stage == stages) { stage = 0; phase ^= 1; }
    }
}
"""


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    options = parser.parse_args()
    require_gpu()
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        module = cupy.RawModule(code=KERNELS, options=("--std=c++17",))
        data = cupy.random.randint(0, 256, RING * max(BYTES), dtype=cupy.uint8)
        rows = [
            row
            for size in BYTES
            for mode, ring in (("hot", 1), ("cold", RING))
            for row in read(cupy, module, data, size, ring, stream, mode)
        ]
    environment = {
        **basic_environment(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "gpu": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(),
        "cupy": cupy.__version__,
    }
    write_json(options.out, {"environment": environment, "rows": rows})
    for size, mode in itertools.product(BYTES, ("hot", "cold")):
        best = min(
            (row for row in rows if (row["bytes"], row["mode"]) == (size, mode)),
            key=lambda row: row["us"],
        )
        print(size // MIB, "MiB", mode, best["us"], "us", best["tb_s"], "TB/s", best["how"])
    return 0


def read(
    cupy: Any, module: Any, data: Any, size: int, ring: int, stream: Any, mode: str
) -> list[Row]:
    """Each way to read `size` bytes, from `ring` places in turns."""
    sms = cupy.cuda.Device().attributes["MultiProcessorCount"]
    starts = [data.data.ptr + number * size for number in range(ring)]
    bulk = module.get_function("bulk")
    bulk.max_dynamic_shared_size_bytes = 200 * 1024
    ways = {}
    for piece, stages in BULK:
        arguments = [(start, size, np.int32(piece), np.int32(stages)) for start in starts]
        how = f"bulk, {stages} pieces of {piece} bytes"
        ways[how] = (bulk, sms, 32, piece * stages, arguments)
    return [_row(how, way, size, mode, stream) for how, way in ways.items()]


def _row(how: str, way: tuple[Any, ...], size: int, mode: str, stream: Any) -> Row:
    from greenfast.search.targets.cuda.launches import Stopwatch

    function, blocks, threads, shared, arguments = way

    def launch_of(given: tuple[Any, ...]) -> Call:
        return Call(lambda _: function((blocks,), (threads,), given, shared_mem=shared))

    calls = [launch_of(given) for given in arguments]
    watch = Stopwatch(calls, stream, 20.0)
    samples = [watch() for _ in range(DISCARDED + SAMPLES)][DISCARDED:]
    us = median(samples)
    return {
        "how": how,
        "bytes": size,
        "mode": mode,
        "us": round(us, 3),
        "tb_s": round(size / us / 1e6, 3),
        "samples": [round(sample, 3) for sample in samples],
    }


if __name__ == "__main__":
    raise SystemExit(main())
