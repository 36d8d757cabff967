"""`emulator:GPU`: the same CUDA source, compiled for this machine's CPU and executed.

Results are real, times are modelled (model.py). Runs differ in their schedule: forward, reverse or
seeded.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from greenfast.search.devices.facts import device
from greenfast.search.devices.tensor_map import TensorMap
from greenfast.search.errors import Fault
from greenfast.search.oracle.problem import (
    GivenArgument,
    LaunchPlan,
    Packed,
    Problem,
    Scalar,
    Tensor,
)
from greenfast.search.render import RenderedSource
from greenfast.search.targets.base import (
    Checked,
    Execution,
    Failure,
    Inspect,
    Rival,
    Runner,
    SourceRefused,
)
from greenfast.search.targets.bound import bound_us
from greenfast.search.targets.emulator import compiler_process
from greenfast.search.targets.emulator import execute as native
from greenfast.search.targets.emulator.build import REFUSED, EmulatorBuild, Module
from greenfast.search.targets.emulator.examination import COMPILE_DEADLINE_S, refusal
from greenfast.search.targets.emulator.far_buffers import tensor_buffers, whole_outputs
from greenfast.search.targets.emulator.host_compiler import find_host_compiler
from greenfast.search.targets.emulator.model import BAND, model
from greenfast.search.targets.emulator.runs import Argument
from greenfast.search.targets.emulator.source_text import Refused
from greenfast.search.targets.emulator.work import (
    ends_of,
    estimated_mixes,
    launch_works,
    mixes_of,
    sample_of,
    whole_mix,
)
from greenfast.search.text import one_line, shortened
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
SAME_VALUE_WRITES = "same_value_writes"  # a note's kind in native/checker.cpp
FIRST_BATCH = 4  # most wrong candidates fail in the first runs
SAMPLED_BLOCKS = 16  # counted for the modelled time
# The deadline of a checked run, in deadlines of a plain run: slow checks are not the candidate's.
CHECKED_PATIENCE = 4.0
MEMORY_BYTES = 4 * 2**30
WORKSPACE_BYTES = 2**30  # of a run, at most: this process lays them out and keeps them, too
WORKER_BYTES = 256 * 2**20  # of address space for the heap and stacks of each worker thread
LONGEST_MESSAGE = 300  # characters, of a compiler's
# A source that may wait for another block in a loop of loads.
_WATCHED = re.compile(r"\bvolatile\b|\b__ldcv\b")
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:[^\s/:]+/)+")  # must not appear in messages
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


@dataclass(frozen=True)
class Program:
    """A candidate, and its libraries by flavour, each compiled on first use."""

    source: RenderedSource
    modules: dict[str, Module] = field(default_factory=dict)

    @cached_property
    def source_lines(self) -> dict[tuple[str, int], int]:
        """For each line of the author's files, the first line of the source that it became."""
        numbers: dict[tuple[str, int], int] = {}
        for number, line in enumerate(self.source.lines, 1):
            numbers.setdefault((line.file, line.number), number)
        return numbers


class CannotCompile(Fault):
    """The emulator's compiler refuses a text; `log` is what it says."""

    code = "emulator_unsupported"

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


