"""`emulator:GPU`: the same CUDA source, compiled for this machine's CPU and executed for its results.

Results are real, times are modelled (see model.py). Each run has its own schedule: forward, reverse or seeded.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from greenfast.search.devices.facts import device
from greenfast.search.errors import Fault
from greenfast.search.oracle.problem import Problem, Scalar, Tensor, WorkspaceMemory
from greenfast.search.render import RenderedSource
from greenfast.search.targets.base import Checked, Execution, Failure, Inspect, Rival, Runner
from greenfast.search.targets.bound import bound_us
from greenfast.search.targets.emulator import build
from greenfast.search.targets.emulator import execute as native
from greenfast.search.targets.emulator.build import EmulatorBuild, Module
from greenfast.search.targets.emulator.host_compiler import find_host_compiler
from greenfast.search.targets.emulator.model import BAND, model
from greenfast.search.targets.emulator.work import (
    estimated_mixes,
    launch_works,
    mixes_of,
    sample_of,
    whole_mix,
)
from greenfast.search.text import shortened
from greenfast.search.toolchain import Cubin
from greenfast.search.verdict import (
    FINDING_REASONS,
    LineCost,
    Reason,
    SafetyFinding,
    TimeKind,
    Timing,
)

CHECK_FLOP_LIMIT = 400e6  # about half a second on one core
FIRST_BATCH = 4  # most wrong candidates show in the first runs
SAMPLED_BLOCKS = 16  # counted for the modelled time
COMPILE_DEADLINE_S = 60.0
CHECKED_PATIENCE = (
    4.0  # times the deadline of a plain run: slow checks are no fault of the candidate
)
MEMORY_BYTES = 4 * 2**30
WORKSPACE_BYTES = 2**30  # that a run may ask for: it is laid out and kept by this process, too
WORKER_BYTES = (
    256 * 2**20
)  # of address space that each thread of the process takes for its heap and stacks
_MACHINE_PATH = re.compile(
    r"(?<![\w.])/(?:[^\s/:]+/)+"
)  # folders of this machine are nobody's business
ORDERS = ("forward", "reverse", "seeded:1")
REASONS = {
    "deadlock": Reason.DEADLOCK,
    "divergence": Reason.DIVERGENCE,
    "misaligned": Reason.MISALIGNED,
    "out_of_bounds": Reason.OUT_OF_BOUNDS,
    "timeout": Reason.TIMEOUT,
    "out_of_memory": Reason.OUT_OF_MEMORY,
    "input_changed": Reason.INPUT_CHANGED,
}


@dataclass
class Program:
    """A candidate and its libraries by flavour, each compiled when it is first needed."""

    source: RenderedSource
    modules: dict[str, Module] = field(default_factory=dict)

    @cached_property
    def source_lines(self) -> dict[tuple[str, int], int]:
        """Line of the author's file -> the first line of the source's text that came from it."""
        found: dict[tuple[str, int], int] = {}
        for number, line in enumerate(self.source.lines, 1):
            found.setdefault((line.file, line.number), number)
        return found


class EmulatorTarget(Runner):
    """Executes on the CPU with the limits of the GPU `which`."""

    measures = False
    band = BAND
    check_flop_limit = CHECK_FLOP_LIMIT

    def __init__(
        self,
        which: str,
        cache_folder: Path,
        include_dirs: tuple[Path, ...],
        workers: int,
        run_deadline_s: float,
    ) -> None:
        self.name = f"emulator:{which}"
        self.device = device(which)
        self._cache_folder, self._include_dirs, self._workers = cache_folder, include_dirs, workers
        self._run_deadline_s = run_deadline_s
        self._build: EmulatorBuild | None = None
        self._lock = threading.Lock()

    def prepare(self) -> None:
        with self._lock:
            if self._build is None:
                made = EmulatorBuild(self._cache_folder, find_host_compiler(), self._include_dirs)
                made.prepare()
                self._build = made

    def load(self, source: RenderedSource, cubin: Cubin | None) -> Program:
        return Program(source)

    def execute(self, program: Program, problems: Sequence[Problem]) -> Iterator[Execution]:
        for start, stop in ((0, FIRST_BATCH), (FIRST_BATCH, len(problems))):
            batch = problems[start:stop]
            if not batch:
                continue
            orders = [ORDERS[(start + number) % len(ORDERS)] for number in range(len(batch))]
            runs = [
                emulated_run(one, order, str(number))
                for number, (one, order) in enumerate(zip(batch, orders))
                if no_room(one) is None
            ]
            results = iter(self._execute(self._module(program, "plain"), runs))
            for one, order in zip(batch, orders):
                failure = no_room(one)
                yield Execution(
                    one, order, *(({}, failure) if failure else self._outcome(one, next(results)))
                )

    def measure(
        self,
        program: Program,
        cubin: Cubin,
        problems: Sequence[Problem],
        against: Rival | None = None,
        inspect: Inspect | None = None,
    ) -> tuple[Timing, ...] | Failure:
        timings = []
        for problem in problems:
            if (failure := no_room(problem)) is not None:
                return failure
            result = self._counted(program, problem)
            failure = self._failure(problem, result)
            if failure is not None:
                return failure
            timings.append(self._timing(program, problem, cubin, result))
        return tuple(timings)

    def check(self, program: Program, problems: Sequence[Problem]) -> Iterator[Checked]:
        for start, stop in ((0, FIRST_BATCH), (FIRST_BATCH, len(problems))):
            batch = problems[start:stop]
            if not batch:
                continue
            orders = [ORDERS[(start + number) % len(ORDERS)] for number in range(len(batch))]
            runs = [
                emulated_run(one, order, str(number), check=True)
                for number, (one, order) in enumerate(zip(batch, orders))
                if no_room(one) is None
            ]
            results = iter(self._execute(self._module(program, "checked"), runs, CHECKED_PATIENCE))
            for one, order in zip(batch, orders):
                failure = no_room(one)
                yield Checked(
                    one,
                    order,
                    (SafetyFinding(failure.reason.value, failure.sentence),)
                    if failure
                    else findings_of(next(results), program.source_lines),
                )

    def line_costs(self, program: Program, problem: Problem) -> tuple[LineCost, ...] | Failure:
        if (failure := no_room(problem)) is not None:
            return failure
        result = self._counted(program, problem)
        return self._failure(problem, result) or line_costs_of(result, program.source_lines)

    def identity(self) -> tuple[tuple[str, str], ...]:
        self.prepare()
        return (
            ("target", self.name),
            ("host_compiler", self._build.compiler.version),
            ("model_band", f"{BAND:g}"),
        )

    def interrupt(self) -> None:
        native.interrupt()
        build.interrupt()

    def _counted(self, program: Program, problem: Problem) -> native.RunResult:
        run = emulated_run(problem, "forward", "counted", count=True)
        return self._execute(self._module(program, "counted"), [run])[0]

    def _module(self, program: Program, flavour: str) -> Module:
        if flavour in program.modules:
            return program.modules[flavour]
        self.prepare()
        source = program.source
        built = self._build.build_module(
            source.unit, source.entries, flavour=flavour, deadline_s=COMPILE_DEADLINE_S
        )
        if isinstance(built, Module):
            return program.modules.setdefault(flavour, built)
        first = next((line for line in built.log.splitlines() if "error" in line), shortened(built.log, 200))
        said = shortened(_MACHINE_PATH.sub("", first.strip()))
        raise Fault(
            f"the emulator cannot compile this source, which NVRTC accepts: {said}",
            code="emulator_unsupported",
        )

    def _execute(
        self, module: Module, runs: list[native.Run], patience: float = 1.0
    ) -> tuple[native.RunResult, ...]:
        return native.execute(
            self._build,
            module,
            runs,
            workers=self._workers,
            deadline_s=self._run_deadline_s * patience,
            memory_bytes=MEMORY_BYTES + self._workers * WORKER_BYTES,
        )

    def _outcome(
        self, problem: Problem, result: native.RunResult
    ) -> tuple[Mapping[str, np.ndarray], Failure | None]:
        failure = self._failure(problem, result)
        return ({}, failure) if failure else (result.outputs, None)

    def _failure(self, problem: Problem, result: native.RunResult) -> Failure | None:
        """What a run says of the candidate; Fault when it did not run at all."""
        if result.status == "not_run":
            raise Fault("an emulated run did not start", code="emulator_not_run")
        if result.status == "timeout":
            return Failure(
                Reason.TIMEOUT,
                f"no end within {self._run_deadline_s:g} s of processor time on the emulator",
            )
        if result.faults:
            first = result.faults[0]
            return Failure(REASONS.get(first.kind, Reason.DEVICE_FAULT), first.sentence)
        if result.status != "finished":
            return Failure(Reason.DEVICE_FAULT, "the candidate ended the process that ran it")
        if result.canary:
            return Failure(Reason.OUT_OF_BOUNDS, str(result.canary[0]))
        if result.input_changed:
            return Failure(
                Reason.INPUT_CHANGED,
                "the input " + ", ".join(result.input_changed) + " was written",
            )
        return None

    def _timing(
        self, program: Program, problem: Problem, cubin: Cubin, result: native.RunResult
    ) -> Timing:
        counters = result.counters
        if counters is None:
            raise Fault(
                "the emulator gave no counters for a counted run", code="emulator_no_counters"
            )
        mixes = mixes_of(problem, cubin, SAMPLED_BLOCKS)
        used = mixes or estimated_mixes(problem, counters, SAMPLED_BLOCKS)
        note = (
            f"from {counters.blocks_executed} of {counters.blocks_total} blocks"
            if counters.blocks_executed < counters.blocks_total
            else "from all blocks"
        )
        if not mixes:
            note += ", the mix of instructions estimated"
        works = launch_works(problem, counters, cubin, used, SAMPLED_BLOCKS)
        time = model(self.device, works, problem.work_bytes)
        detail = (
            ("bank_conflict_factor", round(counters.bank_conflict_factor, 3)),
            ("floor_us", round(bound_us(self.device, problem), 4)),
        )
        return Timing(
            problem.case.name,
            time.time_us,
            TimeKind.MODELLED,
            time.limited_by,
            detail,
            note,
            line_costs_of(result, program.source_lines),
            limits=tuple((name, round(us, 4)) for name, us in time.limits),
            mix=tuple(
                (name, round(count)) for name, count in whole_mix(problem, mixes, SAMPLED_BLOCKS)
            )
            if mixes
            else (),
        )


def no_room(problem: Problem) -> Failure | None:
    """Why a run's workspaces are more than the emulator has; None where they fit."""
    needed = sum(workspace.bytes for workspace in problem.workspaces)
    if needed <= WORKSPACE_BYTES:
        return None
    return Failure(
        Reason.OUT_OF_MEMORY,
        f"its workspaces need {needed:,} bytes; a run on the emulator has "
        f"{WORKSPACE_BYTES:,} for them",
    )


