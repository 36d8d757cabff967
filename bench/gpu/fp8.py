"""attention_fp8 on a GPU: every preset against the reference, and the precision of fp8 sums.

    python -m bench.gpu.fp8 OUT.json [--accumulators | --presets]

Three measurements of the accumulator use products that are powers of two: how far below one product
another may lie and still change the sum, in the same half of the 32 terms, in the other half, and
against the float that is added to. The fourth is the largest error on random codes, as a share of
the sum of the terms' sizes, which reference.py's ACCUMULATOR_STEP bounds. It is a logarithm to base
2, where -60 stands for no error at all.
"""

from __future__ import annotations

import json
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from bench.command_line import require_gpu, script_parser
from bench.environment import environment
from bench.results import Row, write_json
from bench.session import Session, open_session
from greenfast.search.devices.facts import device
from greenfast.search.digest import digest
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.performance import timed_problems
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.spec import KernelSpec, Preset, TemplateSpec
from greenfast.search.kernels.template_text import Line
from greenfast.search.kernels.workloads import Workload
from greenfast.search.loop.evaluate import EvaluationContext, prepare
from greenfast.search.render import RenderedSource
from greenfast.search.space.candidate import Candidate, preset_candidate
from greenfast.search.space.space import Space
from greenfast.search.toolchain import Cubin, Toolchain

FORMATS = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "f16": np.float16}
# Of two: the range of powers that each format holds exactly.
POWERS = {"e4m3": (-9, 8), "e5m2": (-16, 15), "f16": (-24, 15)}
ROUNDS = 400
NOTHING = 2.0**-60
TIMED = ("mission", "mission_e4m3", "mission_e5m2", "long", "long_e4m3", "d128")
# Presets of attention, for comparison.
BESIDE = (
    ("mma:fa2", "mission"),
    ("mma:resident", "mission"),
    ("mma:wide", "long"),
    ("mma:wide", "d128"),
)
SOURCE = """
extern "C" __global__ void multiply(const unsigned* a, const unsigned* b, const float* c,
                                    float* d) {
    const int lane = threadIdx.x;
    a += blockIdx.x * 128 + lane * 4, b += blockIdx.x * 64 + lane * 2;
    const float* from = c + blockIdx.x * 128 + lane * 4;
    float s[4] = {from[0], from[1], from[2], from[3]};
    asm volatile("mma.sync.aligned.SHAPE.row.col.f32.KIND.KIND.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    for (int i = 0; i < 4; ++i) d[blockIdx.x * 128 + lane * 4 + i] = s[i];
}
"""


