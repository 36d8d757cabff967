"""attention_fp8 on a real GPU: every preset against the reference, and how many bits an fp8 mma.sync keeps of its sums.

    python bench/gpu/fp8.py OUT.json [--accumulators | --presets]

The accumulator is asked three things, by products that are powers of two: how far below a product another one may lie
and still be seen, in the same half of the 32 terms, in the other half, and against the float that is added to; and the
largest error on random codes, as a share of the sum of the terms' sizes, which is what reference.py's ACCUMULATOR_STEP
bounds (a logarithm to base 2; -60 stands for no error at all).
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

import ml_dtypes
import numpy as np
from environment import environment

from greenfast.search.devices.facts import device
from greenfast.search.gates import GateLimits
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.performance import timed_problems
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.loop.evaluate import EvaluationContext, prepare
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import Space
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.toolchain import Toolchain

FORMATS = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "f16": np.float16}
POWERS = {
    "e4m3": (-9, 8),
    "e5m2": (-16, 15),
    "f16": (-24, 15),
}  # of two that the format holds exactly
ROUNDS = 400
NOTHING = 2.0**-60
TIMED = ("mission", "mission_e4m3", "mission_e5m2", "long", "long_e4m3", "d128")
BESIDE = (
    ("mma:fa2", "mission"),
    ("mma:resident", "mission"),
    ("mma:wide", "long"),
    ("mma:wide", "d128"),
)  # attention's
SOURCE = """
extern "C" __global__ void multiply(const unsigned* a, const unsigned* b, const float* c, float* d) {
    const int lane = threadIdx.x;
    a += blockIdx.x * 128 + lane * 4, b += blockIdx.x * 64 + lane * 2;
    const float* from = c + blockIdx.x * 128 + lane * 4;
    float s[4] = {from[0], from[1], from[2], from[3]};
    asm volatile("mma.sync.aligned.SHAPE.row.col.f32.KIND.KIND.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    for (int i = 0; i < 4; ++i) d[blockIdx.x * 128 + lane * 4 + i] = s[i];
}
"""


class Multiplier:
    """d = a b^T + c on the device, a [n, 16, k], b [n, 8, k], c [n, 16, 8]: one mma each."""

    def __init__(self, kind: str) -> None:
        import cupy

        self.cupy, self.dtype, self.depth = (
            cupy,
            np.dtype(FORMATS[kind]),
            16 if kind == "f16" else 32,
        )
        text = SOURCE.replace("SHAPE", f"m16n8k{self.depth}").replace("KIND", kind)
        self.function = cupy.RawModule(code=text, backend="nvrtc").get_function("multiply")
        lane, n = np.arange(32), 4 // self.dtype.itemsize
        g, t = lane // 4, lane % 4
        k = np.stack([n * t + i for i in range(n)], 1)  # of a lane's first register
        half = self.depth // 2
        # Register r of a: row g + 8 (r % 2), terms from half * (r / 2) on. Of b: column g, terms from half * r on.
        self.a_at = np.stack(
            [(g + 8 * (r % 2))[:, None] * self.depth + k + half * (r // 2) for r in range(4)], 1
        )
        self.b_at = np.stack([g[:, None] * self.depth + k + half * r for r in range(2)], 1)
        self.d_at = np.stack([(g + 8 * (e // 2)) * 8 + 2 * t + e % 2 for e in range(4)], 1)

    def __call__(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        n = len(a)
        words = [
            np.ascontiguousarray(one.astype(self.dtype).reshape(n, -1)[:, at.ravel()]).view(
                np.uint32
            )
            for one, at in ((a, self.a_at), (b, self.b_at))
        ]
        accumulator = np.ascontiguousarray(
            c.astype(np.float32).reshape(n, -1)[:, self.d_at.ravel()]
        )
        device = [self.cupy.asarray(word) for word in (*words, accumulator)]
        out = self.cupy.zeros(n * 128, np.float32)
        self.function((n,), (32,), (*device, out))
        found = np.empty((n, 128))
        found[:, self.d_at.ravel()] = self.cupy.asnumpy(out).reshape(n, 128)
        return found.reshape(n, 16, 8)


def bits_seen(multiply: Multiplier, kind: str, place: int | None) -> int:
    """The largest s for which 1 + 2^-s is not 1, the 1 being term 0 (None: c), the other one term `place` or term 0."""
    low, high = POWERS[kind]
    seen = 0
    for s in range(2 * (high - low) + 1):
        big = min(
            2 * high, 2 * low + s + max(0, 2 * high - 2 * low - s)
        )  # exponents of the two products
        small = big - s
        if small < 2 * low:
            break
        a, b, c = (
            np.zeros((1, 16, multiply.depth)),
            np.zeros((1, 8, multiply.depth)),
            np.zeros((1, 16, 8)),
        )
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
    """Errors of a chain of `steps` mma on random codes, as shares of the sum of the terms' sizes (log2)."""
    total, exact, size = (
        np.zeros((ROUNDS, 16, 8)),
        np.zeros((ROUNDS, 16, 8)),
        np.zeros((ROUNDS, 16, 8)),
    )
    for _ in range(steps):
        a, b = (
            rng.standard_normal((ROUNDS, rows, multiply.depth))
            .astype(multiply.dtype)
            .astype(np.float64)
            for rows in (16, 8)
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


def accumulators() -> list[dict]:
    found, rng = [], np.random.default_rng(1)
    for kind in FORMATS:
        multiply = Multiplier(kind)
        half = multiply.depth // 2
        found.append(
            {
                "what": "accumulator",
                "format": kind,
                "bits_same_half": bits_seen(multiply, kind, 1),
                "bits_other_half": bits_seen(multiply, kind, half),
                "bits_under_the_accumulator": bits_seen(multiply, kind, None),
                **{f"random_{steps}": worst_share(multiply, rng, steps) for steps in (1, 4, 64)},
            }
        )
        print(json.dumps(found[-1]), flush=True)
    return found


def open_device_name() -> str:
    import cupy

    return cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()


def presets() -> list[dict]:
    catalogue, found = Catalogue.from_environment(), []
    kernel = catalogue.kernel("attention_fp8")
    with tempfile.TemporaryDirectory() as folder:
        target = open_target("cuda:0", TargetSettings(Path(folder), catalogue.include_dirs, 1))
        target.prepare()
        toolchain = Toolchain(Path(folder), 8)
        for template in kernel.templates:
            for preset in template.presets:
                for workload in kernel.workloads:
                    found += _judged(
                        kernel, template, preset, workload, target, toolchain, catalogue
                    )
        attention = catalogue.kernel("attention")
        for name, workload in BESIDE:
            found += _judged(
                attention,
                *attention.preset(name),
                attention.workload(workload),
                target,
                toolchain,
                catalogue,
            )
        toolchain.close()
        target.close()
    return found


def _judged(kernel, template, preset, workload, target, toolchain, catalogue) -> list[dict]:
    compiled = workload.compile_time(kernel)
    form = dict(compiled).get("format", "")
    if form and preset.name.startswith("sim") != (form == "sim") and preset.name != "wide":
        return []
    candidate = preset_candidate(template, preset.name, compiled)
    if Space(template, compiled, device("h200")).why_not(candidate.parameters):
        return []
    started = time.perf_counter()
    context = EvaluationContext(
        kernel,
        compiled,
        (workload,),
        target,
        toolchain,
        catalogue.include_dirs,
        GateLimits(),
        7,
        mode="hot",
    )
    subject = prepare(candidate, context)
    result = CorrectnessGate().judge(subject)
    time_us = None
    if workload.name in TIMED and result.outcome == "passed":
        timings = target.measure(subject.program, subject.cubin, timed_problems(subject))
        time_us = timings[0].time_median_us if isinstance(timings, tuple) else None
    print(
        f"{kernel.name:14}{preset.name:16}{workload.name:16}{result.outcome:8}{time.perf_counter() - started:6.1f} s  "
        f"{'' if time_us is None else f'{time_us:.2f} us hot; '}{result.sentence}",
        flush=True,
    )
    return [
        {
            "what": "preset",
            "kernel": kernel.name,
            "preset": preset.name,
            "workload": workload.name,
            "outcome": str(result.outcome),
            "registers": max(entry.registers for entry in subject.cubin.entries),
            "spill_bytes": sum(entry.spill_bytes for entry in subject.cubin.entries),
            "time_median_us": time_us,
            "mode": "hot",
            "sentence": result.sentence,
            "source": subject.source.digest,
        }
    ]


def main() -> int:
    out, only = Path(sys.argv[1]), sys.argv[2:]
    made = {"environment": {**environment(), "device": open_device_name()}, "rows": []}
    for part in (accumulators, presets):
        if not only or f"--{part.__name__}" in only:
            made["rows"] += part()
            out.write_text(json.dumps(made, indent=1) + "\n")
    judged = [row for row in made["rows"] if row["what"] == "preset"]
    wrong = [one for one in judged if one["outcome"] != "passed"]
    print(f"{len(judged)} presets and workloads, {len(wrong)} not right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