def findings_of(
    result: native.RunResult, source_lines: Mapping[tuple[str, int], int]
) -> tuple[SafetyFinding, ...]:
    """What a checked run reports, and what stopped it; Fault when it did not run at all."""
    if result.status == "not_run":
        raise Fault("a checked run did not start", code="emulator_not_run")
    found = [
        SafetyFinding(
            finding.kind,
            finding.sentence,
            finding.where,
            finding.other_where,
            source_lines.get(finding.where),
            source_lines.get(finding.other_where),
            finding.block,
            finding.thread,
            finding.other_thread,
            finding.memory,
            finding.offset_bytes,
            finding.count,
        )
        for finding in result.findings
    ]
    reported = {one.kind for one in found}
    found += [
        SafetyFinding(
            fault.kind if fault.kind in FINDING_REASONS else "device_fault",
            fault.sentence,
            fault.where,
            None,
            source_lines.get(fault.where),
            None,
            fault.block,
            fault.thread,
        )
        for fault in result.faults
        if fault.kind not in reported
    ]
    return tuple(found)


def line_costs_of(
    result: native.RunResult, source_lines: Mapping[tuple[str, int], int]
) -> tuple[LineCost, ...]:
    """Counters by line, the dearest first: shared memory's wavefronts and global memory's sectors alike."""
    lines = result.counters.per_line if result.counters else ()
    found = [
        LineCost(
            line.file,
            line.line,
            source_lines.get((line.file, line.line)),
            line.kind,
            line.count,
            line.total_bytes,
            line.wavefronts,
            line.wavefronts_ideal,
            line.sectors,
            line.sectors_ideal,
        )
        for line in lines
    ]
    return tuple(sorted(found, key=lambda one: (-one.transactions, one.file, one.line, one.kind)))


