"""`emulator:GPU`: the same CUDA source, compiled for this machine's CPU and executed.

Results are real, times are modelled (model.py). Runs differ in their schedule: forward, reverse or
seeded.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from greenfast.search.devices.facts import device
from greenfast.search.errors import Fault
from greenfast.search.oracle.problem import Problem
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
from greenfast.search.targets.emulator import compiler_process
from greenfast.search.targets.emulator import execute as native
from greenfast.search.targets.emulator.build import (
    REFUSED,
    EmulatorBuild,
    Module,
    ModuleFailed,
)
from greenfast.search.targets.emulator.compiler_process import COMPILER_MEMORY_BYTES
from greenfast.search.targets.emulator.evidence import (
    failure_of,
    findings_of,
    line_costs_of,
    modelled_timing,
    tolerated_of,
    unset_finding,
)
from greenfast.search.targets.emulator.examination import COMPILE_DEADLINE_S, refusal
from greenfast.search.targets.emulator.far_buffers import whole_outputs
from greenfast.search.targets.emulator.host_compiler import find_host_compiler
from greenfast.search.targets.emulator.host_run import HostRun, run_host_program
from greenfast.search.targets.emulator.model import BAND
from greenfast.search.targets.emulator.problem_run import emulated_run, no_room, with_heap
from greenfast.search.targets.emulator.source_rewriting import Refused
from greenfast.search.targets.emulator.undefined_lanes import (
    UNDEFINED,
    end_alike,
    only_undefined_lanes,
)
from greenfast.search.text import one_line, shortened
from greenfast.search.toolchain import Cubin
from greenfast.search.toolchain.cache_room import mark_used
from greenfast.search.toolchain.ptxas import EntryFigures
from greenfast.search.verdict import LineCost, SafetyFinding, Timing

CHECK_FLOP_LIMIT = 400e6  # about half a second on one core
FIRST_BATCH = 4  # most wrong candidates fail in the first runs
# The deadline of a checked run, in deadlines of a plain run: slow checks are not the candidate's.
CHECKED_PATIENCE = 4.0
MEMORY_BYTES = 4 * 2**30
WORKER_BYTES = 256 * 2**20  # of address space for the heap and stacks of each worker thread
LONGEST_MESSAGE = 300  # characters, of a compiler's
CALLS_IN_A_ROW = 4
# A source that may wait for another block in a loop of loads.
_WATCHED = re.compile(r"\bvolatile\b|\b__ldcv\b")
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:[^\s/:]+/)+")  # must not appear in messages
ORDERS = ("forward", "reverse", "seeded:1")


@dataclass(frozen=True)
class Program:
    """A candidate, and its libraries by flavour, each compiled on first use."""

    source: RenderedSource
    modules: dict[str, Module] = field(default_factory=dict)
    figures: tuple[EntryFigures, ...] = ()  # of the cubin; empty: it is not known

    @cached_property
    def source_lines(self) -> dict[tuple[str, int], int]:
        """For each line of the author's files, the first line of the source that it became."""
        numbers: dict[tuple[str, int], int] = {}
        for number, line in enumerate(self.source.lines, 1):
            numbers.setdefault((line.file, line.number), number)
        return numbers


class CannotCompile(Fault):
    """The emulator's compiler refuses a text; `log` holds its messages."""

    code = "emulator_unsupported"

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