class Multiplier:
    """d = a b^T + c by one mma each: a [n, rows, k], b [n, 8, k], c and d [n, rows, 8]."""

    rows = 16

    def __init__(self, kind: str) -> None:
        import cupy

        self.cupy, self.dtype = cupy, np.dtype(FORMATS[kind])
        self.depth = 16 if kind == "f16" else 32
        text = SOURCE.replace("SHAPE", f"m16n8k{self.depth}").replace("KIND", kind)
        self.function = cupy.RawModule(code=text, backend="nvrtc").get_function("multiply")
        lane, n = np.arange(32), 4 // self.dtype.itemsize
        g, t = lane // 4, lane % 4
        k = np.stack([n * t + i for i in range(n)], 1)  # of a lane's first register
        half = self.depth // 2
        # Register r of a holds row g + 8 (r % 2), terms from half * (r / 2) on; of b, column g,
        # terms from half * r on.
        self.a_at = np.stack(
            [(g + 8 * (r % 2))[:, None] * self.depth + k + half * (r // 2) for r in range(4)], 1
        )
        self.b_at = np.stack([g[:, None] * self.depth + k + half * r for r in range(2)], 1)
        self.d_at = np.stack([(g + 8 * (e // 2)) * 8 + 2 * t + e % 2 for e in range(4)], 1)

    def __call__(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        n, parts = len(a), len(a) * self.rows // 16  # a part: the 16 rows of a warp
        words = [
            np.ascontiguousarray(matrix.astype(self.dtype).reshape(count, -1)[:, at.ravel()]).view(
                np.uint32
            )
            for matrix, count, at in ((a, parts, self.a_at), (b, n, self.b_at))
        ]
        accumulator = np.ascontiguousarray(
            c.astype(np.float32).reshape(parts, -1)[:, self.d_at.ravel()]
        )
        device = [self.cupy.asarray(word) for word in (*words, accumulator)]
        out = self.cupy.zeros(parts * 128, np.float32)
        self.launch(n, (*device, out))
        d = np.empty((parts, 128))
        d[:, self.d_at.ravel()] = self.cupy.asnumpy(out).reshape(parts, 128)
        return d.reshape(n, self.rows, 8)

    def launch(self, blocks: int, arguments: tuple[Any, ...]) -> None:
        self.function((blocks,), (32,), arguments)


WARPGROUP_SOURCE = """
extern "C" __global__ void __launch_bounds__(128)
multiply(const unsigned* a, const unsigned* b, const float* c, float* d) {
    // b [8 columns][32 terms] as two core matrices of 8 rows x 16 bytes, without a swizzle.
    __shared__ alignas(128) unsigned columns[64];
    const int t = threadIdx.x;
    a += blockIdx.x * 512 + t * 4, b += blockIdx.x * 64;
    if (t < 64) columns[t % 8 / 4 * 32 + t / 8 * 4 + t % 4] = b[t];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const float* from = c + blockIdx.x * 512 + t * 4;
    float s[4] = {from[0], from[1], from[2], from[3]};
    const unsigned long long place = __cvta_generic_to_shared(columns);
    const unsigned long long descriptor = place >> 4 | 128ull >> 4 << 16 | 128ull >> 4 << 32;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k32.f32.KIND.KIND "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, 1, 1, 1;"
        : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < 4; ++i) d[blockIdx.x * 512 + t * 4 + i] = s[i];
}
"""


def compiled(text: str, arch: str) -> bytes:
    """The cubin of a text without includes, for an architecture that CuPy does not ask for."""
    lines = tuple(Line("multiply.cu", number) for number in range(1, text.count("\n") + 1))
    source = RenderedSource(text, digest(text), lines, text, ("multiply",), True, True)
    with tempfile.TemporaryDirectory() as folder, closing(Toolchain(Path(folder), 1)) as toolchain:
        cubin = toolchain.compile(source, arch)
    assert isinstance(cubin, Cubin), cubin
    return cubin.code


class WarpgroupMultiplier(Multiplier):
    """The same by one wgmma of 64 rows: four matrices of `a` in a row share the first one's `b`."""

    rows = 64

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        text = WARPGROUP_SOURCE.replace("KIND", kind)
        module = self.cupy.cuda.function.Module()
        module.load(compiled(text, "sm_90a"))
        self.function = module.get_function("multiply")
        self.b_at = np.arange(8 * self.depth).reshape(1, -1)

    def launch(self, blocks: int, arguments: tuple[Any, ...]) -> None:
        self.function((blocks,), (128,), arguments)


INSTRUCTIONS = (
    *((Multiplier, kind) for kind in FORMATS),
    *((WarpgroupMultiplier, kind) for kind in ("e4m3", "e5m2")),
)


def bits_seen(multiply: Multiplier, kind: str, place: int | None) -> int:
    """The largest s for which the mma gives 1 + 2^-s another value than 1.

    The 1 is term 0 and 2^-s term `place`; with None, the 1 is c and 2^-s is term 0.
    """
    low, high = POWERS[kind]
    seen = 0
    for s in range(2 * (high - low) + 1):
        # Exponents of the two products.
        big = min(2 * high, 2 * low + s + max(0, 2 * high - 2 * low - s))
        small = big - s
        if small < 2 * low:
            break
        rows = multiply.rows
        shapes = ((1, rows, multiply.depth), (1, 8, multiply.depth), (1, rows, 8))
        a, b, c = (np.zeros(shape) for shape in shapes)
        terms = [(place or 0, small)] + ([(0, big)] if place is not None else [])
        for term, exponent in terms:
            a[0, 0, term] = 2.0 ** max(low, min(high, exponent - exponent // 2))
            b[0, 0, term] = 2.0**exponent / a[0, 0, term]
        if place is None:
            c[0, 0, 0] = 2.0**big
        if multiply(a, b, c)[0, 0, 0] != 2.0**big:
            seen = s
    return seen


def worst_share(multiply: Multiplier, rng: np.random.Generator, steps: int) -> dict[str, float]:
    """Errors of `steps` chained mma on random codes over the sum of the terms' sizes, as log2."""
    total, exact, size = (np.zeros((ROUNDS, multiply.rows, 8)) for _ in range(3))
    for _ in range(steps):
        a, b = (
            rng.standard_normal((ROUNDS, rows, multiply.depth))
            .astype(multiply.dtype)
            .astype(np.float64)
            for rows in (multiply.rows, 8)
        )
        total = multiply(a, b, total)
        exact += a @ b.swapaxes(1, 2)
        size += np.abs(a) @ np.abs(b).swapaxes(1, 2)
    share = (total - exact) / size
    worst, mean = np.abs(share).max(), np.abs(share).mean()
    return {
        "worst_log2": float(np.log2(max(worst, NOTHING))),
        "mean_log2": float(np.log2(max(mean, NOTHING))),
        "bias": float(share.mean() / max(mean, NOTHING)),
    }


def accumulators() -> list[Row]:
    rows, rng = [], np.random.default_rng(1)
    for instruction, kind in INSTRUCTIONS:
        multiply = instruction(kind)
        half = multiply.depth // 2
        rows.append(
            {
                "what": "accumulator",
                "instruction": "wgmma" if instruction is WarpgroupMultiplier else "mma.sync",
                "format": kind,
                "bits_same_half": bits_seen(multiply, kind, 1),
                "bits_other_half": bits_seen(multiply, kind, half),
                "bits_under_the_accumulator": bits_seen(multiply, kind, None),
                **{f"random_{steps}": worst_share(multiply, rng, steps) for steps in (1, 4, 64)},
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return rows


def presets() -> list[Row]:
    """Every preset of attention_fp8 on each workload that it serves, and attention's."""
    rows = []
    with open_session(
        "cuda:0", prefix="fp8", catalogue=Catalogue.from_environment(), compilers=8
    ) as session:
        kernel = session.catalogue.kernel("attention_fp8")
        for template in kernel.templates:
            for preset in template.presets:
                for workload in kernel.workloads:
                    rows += judged_preset(session, kernel, template, preset, workload)
        attention = session.catalogue.kernel("attention")
        for name, workload in BESIDE:
            named, preset = attention.preset(name)
            rows += judged_preset(session, attention, named, preset, attention.workload(workload))
    return rows


def judged_preset(
    session: Session,
    kernel: KernelSpec,
    template: TemplateSpec,
    preset: Preset,
    workload: Workload,
) -> list[Row]:
    """One row, or none where the preset is not meant for the workload's format or is excluded."""
    context = session.context(kernel, workload, seed=7, mode="hot")
    form = dict(context.compiled).get("format", "")
    if form and preset.name.startswith("sim") != (form == "sim") and preset.name != "wide":
        return []
    candidate = preset_candidate(template, preset.name, context.compiled)
    if Space(template, context.compiled, device("h200")).why_not(candidate.parameters):
        return []
    started = time.perf_counter()
    row = preset_row(context, candidate, preset.name)
    timed = "" if row["time_median_us"] is None else f"{row['time_median_us']:.2f} us hot; "
    print(
        f"{kernel.name:14}{preset.name:16}{workload.name:16}{row['outcome']:8}"
        f"{time.perf_counter() - started:6.1f} s  {timed}{row['sentence']}",
        flush=True,
    )
    return [row]


def preset_row(context: EvaluationContext, candidate: Candidate, preset: str) -> Row:
    """Correctness, and the time where the preset is correct and its workload is a timed one."""
    workload = context.workloads[0].name
    subject = prepare(candidate, context)
    result, time_us = CorrectnessGate().judge(subject), None
    if workload in TIMED and result.outcome == "passed":
        problems = timed_problems(subject)
        timings = context.target.measure(subject.program, subject.cubin, problems)
        time_us = timings[0].time_median_us if isinstance(timings, tuple) else None
    return {
        "what": "preset",
        "kernel": context.kernel.name,
        "preset": preset,
        "workload": workload,
        "outcome": str(result.outcome),
        "registers": max(entry.registers for entry in subject.cubin.entries),
        "spill_bytes": sum(entry.spill_bytes for entry in subject.cubin.entries),
        "time_median_us": time_us,
        "mode": "hot",
        "sentence": result.sentence,
        "source": subject.source.digest,
    }


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--accumulators", action="store_true", help="only the accumulator")
    only.add_argument("--presets", action="store_true", help="only the presets")
    options = parser.parse_args()
    require_gpu()
    import cupy

    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    result: dict[str, Any] = {"environment": {**environment(), "device": name}, "rows": []}
    for part, skipped in ((accumulators, options.presets), (presets, options.accumulators)):
        if not skipped:
            result["rows"] += part()
            write_json(options.out, result)
    judged = [row for row in result["rows"] if row["what"] == "preset"]
    wrong = [row for row in judged if row["outcome"] != "passed"]
    print(f"{len(judged)} presets and workloads, {len(wrong)} of them wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