class EmulatorTarget(Runner):
    """Executes candidates on the CPU, with the limits of the GPU `which`."""

    measures = False
    band = BAND
    check_flop_limit = CHECK_FLOP_LIMIT
    reserves_addresses = True

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
        self._prepared()

    def _prepared(self) -> EmulatorBuild:
        with self._lock:
            if self._build is None:
                build = EmulatorBuild(self._cache_folder, find_host_compiler(), self._include_dirs)
                build.prepare()
                self._build = build
            return self._build

    def examine(self, source: RenderedSource) -> None:
        refused = refusal(self._prepared(), source.text, source.unit, self._arch(source))
        if refused is None:
            return
        if refused.line is None:
            raise SourceRefused(refused.sentence)
        line = source.lines[min(refused.line, len(source.lines)) - 1]
        raise SourceRefused(f"{line.file}:{line.number}: {refused.sentence}")

    @property
    def headers(self) -> frozenset[str]:
        """The headers that the emulator answers."""
        return self._prepared().headers

    def expanded(self, unit: str) -> str | Refused | compiler_process.CompilerFailed:
        """A text after preprocessing as for this device, before anything in it is judged."""
        arch = self.device.compiled_arch(specific=False)
        return self._prepared().expanded(unit, arch=arch, deadline_s=COMPILE_DEADLINE_S)

    def _arch(self, source: RenderedSource) -> str:
        return self.device.compiled_arch(specific=source.arch_specific)

    def load(self, source: RenderedSource, cubin: Cubin | None) -> Program:
        return Program(source)

    def execute(self, program: Program, problems: Sequence[Problem]) -> Iterator[Execution]:
        for problem, order, result in self._run_all(program, problems, "plain"):
            failure = result if isinstance(result, Failure) else self._failure(problem, result)
            outputs = (
                {}
                if isinstance(result, Failure) or failure
                else whole_outputs(problem, result.outputs)
            )
            yield Execution(problem, order, outputs, failure)

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
        timed_out = False
        for problem, order, result in self._run_all(program, problems, "checked"):
            findings: tuple[SafetyFinding, ...]
            tolerated: tuple[SafetyFinding, ...] = ()
            if isinstance(result, Failure):
                findings = (SafetyFinding(result.reason.value, result.sentence),)
            elif result.status == "not_run" and timed_out:
                return  # nothing is learnt from a second timeout
            else:
                findings = findings_of(result, program.source_lines)
                tolerated = tolerated_of(result, program.source_lines)
                timed_out |= result.status == "timeout"
            yield Checked(problem, order, findings, tolerated)

    def _run_all(
        self, program: Program, problems: Sequence[Problem], flavour: str
    ) -> Iterator[tuple[Problem, str, native.RunResult | Failure]]:
        """Each problem with its order and result; Failure: the emulator has no room for it."""
        patience = CHECKED_PATIENCE if flavour == "checked" else 1.0
        for start, stop in ((0, FIRST_BATCH), (FIRST_BATCH, len(problems))):
            batch = problems[start:stop]
            if not batch:
                continue
            orders = [ORDERS[(start + number) % len(ORDERS)] for number in range(len(batch))]
            runs = [
                emulated_run(problem, order, str(number), check=flavour == "checked")
                for number, (problem, order) in enumerate(zip(batch, orders, strict=True))
                if no_room(problem) is None
            ]
            results = iter(self._execute(self._module(program, flavour), runs, patience))
            for problem, order in zip(batch, orders, strict=True):
                yield problem, order, no_room(problem) or next(results)

    def line_costs(self, program: Program, problem: Problem) -> tuple[LineCost, ...] | Failure:
        if (failure := no_room(problem)) is not None:
            return failure
        result = self._counted(program, problem)
        return self._failure(problem, result) or line_costs_of(result, program.source_lines)

    def identity(self) -> tuple[tuple[str, str], ...]:
        return (
            ("target", self.name),
            ("host_compiler", self._prepared().compiler.version),
            ("model_band", f"{BAND:g}"),
        )

    def interrupt(self) -> None:
        native.interrupt()
        compiler_process.interrupt()

    def _counted(self, program: Program, problem: Problem) -> native.RunResult:
        run = emulated_run(problem, "forward", "counted", count=True)
        return self._execute(self._module(program, "counted"), [run])[0]

    def _module(self, program: Program, flavour: str) -> Module:
        if flavour == "plain" and _WATCHED.search(program.source.unit):
            flavour = "counted"  # its loads call the runtime, so a thread that waits gives way
        if flavour in program.modules:
            return program.modules[flavour]
        source = program.source
        self.examine(source)
        built = self._prepared().build_module(
            source.unit,
            source.entries,
            flavour=flavour,
            deadline_s=COMPILE_DEADLINE_S,
            arch=self._arch(source),
        )
        if isinstance(built, Module):
            return program.modules.setdefault(flavour, built)
        if built.reason == REFUSED:
            raise SourceRefused(built.log)
        first = next((line for line in built.log.splitlines() if "error" in line), built.log)
        message = shortened(MACHINE_PATH.sub("", one_line(first)), LONGEST_MESSAGE)
        raise CannotCompile(
            f"the emulator cannot compile this source, which NVRTC accepts: {message}", built.log
        )

    def _execute(
        self, module: Module, runs: list[native.Run], patience: float = 1.0
    ) -> tuple[native.RunResult, ...]:
        return native.execute(
            self._prepared(),
            module,
            runs,
            workers=self._workers,
            deadline_s=self._run_deadline_s * patience,
            memory_bytes=MEMORY_BYTES + self._workers * WORKER_BYTES,
        )

    def _failure(self, problem: Problem, result: native.RunResult) -> Failure | None:
        """The candidate's failure in a run; None when it passed. Fault when it did not run."""
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
        used_mixes = mixes or estimated_mixes(problem, counters, SAMPLED_BLOCKS)
        note = (
            f"from {counters.blocks_executed} of {counters.blocks_total} blocks"
            if counters.blocks_executed < counters.blocks_total
            else "from all blocks"
        )
        if not mixes:
            note += ", the mix of instructions estimated"
        works = launch_works(problem, counters, cubin, used_mixes, SAMPLED_BLOCKS)
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
    """The failure of a problem whose workspaces are too large for the emulator; None: they fit."""
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
    """The findings of a checked run, and the faults that stopped it. Fault when it did not run."""
    if result.status == "not_run":
        raise Fault("a checked run did not start", code="emulator_not_run")
    findings = [
        SafetyFinding(
            finding.kind,
            finding.sentence,
            finding.where,
            finding.other_where,
            _source_line(source_lines, finding.where),
            _source_line(source_lines, finding.other_where),
            finding.block,
            finding.thread,
            finding.other_thread,
            finding.memory,
            finding.offset_bytes,
            finding.count,
        )
        for finding in result.findings
    ]
    reported = {finding.kind for finding in findings}
    findings += [
        SafetyFinding(
            fault.kind if fault.kind in FINDING_REASONS else "device_fault",
            fault.sentence,
            fault.where,
            None,
            _source_line(source_lines, fault.where),
            None,
            fault.block,
            fault.thread,
        )
        for fault in result.faults
        if fault.kind not in reported
    ]
    return tuple(findings)


