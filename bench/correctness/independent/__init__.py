"""An independent checker of kernels: its own reference, bounds, data, memory and launches.

Nothing here imports greenfast, whose gates it checks.
"""

from __future__ import annotations

from types import ModuleType

from bench.correctness.independent import attention, attention_fp8, gemm, gemm_fp8, rmsnorm

# Each has draw_cases(rng, tiles, compiled, offsets), images(case), arguments(case),
# judged(case, before, after) and OUTPUTS.
CHECKERS: dict[str, ModuleType] = {
    "attention": attention,
    "attention_fp8": attention_fp8,
    "gemm": gemm,
    "gemm_fp8": gemm_fp8,
    "rmsnorm": rmsnorm,
}
