"""A catalogue, a toolchain and a target, opened together and closed together."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.command_line import require_gpu
from bench.environment import target_environment
from bench.results import Row
from greenfast.search.cores import usable_cores
from greenfast.search.gates import GateLimits
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.workloads import Items, Workload
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.oracle.cases import Case, workload_case
from greenfast.search.oracle.problem import Problem, lay_out
from greenfast.search.space.candidate import Candidate
from greenfast.search.space.space import resolve
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.targets.base import Target
from greenfast.search.toolchain import Toolchain

ANY_SPILLS = GateLimits(max_spill_bytes=None)


@dataclass(frozen=True)
class Session:
    """A prepared target with the toolchain that compiles for it."""

    folder: Path  # of artifacts
    catalogue: Catalogue
    toolchain: Toolchain
    target: Target

    def context(
        self,
        kernel: KernelSpec,
        *workloads: Workload,
        compiled: Items | None = None,
        limits: GateLimits = ANY_SPILLS,
        seed: int = 0,
        **more: Any,
    ) -> EvaluationContext:
        """A context for candidates of `kernel`; `compiled` is the first workload's by default."""
        return EvaluationContext(
            kernel,
            workloads[0].compile_time(kernel) if compiled is None else compiled,
            workloads,
            self.target,
            self.toolchain,
            self.catalogue.include_dirs,
            limits,
            seed,
            **more,
        )

    def environment(self) -> Row:
        return target_environment(self.toolchain, self.target)


@contextmanager
def open_session(
    target: str,
    *,
    prefix: str,
    catalogue: Catalogue | None = None,
    workers: int = 1,
    compilers: int | None = None,
    **settings: Any,
) -> Iterator[Session]:
    """A session on `target` with artifacts in a temporary folder, or in GREENFAST_BENCH_CACHE.

    `workers` are the threads of one emulated run, `compilers` the compiler's processes (by default
    all cores); `settings` are further fields of TargetSettings. SystemExit where a GPU is missing.
    """
    if target.startswith("cuda"):
        require_gpu()
    known = catalogue or Catalogue([REPOSITORY_TEMPLATES])
    with tempfile.TemporaryDirectory(prefix=f"greenfast-{prefix}-") as temporary:
        folder = Path(os.environ.get("GREENFAST_BENCH_CACHE") or temporary)
        toolchain = Toolchain(folder, compilers or usable_cores())
        opened = open_target(
            target, TargetSettings(folder, known.include_dirs, workers, **settings)
        )
        try:
            opened.prepare()
            yield Session(folder, known, toolchain, opened)
        finally:
            opened.close()
            toolchain.close()


def workload_problem(
    context: EvaluationContext, candidate: Candidate, reference: Any, case: Case | None = None
) -> Problem:
    """A candidate's problem on `case`, by default on the context's first workload."""
    template = context.kernel.template(candidate.template)
    point = resolve(template, candidate.parameters, context.compiled, context.target.device)
    case = case or workload_case(context.workloads[0], context.seed)
    return lay_out(context.kernel, template, point, case, reference, optional_outputs=False)
