"""The contents of a recording: one heading, then one row per candidate, the baseline first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property

from greenfast.search.devices.facts import Device
from greenfast.search.digest import digest
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.workloads import Items, Workload
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.verdict import CheckEvidence, PtxasEvidence


@dataclass(frozen=True)
class RecordedTemplate:
    """A template as it was recorded. `text_digest` covers what has an effect in its two files."""

    name: str
    text_digest: str
    parameters: tuple[str, ...]  # the order of a row's values


@dataclass(frozen=True)
class Columns:
    """The order of the evidence in a file's rows. Later versions add fields, with defaults."""

    ptxas: tuple[str, ...]
    check: tuple[str, ...]


UNRECORDED = ("notes",)  # the assembler's remarks, which no replay judges by
COLUMNS = Columns(
    *(
        tuple(field.name for field in fields(kind) if field.name not in UNRECORDED)
        for kind in (PtxasEvidence, CheckEvidence)
    )
)


@dataclass(frozen=True)
class Protocol:
    """The conditions under which candidates were checked and timed."""

    seed: int
    check_seeds: int  # at most, per derived check
    max_spill_bytes: int | None  # None: candidates that spill were timed as well
    min_gain: float


@dataclass(frozen=True)
class Heading:
    """The facts that hold for all rows."""

    name: str
    kernel: str
    operation_digest: str  # of the operation that is computed
    checks_digest: str  # of the checks and the reference
    workloads: tuple[Workload, ...]
    template: str  # whose space was swept
    lattice: tuple[tuple[str, tuple[Value, ...]], ...]  # the values of each parameter
    baseline: str  # template:preset, row 0
    templates: tuple[RecordedTemplate, ...]  # the swept one and the baseline's
    device: Device
    protocol: Protocol
    environment: tuple[tuple[str, str], ...]
    recorded_at: str  # the day, UTC
    complete: bool = True  # every valid point of the lattice has a row
    candidates: int = 0  # rows
    timed: int = 0  # rows of correct candidates, with times
    columns: Columns = COLUMNS

    def recorded_template(self, name: str) -> RecordedTemplate:
        return next(template for template in self.templates if template.name == name)


@dataclass(frozen=True)
class Times:
    """One workload: microseconds per launch, two samples a block, in turns with the baseline."""

    samples: tuple[float, ...]
    baseline_samples: tuple[float, ...]  # empty for the baseline itself
    floor_us: float  # the time of the compulsory work at the architecture's peaks
    note: str  # ring, graphs, other work on the GPU: for people
    health: tuple[tuple[str, float], ...]  # clocks, watts, as far as NVML reported them
    mode: str  # how a launch found the caches: "hot" | "cold"


@dataclass(frozen=True)
class Row:
    """One candidate.

    `stage` and `reason` tell where it was rejected. Both None: the candidate is correct and faster
    than the baseline by the protocol's `min_gain`, or it is the baseline.
    """

    number: int  # 0: the baseline
    template: str
    values: tuple[Value, ...]  # in the order of the template's parameters
    source_digest: str
    stage: str | None
    reason: str | None
    sentence: str  # why it was rejected; empty if the times show it
    ptxas: PtxasEvidence | None
    outputs_checked: int  # compared with the reference
    worst: CheckEvidence | None  # the comparison that failed first, or came closest to failing
    times: tuple[Times, ...]  # one per workload; empty: not timed
    run: int = 0  # of the sweep, which may be stopped and resumed: the run that measured the row


@dataclass(frozen=True)
class Recording:
    heading: Heading
    rows: tuple[Row, ...]
    sha256: str = ""  # of the file

    def parameters(self, row: Row) -> Items:
        return tuple(
            zip(self.heading.recorded_template(row.template).parameters, row.values, strict=True)
        )

    def candidate(self, row: Row) -> Candidate:
        return Candidate(
            self.heading.kernel, row.template, self.parameters(row), Origin(OriginKind.SEEDED)
        )

    def row_of(self, candidate: Candidate) -> Row | None:
        """The row of a candidate, None if it was not recorded.

        Parameters that its template did not have then are ignored: if they change the kernel, the
        digest of its source differs.
        """
        return self._by_point.get((candidate.template, self._recorded(candidate)))

    @cached_property
    def _by_point(self) -> dict[tuple[str, Items], Row]:
        return {(row.template, self.parameters(row)): row for row in self.rows}

    def _recorded(self, candidate: Candidate) -> Items:
        names = next(
            (
                template.parameters
                for template in self.heading.templates
                if template.name == candidate.template
            ),
            (),
        )
        values = candidate.values()
        return tuple((name, values[name]) for name in names if name in values)

    def workload_names(self) -> tuple[str, ...]:
        return tuple(workload.name for workload in self.heading.workloads)


def recording_of(heading: Heading, rows: Iterable[Row], *, complete: bool) -> Recording:
    """A recording with its rows sorted by number and counted in its heading."""
    ordered = tuple(sorted(rows, key=lambda row: row.number))
    return Recording(
        replace(
            heading,
            complete=complete,
            candidates=len(ordered),
            timed=sum(bool(row.times) for row in ordered),
        ),
        ordered,
    )


def operation_digest(kernel: KernelSpec, workloads: tuple[Workload, ...]) -> str:
    """Names the operation that is computed for these workloads.

    Other workloads, templates and allowed values may be added without changing it, and so may the
    condition under which a call leaves an input out: it is not read then.
    """
    return digest(
        {
            "name": kernel.name,
            "options": [(option.name, option.default) for option in kernel.options],
            "dims": [(dim.name, dim.time, dim.default) for dim in kernel.dims],
            "arguments": [replace(argument, read_when=None) for argument in kernel.arguments],
            "constants": kernel.constants,
            "work": (kernel.work_flop, kernel.work_bytes),
            "alignment": (kernel.pointer_bytes, kernel.stride_elements),
            "workloads": [
                (workload.name, workload.dims, workload.options) for workload in workloads
            ],
        }
    )


def checks_digest(kernel: KernelSpec) -> str:
    """Names the checks and the reference. They may change without making a recording invalid."""
    used = {"uses": kernel.reference_uses} if kernel.reference_uses else {}
    return digest({"checks": kernel.checks, "reference": kernel.reference_text, **used})


def plan_digest(heading: Heading) -> str:
    """Names a sweep: journals with the same digest belong together."""
    return digest(replace(heading, recorded_at="", complete=True, candidates=0, timed=0))
