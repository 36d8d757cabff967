"""What a recording holds: one heading, then one row a candidate, the baseline first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property

from greenfast.search.devices.facts import Device
from greenfast.search.digest import digest
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import Items, KernelSpec, Workload
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.verdict import CheckEvidence, PtxasEvidence


@dataclass(frozen=True)
class RecordedTemplate:
    """A template as it was: `text_digest` is of everything in its two files that means something."""

    name: str
    text_digest: str
    parameters: tuple[str, ...]  # the order of a row's values


@dataclass(frozen=True)
class Columns:
    """The order of evidence in a file's rows; a later greenfast knows more fields, with defaults."""

    ptxas: tuple[str, ...]
    check: tuple[str, ...]


COLUMNS = Columns(
    *(tuple(field.name for field in fields(kind)) for kind in (PtxasEvidence, CheckEvidence))
)


@dataclass(frozen=True)
class Protocol:
    """How candidates were checked and timed."""

    seed: int
    check_seeds: int  # of each derived check, at most
    max_spill_bytes: int | None  # None: candidates that spill were timed, too
    min_gain: float


@dataclass(frozen=True)
class Heading:
    """Everything that holds for all rows."""

    name: str
    kernel: str
    operation_digest: str  # of what is computed
    checks_digest: str  # of how it was checked
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
    timed: int = 0  # rows of right candidates with times
    columns: Columns = COLUMNS

    def recorded_template(self, name: str) -> RecordedTemplate:
        return next(template for template in self.templates if template.name == name)


@dataclass(frozen=True)
class Times:
    """One workload: microseconds a launch in order, two a block, of the candidate and of the baseline in turns."""

    samples: tuple[float, ...]
    baseline_samples: tuple[float, ...]  # empty for the baseline itself
    floor_us: float  # compulsory work at the architecture's peaks
    note: str  # mode, ring, graphs
    health: tuple[tuple[str, float], ...]  # clocks, watts, as far as NVML answered


@dataclass(frozen=True)
class Row:
    """One candidate. `stage` and `reason` say where it was rejected; both None: right, and faster than the baseline
    by the protocol's `min_gain` (or the baseline itself)."""

    number: int  # 0: the baseline
    template: str
    values: tuple[Value, ...]  # in the order of the template's parameters
    source_digest: str
    stage: str | None
    reason: str | None
    sentence: str  # why not; empty where the times say it
    ptxas: PtxasEvidence | None
    outputs_checked: int  # compared with the reference
    worst: CheckEvidence | None  # of the comparison that failed first, or fared worst
    times: tuple[Times, ...]  # one a workload, empty where it was not timed
    run: int = 0  # rows of one run were made by one process after the other


@dataclass(frozen=True)
class Recording:
    heading: Heading
    rows: tuple[Row, ...]
    sha256: str = ""  # of the file

    def parameters(self, row: Row) -> Items:
        return tuple(zip(self.heading.recorded_template(row.template).parameters, row.values))

    def candidate(self, row: Row) -> Candidate:
        return Candidate(
            self.heading.kernel, row.template, self.parameters(row), Origin(OriginKind.SEEDED)
        )

    def row_of(self, candidate: Candidate) -> Row | None:
        """The row of a candidate. Parameters that its template did not have then are left aside: a candidate that they
        make another one has another source."""
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
    """Rows by number, and a heading that counts them."""
    ordered = tuple(sorted(rows, key=lambda row: row.number))
    return Recording(
        replace(
            heading,
            complete=complete,
            candidates=len(ordered),
            timed=sum(bool(one.times) for one in ordered),
        ),
        ordered,
    )


def operation_digest(kernel: KernelSpec, workloads: tuple[Workload, ...]) -> str:
    """Names what is computed for these workloads: other workloads, templates and further allowed values come and go."""
    return digest(
        {
            "name": kernel.name,
            "options": [(option.name, option.default) for option in kernel.options],
            "dims": [(dim.name, dim.time, dim.default) for dim in kernel.dims],
            "arguments": kernel.arguments,
            "constants": kernel.constants,
            "work": (kernel.work_flop, kernel.work_bytes),
            "alignment": (kernel.pointer_bytes, kernel.stride_elements),
            "workloads": [
                (workload.name, workload.dims, workload.options) for workload in workloads
            ],
        }
    )


def checks_digest(kernel: KernelSpec) -> str:
    """Names the checks and the reference. When they are others today, a recording still says what was found then."""
    used = {"uses": kernel.reference_uses} if kernel.reference_uses else {}
    return digest({"checks": kernel.checks, "reference": kernel.reference_text, **used})


def plan_digest(heading: Heading) -> str:
    """Names a sweep: two journals with the same one belong together."""
    return digest(replace(heading, recorded_at="", complete=True, candidates=0, timed=0))