def emulated_run(
    problem: Problem, order: str, name: str, *, count: bool = False, check: bool = False
) -> native.Run:
    """A problem as the emulator takes it; a counted run executes a sample of the blocks only."""
    buffers = [
        native.Buffer(
            tensor.name, tensor.role, tensor.image, "poison" if tensor.starts_poisoned else "image"
        )
        for tensor in problem.tensors
    ]
    buffers += [
        native.Buffer(
            workspace.name,
            "workspace",
            np.zeros(workspace.bytes, np.uint8),
            "zero" if workspace.zero_fill else "poison",
        )
        for workspace in problem.workspaces
    ]
    launches = tuple(
        native.Launch(
            launch.entry,
            launch.grid,
            launch.block,
            launch.smem_dynamic_bytes,
            launch.cluster,
            arguments=None if launch.arguments is None else tuple(map(_argument, launch.arguments)),
            sample=sample_of(launch, SAMPLED_BLOCKS) if count else (),
        )
        for launch in problem.launches
    )
    return native.Run(
        name,
        launches,
        tuple(buffers),
        tuple(_argument(argument) for argument in problem.arguments),
        order=order,
        count=count,
        check=check,
    )


def _argument(one: Tensor | Scalar | WorkspaceMemory | None):
    match one:
        case None:
            return native.NullArgument()
        case Scalar():
            return native.ScalarArgument(one.dtype, one.value)
    return native.PointerArgument(one.name, 0)
