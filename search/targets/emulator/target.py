"""`emulator:GPU`: the same CUDA source, compiled for this machine's CPU and executed for its results.

Results are real, times are modelled (see model.py). Each run has its own schedule: forward, reverse or seeded.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from search.devices import device
from search.errors import Fault
from search.memory import Problem, Scalar, Tensor, WorkspaceMemory
from search.render import RenderedSource
from search.targets.base import Execution, Failure, Target
from search.targets.emulator import execute as native
from search.targets.emulator.build import EmulatorBuild, Module
from search.targets.emulator.host_compiler import find_host_compiler
from search.targets.emulator.model import BAND, BlockWork, ModelledTime, model_launch
from search.toolchain import Cubin
from search.verdict import Reason, TimeKind, Timing

CHECK_FLOP_LIMIT = 400e6             # about half a second on one core
FIRST_BATCH = 4                      # most wrong candidates show in the first runs
SAMPLED_BLOCKS = 8                   # counted for the modelled time
COMPILE_DEADLINE_S = 60.0
MEMORY_BYTES = 4 * 2**30
_MACHINE_PATH = re.compile(r"/(?:[^\s/:]+/)+")        # folders of this machine are nobody's business
ORDERS = ("forward", "reverse", "seeded:1")
REASONS = {"deadlock": Reason.DEADLOCK, "divergence": Reason.DIVERGENCE, "misaligned": Reason.MISALIGNED,
           "out_of_bounds": Reason.OUT_OF_BOUNDS, "timeout": Reason.TIMEOUT, "out_of_memory": Reason.OUT_OF_MEMORY,
           "input_changed": Reason.INPUT_CHANGED}


@dataclass
class Program:
    """A candidate compiled for the CPU; the counted build is made when a time is asked for."""

    source: RenderedSource
    plain: Module
    counted: Module | None = field(default=None)


class EmulatorTarget(Target):
    """Executes on the CPU with the limits of the GPU `which`."""

    measures = False
    band = BAND
    check_flop_limit = CHECK_FLOP_LIMIT

    def __init__(self, which: str, cache_folder: Path, include_dirs: tuple[Path, ...], workers: int,
                 run_deadline_s: float) -> None:
        self.name = f"emulator:{which}"
        self.device = device(which)
        self._cache_folder, self._include_dirs, self._workers = cache_folder, include_dirs, workers
        self._run_deadline_s = run_deadline_s
        self._build: EmulatorBuild | None = None
        self._lock = threading.Lock()

    def prepare(self) -> None:
        with self._lock:
            if self._build is None:
                build = EmulatorBuild(self._cache_folder, find_host_compiler(), self._include_dirs)
                build.prepare()
                self._build = build

    def load(self, source: RenderedSource, cubin: Cubin) -> Program:
        return Program(source, self._module(source, counted=False))

    def execute(self, program: Program, problems: Sequence[Problem]) -> Iterator[Execution]:
        for start, stop in ((0, FIRST_BATCH), (FIRST_BATCH, len(problems))):
            batch = problems[start:stop]
            if not batch:
                continue
            orders = [ORDERS[(start + number) % len(ORDERS)] for number in range(len(batch))]
            runs = [emulated_run(one, order, str(number)) for number, (one, order) in enumerate(zip(batch, orders))]
            results = self._execute(program.plain, runs)
            for one, order, result in zip(batch, orders, results):
                yield Execution(one, order, *self._outcome(one, result))

    def measure(self, program: Program, cubin: Cubin, problems: Sequence[Problem]) -> tuple[Timing, ...] | Failure:
        if program.counted is None:
            program.counted = self._module(program.source, counted=True)
        timings = []
        for one in problems:
            result = self._execute(program.counted, [emulated_run(one, "forward", "counted", counted=True)])[0]
            failure = self._failure(one, result)
            if failure is not None:
                return failure
            timings.append(self._timing(one, cubin, result))
        return tuple(timings)

    def identity(self) -> tuple[tuple[str, str], ...]:
        self.prepare()
        return (("target", self.name), ("host_compiler", self._build.compiler.version), ("model_band", f"{BAND:g}"))

    def interrupt(self) -> None:
        native.interrupt()

    def _module(self, source: RenderedSource, *, counted: bool) -> Module:
        self.prepare()
        built = self._build.build_module(source.unit, source.entries, counted=counted, deadline_s=COMPILE_DEADLINE_S)
        if isinstance(built, Module):
            return built
        first = next((line for line in built.log.splitlines() if "error" in line), built.log[:200])
        said = _MACHINE_PATH.sub("", first.strip())[:300]
        raise Fault(f"the emulator cannot compile this source, which NVRTC accepts: {said}", code="emulator_unsupported")

    def _execute(self, module: Module, runs: list[native.Run]) -> tuple[native.RunResult, ...]:
        return native.execute(self._build, module, runs, workers=self._workers, deadline_s=self._run_deadline_s,
                              memory_bytes=MEMORY_BYTES)

    def _outcome(self, problem: Problem, result: native.RunResult) -> tuple[Mapping[str, np.ndarray], Failure | None]:
        failure = self._failure(problem, result)
        return ({}, failure) if failure else (result.outputs, None)

    def _failure(self, problem: Problem, result: native.RunResult) -> Failure | None:
        """What a run says of the candidate; Fault when it did not run at all."""
        if result.status == "not_run":
            raise Fault("an emulated run did not start", code="emulator_not_run")
        if result.status == "timeout":
            return Failure(Reason.TIMEOUT, f"no end within {self._run_deadline_s:g} s on the emulator")
        if result.faults:
            first = result.faults[0]
            return Failure(REASONS.get(first.kind, Reason.DEVICE_FAULT), first.sentence)
        if result.status != "finished":
            return Failure(Reason.DEVICE_FAULT, "the candidate ended the process that ran it")
        if result.canary:
            return Failure(Reason.OUT_OF_BOUNDS, str(result.canary[0]))
        if result.input_changed:
            return Failure(Reason.INPUT_CHANGED, "the input " + ", ".join(result.input_changed) + " was written")
        return None

    def _timing(self, problem: Problem, cubin: Cubin, result: native.RunResult) -> Timing:
        counters = result.counters
        if counters is None:
            raise Fault("the emulator gave no counters for a counted run", code="emulator_no_counters")
        launch = problem.launches[0]
        work = _block_work(problem, counters, math.prod(launch.grid))
        entry = next(one for one in cubin.entries if one.entry == launch.entry)
        time = model_launch(self.device, launch, entry.registers, entry.smem_static_bytes, work, problem.work_bytes)
        note = (f"from {counters.blocks_executed} of {counters.blocks_total} blocks"
                if counters.blocks_executed < counters.blocks_total else "from all blocks")
        return Timing(problem.case.name, time.time_us, TimeKind.MODELLED, time.limited_by, _detail(counters, time), note)


def _detail(counters: native.Counters, time: ModelledTime) -> tuple[tuple[str, float], ...]:
    ideal = counters.shared_wavefronts_ideal
    factor = counters.shared_wavefronts / ideal if ideal else 1.0
    return (("bank_conflict_factor", round(factor, 3)),
            *((f"cycles_{name.replace(' ', '_')}", round(cycles, 1)) for name, cycles in time.cycles))


def _block_work(problem: Problem, counters: native.Counters, blocks: int) -> BlockWork:
    share = 1 / max(1, counters.blocks_executed)
    mma = sum(flop for _, flop in counters.mma_flop) * share
    fp32 = max(0.0, problem.work_flop / blocks - mma)
    counted = (counters.warp_memory_instructions + counters.warp_collectives) * share
    arithmetic = fp32 / 64 + mma / 4096 + counters.special_function_ops * share / 32
    return BlockWork(counters.warps_per_block, mma, fp32, counters.shared_wavefronts * share,
                     counters.global_sectors * share, counters.special_function_ops * share, counted + arithmetic,
                     counters.barriers * share)


def emulated_run(problem: Problem, order: str, name: str, *, counted: bool = False) -> native.Run:
    """A problem as the emulator takes it; a counted run executes a sample of the blocks only."""
    buffers = [native.Buffer(one.name, one.role, one.image, "image" if one.role == "input" else "poison")
               for one in problem.tensors]
    buffers += [native.Buffer(one.name, "workspace", np.zeros(one.bytes, np.uint8), "zero" if one.zero_fill else "poison")
                for one in problem.workspaces]
    launches = tuple(native.Launch(one.entry, one.grid, one.block, one.smem_dynamic_bytes) for one in problem.launches)
    return native.Run(name, launches, tuple(buffers), tuple(_argument(one) for one in problem.arguments), order=order,
                      count=counted, block_sample=SAMPLED_BLOCKS if counted else None)


def _argument(one: Tensor | Scalar | WorkspaceMemory | None):
    match one:
        case None:
            return native.NullArgument()
        case Scalar():
            return native.ScalarArgument(one.dtype, one.value)
    return native.PointerArgument(one.name, 0)