def tolerated_of(
    result: native.RunResult, source_lines: Mapping[tuple[str, int], int]
) -> tuple[SafetyFinding, ...]:
    """Writes of one value by several threads, which reject nothing unless the caller is strict."""
    return tuple(
        SafetyFinding(
            "same_value_write",
            note.sentence,
            note.where,
            source_line=_source_line(source_lines, note.where),
            block=note.block,
            thread=note.thread,
        )
        for note in result.notes
        if note.kind == SAME_VALUE_WRITES
    )


def _source_line(
    source_lines: Mapping[tuple[str, int], int], where: tuple[str, int] | None
) -> int | None:
    return None if where is None else source_lines.get(where)


def line_costs_of(
    result: native.RunResult, source_lines: Mapping[tuple[str, int], int]
) -> tuple[LineCost, ...]:
    """Counters by line, those with the most transactions first.

    A transaction is a wavefront of shared memory or a sector of global memory.
    """
    lines = result.counters.per_line if result.counters else ()
    costs = [
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
    return tuple(
        sorted(costs, key=lambda cost: (-cost.transactions, cost.file, cost.line, cost.kind))
    )


def emulated_run(
    problem: Problem, order: str, name: str, *, count: bool = False, check: bool = False
) -> native.Run:
    """A problem as a run of the emulator. A counted run executes a sample of the blocks only."""
    buffers = [buffer for tensor in problem.tensors for buffer in tensor_buffers(tensor, check)]
    buffers += [
        native.Buffer(
            workspace.name,
            "workspace",
            np.zeros(workspace.bytes, np.uint8),
            "zero" if workspace.zero_fill else "poison",
        )
        for workspace in problem.workspaces
    ]
    copied = {
        argument.name
        for launch in problem.launches
        for argument in _read_only(problem, launch)
        if check
    }
    buffers += [
        replace(buffer, name=_copy(buffer.name), role="workspace", copy_of=buffer.name)
        for buffer in buffers
        if buffer.name in copied
    ]
    launches = tuple(
        native.Launch(
            launch.entry,
            launch.grid,
            launch.block,
            launch.smem_dynamic_bytes,
            launch.cluster,
            arguments=_arguments(problem, launch, check),
            sample=_executed(problem, launch, count),
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


def _executed(problem: Problem, launch: LaunchPlan, count: bool) -> tuple[int, ...]:
    """The clusters that run; empty: all."""
    if count:
        return sample_of(launch, SAMPLED_BLOCKS)
    return ends_of(launch) if problem.ends_only else ()


def _read_only(problem: Problem, launch: LaunchPlan) -> list[Tensor]:
    """The tensors that the launch reads through parameters that are `const` and `__restrict__`."""
    arguments = problem.arguments if launch.arguments is None else launch.arguments
    passed = [arguments[number] for number in launch.read_only]
    return [argument for argument in passed if isinstance(argument, Tensor)]


def _copy(name: str) -> str:
    return f"{name}.read-only"


def _arguments(problem: Problem, launch: LaunchPlan, check: bool) -> tuple[Argument, ...] | None:
    """The launch's arguments; None: the run's."""
    read_only = launch.read_only if check else ()
    if launch.arguments is None and not read_only:
        return None
    arguments = list(
        map(_argument, problem.arguments if launch.arguments is None else launch.arguments)
    )
    for number in read_only:
        argument = arguments[number]
        if isinstance(argument, native.PointerArgument):
            arguments[number] = replace(argument, buffer=_copy(argument.buffer))
    return tuple(arguments)


def _argument(argument: GivenArgument) -> Argument:
    match argument:
        case None:
            return native.NullArgument()
        case TensorMap():
            return native.TensorMapArgument(argument)
        case Scalar():
            return native.ScalarArgument(argument.dtype, argument.value)
        case Packed():
            return native.PackedArgument(argument.data, argument.pointers)
    return native.PointerArgument(argument.name, 0)