def _why_not(built: ModuleFailed) -> str:
    """What kept the host's compiler from compiling a text, without places of this machine."""
    if built.reason == "timeout":
        return f"its compiler does not finish within {COMPILE_DEADLINE_S:g} s of processor time"
    first = next((line for line in built.log.splitlines() if "error" in line), "")
    if built.reason == "memory" and not first:
        return f"its compiler needs more than {COMPILER_MEMORY_BYTES >> 20} MiB"
    return shortened(MACHINE_PATH.sub("", one_line(first or built.log)), LONGEST_MESSAGE)


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
        self._settings = (which, cache_folder, include_dirs, workers, run_deadline_s)
        self._cache_folder, self._include_dirs, self._workers = cache_folder, include_dirs, workers
        self._run_deadline_s = run_deadline_s
        self._build: EmulatorBuild | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its settings: each process starts children of its own."""
        return EmulatorTarget, self._settings

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

    def host_program(
        self,
        text: str,
        include: Path,
        work: Path,
        rewrite: Callable[[str], str],
        words: Sequence[str] = (),
    ) -> HostRun | compiler_process.CompilerFailed:
        """Run a CUDA program's host code; what it writes is in the folder `work`."""
        return run_host_program(self._prepared(), text, include, work, rewrite, words)

    def _arch(self, source: RenderedSource) -> str:
        return self.device.compiled_arch(specific=source.arch_specific)

    def load(self, source: RenderedSource, cubin: Cubin | None) -> Program:
        return Program(source, figures=cubin.entries if cubin is not None else ())

    def execute(self, program: Program, problems: Sequence[Problem]) -> Iterator[Execution]:
        for problem, order, result in self._run_all(program, problems, "plain"):
            failure = (
                result if isinstance(result, Failure) else failure_of(result, self._run_deadline_s)
            )
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
            result = self._counted(program, problem)
            if isinstance(result, Failure):
                return result
            lines = program.source_lines
            timings.append(modelled_timing(self.device, problem, cubin, result, lines))
        return tuple(timings)

    def check(
        self, program: Program, problems: Sequence[Problem], *, is_called_once: bool = False
    ) -> Iterator[Checked]:
        clean: list[tuple[Problem, str, native.RunResult]] = []
        timed_out = False
        runs = self._run_all(program, problems, "checked")
        for number, (problem, order, result) in enumerate(runs):
            findings: tuple[SafetyFinding, ...]
            tolerated: tuple[SafetyFinding, ...] = ()
            outputs: Mapping[str, np.ndarray] = {}
            if isinstance(result, Failure):
                findings = (SafetyFinding(result.reason.value, result.sentence),)
            elif result.status == "not_run" and timed_out:
                return  # nothing is learnt from a second timeout
            else:
                findings = findings_of(result, program.source_lines)
                if only_undefined_lanes(findings) and not self._shows(program, problem, order):
                    findings = ()
                tolerated = tolerated_of(result, program.source_lines)
                timed_out |= result.status == "timeout"
                if not result.findings and result.status == "finished":
                    clean = [*clean, (problem, order, result)][:FIRST_BATCH]
                if result.status == "finished" and number < FIRST_BATCH:
                    outputs = whole_outputs(problem, result.outputs)
            yield Checked(problem, order, findings, tolerated, outputs)
        yield from self._unset(program, clean)
        if not is_called_once:
            yield from self._in_a_row(program, clean)

    def _unset(
        self, program: Program, clean: Sequence[tuple[Problem, str, native.RunResult]]
    ) -> Iterator[Checked]:
        """The first of the runs whose outputs depend on a variable that is not set."""
        module = self._module(program, "checked") if clean else None
        if module is None:
            return
        runs = [
            self._run(program, problem, order, str(number), check=True)
            for number, (problem, order, _) in enumerate(clean)
        ]
        places = module.unset_places
        at = self._first_unset(module, runs, [result for _, _, result in clean])
        if at is None and module.folded_places is not None:
            places = module.folded_places
            with suppress(CannotCompile, SourceRefused):  # these flags are no fault of the text
                at = self._first_unset(self._module(program, "checked", keeps_paths=True), runs)
        if at is not None:
            problem, order, _ = clean[at]
            finding = unset_finding(places, program.source_lines)
            yield Checked(problem, order, (finding,), ())

    def _first_unset(
        self,
        module: Module,
        runs: list[native.Run],
        known: Sequence[native.RunResult] | None = None,
    ) -> int | None:
        """The first of the runs that ends otherwise with another number in unset variables.

        `known`: the results with the library as it is, if they are known.
        """
        other = module.with_other_number
        if other is None:
            return None
        # With two workers, atomics of two blocks may come in another order each time.
        execute = partial(self._execute, patience=CHECKED_PATIENCE, workers=1)
        results = execute(module, runs) if known is None else known
        others = execute(other, runs)
        # Elsewhere a library may prove to have no such number: then there are no results.
        for at, (result, changed) in enumerate(zip(results, others, strict=False)):
            if changed.status in ("not_run", "timeout") or end_alike((result, changed)):
                continue
            own, again = (execute(module, [runs[at]])[0] for _ in range(2))
            differs_by_itself = not end_alike((own, again))
            if not differs_by_itself and not end_alike((own, changed)):
                return at
        return None

    def _in_a_row(
        self, program: Program, clean: Sequence[tuple[Problem, str, native.RunResult]]
    ) -> Iterator[Checked]:
        """A run that keeps something in `__device__` memory, with its launches in a row."""
        for problem, order, result in reversed(clean):
            # A zeroed workspace is zeroed before each call.
            if not result.keeps_state or any(each.zero_fill for each in problem.workspaces):
                continue
            run = self._run(program, problem, order, "row", check=True)
            row = replace(run, launches=run.launches * CALLS_IN_A_ROW)
            (repeated,) = self._execute(
                self._module(program, "checked"), [row], CHECKED_PATIENCE * CALLS_IN_A_ROW
            )
            findings = findings_of(repeated, program.source_lines)
            if findings and not only_undefined_lanes(findings):
                where = f"in one of {CALLS_IN_A_ROW} calls in a row, "
                named = (replace(each, sentence=where + each.sentence) for each in findings)
                yield Checked(problem, order, tuple(named), ())
            return

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
                self._run(program, problem, order, str(number), check=flavour == "checked")
                for number, (problem, order) in enumerate(zip(batch, orders, strict=True))
                if no_room(problem) is None
            ]
            results = iter(self._execute(self._module(program, flavour), runs, patience))
            for problem, order in zip(batch, orders, strict=True):
                yield problem, order, no_room(problem) or next(results)

    def _shows(self, program: Program, problem: Problem, order: str) -> bool:
        """Whether a checked run's end depends on values of lanes that take no part in a shuffle."""
        run = self._run(program, problem, order, "undefined", check=True)
        runs = [replace(run, undefined=value) for value in UNDEFINED.values()]
        results = self._execute(self._module(program, "checked"), runs, CHECKED_PATIENCE)
        return not end_alike(results)

    def line_costs(self, program: Program, problem: Problem) -> tuple[LineCost, ...] | Failure:
        result = self._counted(program, problem)
        if isinstance(result, Failure):
            return result
        return line_costs_of(result, program.source_lines)

    def identity(self) -> tuple[tuple[str, str], ...]:
        return (
            ("target", self.name),
            ("host_compiler", self._prepared().compiler.version),
            ("model_band", f"{BAND:g}"),
        )

    def interrupt(self) -> None:
        native.interrupt()
        compiler_process.interrupt()

    def _run(
        self,
        program: Program,
        problem: Problem,
        order: str,
        name: str,
        *,
        count: bool = False,
        check: bool = False,
    ) -> native.Run:
        return emulated_run(
            problem,
            order,
            name,
            device=self.device,
            figures=program.figures,
            count=count,
            check=check,
        )

    def _counted(self, program: Program, problem: Problem) -> native.RunResult | Failure:
        """A finished run on a sample of the blocks, with counters."""
        if (failure := no_room(problem)) is not None:
            return failure
        run = self._run(program, problem, "forward", "counted", count=True)
        result = self._execute(self._module(program, "counted"), [run])[0]
        return failure_of(result, self._run_deadline_s) or result

    def _module(self, program: Program, flavour: str, *, keeps_paths: bool = False) -> Module:
        if flavour == "plain" and _WATCHED.search(program.source.unit):
            flavour = "counted"  # its loads call the runtime, so a thread that waits gives way
        key = f"{flavour}, keeps paths" if keeps_paths else flavour
        if (kept := program.modules.get(key)) is not None and mark_used(kept.path):
            return kept
        source = program.source
        self.examine(source)
        built = self._prepared().build_module(
            source.unit,
            source.entries,
            flavour=flavour,
            deadline_s=COMPILE_DEADLINE_S,
            arch=self._arch(source),
            keeps_paths=keeps_paths,
        )
        if isinstance(built, Module):
            program.modules[key] = built
            return built
        if built.reason == REFUSED:
            raise SourceRefused(built.log)
        self._refuse_taken_name(source)
        raise CannotCompile(
            f"the emulator cannot compile this source, which NVRTC accepts: {_why_not(built)}",
            built.log,
        )

    def _refuse_taken_name(self, source: RenderedSource) -> None:
        """Raise SourceRefused where even an empty kernel of an entry's name does not compile."""
        for entry in source.entries:
            built = self._prepared().build_module(
                f'extern "C" __global__ void {entry}(const short* const*, char) {{}}\n',
                (entry,),
                flavour="plain",
                deadline_s=COMPILE_DEADLINE_S,
                arch=self._arch(source),
            )
            if not isinstance(built, Module):
                raise SourceRefused(
                    f"the kernel {entry} has the name of a function of CUDA or of C's library; "
                    "give it another name"
                )

    def _execute(
        self,
        module: Module,
        runs: list[native.Run],
        patience: float = 1.0,
        workers: int | None = None,
    ) -> tuple[native.RunResult, ...]:
        workers = self._workers if workers is None else workers
        if module.uses_heap:
            runs = list(map(with_heap, runs))
        return native.execute(
            self._prepared(),
            module,
            runs,
            workers=workers,
            deadline_s=self._run_deadline_s * patience,
            memory_bytes=MEMORY_BYTES + workers * WORKER_BYTES,
        )
