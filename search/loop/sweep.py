"""A sweep over a lattice on a target that measures.

It compiles ahead, checks each candidate once, and times it in turns with the baseline.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

from greenfast.search.digest import digest
from greenfast.search.errors import Fault, SpecError, UsageError
from greenfast.search.gates import Baseline, GateLimits
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.performance import PerformanceGate
from greenfast.search.gates.ptxas import PtxasGate
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.workloads import Items, Workload
from greenfast.search.loop.evaluate import EvaluationContext, prepare
from greenfast.search.loop.sweep_journal import Journal, journal_path
from greenfast.search.recordings.contents import (
    Heading,
    Protocol,
    RecordedTemplate,
    Recording,
    Row,
    Times,
    checks_digest,
    operation_digest,
    recording_of,
)
from greenfast.search.recordings.file import as_kept, rounded, write
from greenfast.search.recordings.lattice import Lattice, lattice_points
from greenfast.search.recordings.rules import recorded_acceptance
from greenfast.search.render import RenderedSource
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, preset_candidate
from greenfast.search.space.space import Space
from greenfast.search.targets.base import Target
from greenfast.search.toolchain import Toolchain
from greenfast.search.verdict import (
    DEVICE_INDEX,
    CheckEvidence,
    CorrectnessEvidence,
    Failed,
    GateResult,
    PerformanceEvidence,
    PtxasEvidence,
    Rejected,
    TimeKind,
    Timing,
    evidence_of,
)

# Safety is not replayed: the emulator checks it.
GATES = (PtxasGate(), CorrectnessGate(), PerformanceGate())
# The timing details that the row's note repeats; the others are health.
PROTOCOL_DETAIL = ("sets", "nodes", DEVICE_INDEX)
FAULT_TRIES = 3
FAULTS_IN_A_ROW = 5


@dataclass(frozen=True)
class SweepOrder:
    """A requested sweep, with its names resolved."""

    name: str
    kernel: KernelSpec
    workloads: tuple[Workload, ...]
    template: str
    lattice: Lattice
    baseline: str  # template:preset
    seed: int = 0
    check_seeds: int = 1
    max_spill_bytes: int | None = 0
    min_gain: float = 0.01


@dataclass(frozen=True)
class Progress:
    done: int
    total: int
    timed: int
    per_second: float  # of this run
    seconds_left: float | None


@dataclass(frozen=True)
class Sweeping:
    """The result of a sweep."""

    recording: Recording | None  # None: not complete; the same order continues the journal
    done: int
    total: int
    faults: tuple[str, ...] = ()


class Sweep:
    """One sweep order on one target.

    `run` may be called again after it was stopped, and repeats no row.
    """

    def __init__(
        self,
        order: SweepOrder,
        target: Target,
        toolchain: Toolchain,
        include_dirs: tuple[Path, ...],
        greenfast: str,
    ) -> None:
        if not target.measures:
            raise UsageError(
                f"{target.name} does not measure times, so there is nothing to record",
                code="nothing_to_record",
                mend="use cuda:0",
            )
        self.order, self.target, self.stopping = order, target, threading.Event()
        compiled = order.workloads[0].compile_time(order.kernel)
        few = tuple(
            replace(check, seeds=min(check.seeds, order.check_seeds))
            for check in order.kernel.checks
        )
        self._baseline = _baseline_of(order, compiled)
        limits = GateLimits(max_spill_bytes=order.max_spill_bytes)
        self._context = EvaluationContext(
            replace(order.kernel, checks=few),
            compiled,
            order.workloads,
            target,
            toolchain,
            include_dirs,
            limits,
            order.seed,
            stop=self.stopping,
            baseline=self._baseline,
            min_gain=order.min_gain,
        )
        space = Space(order.kernel.template(order.template), compiled, target.device)
        self.points = lattice_points(space, order.lattice)
        self._greenfast = greenfast
        self._compared_with: Baseline | None = None

    @property
    def total(self) -> int:
        return 1 + sum(1 for _ in self._others())

    def heading(self) -> Heading:
        """Needs the target prepared: it names the device and the driver."""
        order, kernel = self.order, self.order.kernel
        used = [
            kernel.template(name)
            for name in dict.fromkeys((order.template, self._baseline.template))
        ]
        environment = {
            **dict(self._context.toolchain.identity),
            **dict(self.target.identity()),
            "greenfast": self._greenfast,
        }
        return Heading(
            name=order.name,
            kernel=kernel.name,
            operation_digest=operation_digest(kernel, order.workloads),
            checks_digest=checks_digest(kernel),
            workloads=order.workloads,
            template=order.template,
            lattice=order.lattice,
            baseline=order.baseline,
            templates=tuple(
                RecordedTemplate(
                    template.name,
                    digest(template),
                    tuple(parameter.name for parameter in template.parameters),
                )
                for template in used
            ),
            device=self.target.device,
            protocol=Protocol(order.seed, order.check_seeds, order.max_spill_bytes, order.min_gain),
            environment=tuple(sorted(environment.items())),
            recorded_at=time.strftime("%Y-%m-%d", time.gmtime()),
        )

    def run(
        self,
        out: Path,
        width: int,
        seconds: float | None = None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
    ) -> Sweeping:
        """Measure what the journal beside `out` lacks, then write `out`."""
        if out.exists():
            raise UsageError(
                f"{out} already exists",
                code="output_exists",
                mend="choose another file with --out",
            )
        self.stopping.clear()
        self.target.prepare()
        journal = Journal(journal_path(out), self.heading())
        try:
            faults = self._measure(journal, width, seconds, on_progress)
        except BaseException:
            journal.close()
            raise
        if len(journal.rows) < self.total:
            journal.close()
            return Sweeping(None, len(journal.rows), self.total, faults)
        recording = recording_of(self.heading(), journal.rows, complete=True)
        write(out, recording)
        journal.remove()
        return Sweeping(recording, len(journal.rows), self.total, faults)

    def _others(self) -> Iterator[Candidate]:
        """The lattice's candidates in order, without the baseline, which may be one of them."""
        for point in self.points:
            candidate = Candidate(
                self.order.kernel.name, self.order.template, point, Origin(OriginKind.SEEDED)
            )
            if candidate.digest != self._baseline.digest:
                yield candidate

    def _measure(
        self,
        journal: Journal,
        width: int,
        seconds: float | None,
        on_progress: Callable[[Progress], None],
    ) -> tuple[str, ...]:
        done = {row.number for row in journal.rows}
        self._establish_baseline(journal, 0 in done)
        others = enumerate(self._others(), 1)
        todo = ((number, candidate) for number, candidate in others if number not in done)
        begin, before = time.monotonic(), len(journal.rows)
        flights: dict[Future[Row], int] = {}
        faults: list[str] = []
        in_a_row = 0
        with ThreadPoolExecutor(width, thread_name_prefix="record") as pool:
            try:
                while True:
                    late = seconds is not None and time.monotonic() - begin > seconds
                    while (
                        len(flights) < 2 * width
                        and not late
                        and (entry := next(todo, None)) is not None
                    ):
                        flights[pool.submit(self._row, *entry, journal.run)] = entry[0]
                    if not flights:
                        return tuple(faults)
                    for future in wait(flights, return_when=FIRST_COMPLETED).done:
                        number = flights.pop(future)
                        try:
                            journal.add(future.result())
                            in_a_row = 0
                        except (Fault, SpecError) as fault:
                            faults.append(f"candidate {number}: {fault}")
                            in_a_row += 1
                            if in_a_row >= FAULTS_IN_A_ROW:
                                raise
                    on_progress(self._progress(journal, before, begin))
            finally:
                if flights:  # interrupted or broken: their results are no longer needed
                    self.stopping.set()
                    pool.shutdown(wait=False, cancel_futures=True)
                    self._context.toolchain.interrupt()
                    self.target.interrupt()

    def _progress(self, journal: Journal, before: int, begin: float) -> Progress:
        elapsed, done = time.monotonic() - begin, len(journal.rows)
        rate = (done - before) / elapsed if elapsed > 0 else 0.0
        return Progress(
            done,
            self.total,
            sum(bool(row.times) for row in journal.rows),
            rate,
            (self.total - done) / rate if rate else None,
        )

    def _establish_baseline(self, journal: Journal, known: bool) -> None:
        """Check and time the baseline in this process, too: the others are timed beside it.

        Its row stays that of the first process.
        """
        row, results = self._judged(0, self._baseline, journal.run, None)
        if row.stage is not None:
            raise UsageError(
                f"the baseline {self.order.baseline} is not correct here: "
                f"{row.stage}: {row.sentence}",
                code="baseline_rejected",
                mend="choose another with --baseline",
            )
        evidence = results[-1].evidence
        assert isinstance(evidence, PerformanceEvidence), "a correct baseline has times"
        # Compiled here once, before threads need it.
        self._compared_with = Baseline(evidence.timings, self._context.prepared_baseline)
        if not known:
            journal.add(row)

    def _row(self, number: int, candidate: Candidate, run: int) -> Row:
        for attempt in range(FAULT_TRIES):
            try:
                return self._judged(number, candidate, run, self._compared_with)[0]
            except Fault:
                if attempt == FAULT_TRIES - 1 or self.stopping.is_set():
                    raise
        raise AssertionError

    def _judged(
        self, number: int, candidate: Candidate, run: int, baseline: Baseline | None
    ) -> tuple[Row, list[GateResult]]:
        """Take the candidate through the gates; Fault for our own failures."""
        context = self._context
        values = tuple(value for _, value in candidate.parameters)
        source = context.render(candidate)
        if not isinstance(source, RenderedSource):
            raise SpecError(
                f"template {candidate.template} does not render: {source.message}",
                code="render_error",
            )
        subject = prepare(candidate, context, source)
        if isinstance(subject, Rejected):
            row = Row(
                number,
                candidate.template,
                values,
                source.digest,
                subject.stage.value,
                subject.reason.value,
                subject.sentence,
                None,
                0,
                None,
                (),
                run,
            )
            return row, []
        results: list[GateResult] = []
        for gate in GATES:
            results.append(gate.judge(subject, baseline))
            if isinstance(results[-1], Failed):
                break
        return _row_of(number, candidate, source.digest, results, self.order.min_gain, run), results


