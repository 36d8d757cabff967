"""What an evaluation needs, in tests: for a workload under the default limits, or for a plan."""

from __future__ import annotations

from typing import Any

from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.loop.plan import SearchPlan
from greenfast.search.targets.base import GateLimits, Target
from greenfast.search.toolchain import Toolchain


def workload_context(
    catalogue: Catalogue, kernel: str, workload: str, target: Target, toolchain: Toolchain
) -> EvaluationContext:
    spec = catalogue.kernel(kernel)
    shape = spec.workload(workload)
    return EvaluationContext(
        spec,
        shape.compile_time(spec),
        (shape,),
        target,
        toolchain,
        catalogue.include_dirs,
        GateLimits(),
        0,
    )


def plan_context(
    catalogue: Catalogue, plan: SearchPlan, target: Target, toolchain: Toolchain, **more: Any
) -> EvaluationContext:
    kernel = catalogue.kernel(plan.kernel)
    workloads = tuple(kernel.workload(name) for name in plan.workloads)
    return EvaluationContext(
        kernel,
        plan.compiled,
        workloads,
        target,
        toolchain,
        catalogue.include_dirs,
        plan.limits,
        plan.seed,
        **more,
    )