def _baseline_of(order: SweepOrder, compiled: Items) -> Candidate:
    template, preset = order.kernel.preset(order.baseline)
    for workload in order.workloads:
        template.check_supports(workload)
    return preset_candidate(template, preset.name, compiled)


def _row_of(
    number: int,
    candidate: Candidate,
    source_digest: str,
    results: list[GateResult],
    min_gain: float,
    run: int,
) -> Row:
    """Gate results as a row. A timed one's verdict comes from the samples as they are stored."""
    last = results[-1]
    ptxas = evidence_of(results, PtxasEvidence)
    correctness = evidence_of(results, CorrectnessEvidence)
    checks = correctness.checks if correctness is not None else ()
    times = _times(last.evidence.timings) if isinstance(last.evidence, PerformanceEvidence) else ()
    values = tuple(value for _, value in candidate.parameters)
    reason = last.reason if isinstance(last, Failed) else None
    if times:  # the stored samples decide, as they will for every reader
        reason = recorded_acceptance(times, min_gain).reason
    worst = _worst(checks)
    return Row(
        number,
        candidate.template,
        values,
        source_digest,
        last.gate if reason else None,
        reason.value if reason else None,
        last.sentence if reason and not times else "",
        ptxas,
        len(checks),
        worst and as_kept(worst),
        times,
        run,
    )


def _worst(checks: tuple[CheckEvidence, ...]) -> CheckEvidence | None:
    """The check that failed first, else the one that used the largest share of its allowance.

    Checks without an allowance are ranked by their error.
    """
    failed = next((check for check in checks if not check.passed), None)
    if failed is not None or not checks:
        return failed
    return max(
        checks,
        key=lambda check: (
            (check.frobenius_error or 0.0) / check.frobenius_allowed
            if check.frobenius_allowed
            else 0.0,
            check.max_abs_error or 0.0,
        ),
    )


def _times(timings: Sequence[Timing]) -> tuple[Times, ...]:
    assert all(timing.time_kind is TimeKind.MEASURED for timing in timings)
    rows = []
    for timing in timings:
        detail = dict(timing.detail)
        floor = detail.pop("floor_us", 0.0)
        rows.append(
            Times(
                tuple(map(rounded, timing.samples)),
                tuple(map(rounded, timing.baseline_samples)),
                floor,
                timing.note,
                tuple(
                    (name, value) for name, value in detail.items() if name not in PROTOCOL_DETAIL
                ),
                timing.mode,
            )
        )
    return tuple(rows)
