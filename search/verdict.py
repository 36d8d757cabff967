"""The judgement of a candidate: evidence, gate results, and one of four verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Generic, TypeVar


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    UNAVAILABLE = "unavailable"  # cannot be judged here; says why
    SKIPPED = "skipped"  # not reached, or not asked for


class Stage(StrEnum):
    RENDER = "render"
    COMPILE = "compile"
    PTXAS = "ptxas"
    CORRECTNESS = "correctness"
    PERFORMANCE = "performance"
    SAFETY = "safety"


class Reason(StrEnum):
    """Why a candidate was rejected: one list for code, API, pages and docs."""

    RENDER_ERROR = "render_error"
    COMPILE_ERROR = "compile_error"
    COMPILE_TIMEOUT = "compile_timeout"
    COMPILE_MEMORY = "compile_memory"
    COMPILE_CRASH = "compile_crash"
    OVER_DEVICE_LIMIT = "over_device_limit"
    SPILLS = "spills"
    OVER_REQUEST_LIMIT = "over_request_limit"
    WRONG_VALUES = "wrong_values"
    NOT_FINITE = "not_finite"
    UNWRITTEN = "unwritten"
    OUT_OF_BOUNDS = "out_of_bounds"
    INPUT_CHANGED = "input_changed"
    LAUNCH_ERROR = "launch_error"
    DEVICE_FAULT = "device_fault"
    MISALIGNED = "misaligned"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    SLOWER = "slower"
    SAME = "same"
    AMBIGUOUS = "ambiguous"
    TOO_NOISY = "too_noisy"
    IMPLAUSIBLE = "implausible"
    RACE = "race"
    UNINITIALISED = "uninitialised"
    IN_FLIGHT_READ = "in_flight_read"
    DEADLOCK = "deadlock"
    DIVERGENCE = "divergence"


# Rejections of a correct candidate by its time alone.
COMPARED = (Reason.SLOWER, Reason.SAME, Reason.AMBIGUOUS, Reason.TOO_NOISY)


class TimeKind(StrEnum):
    MEASURED = "measured"
    MODELLED = "modelled"
    REPLAYED = "replayed"


@dataclass(frozen=True)
class AssemblerNote:
    """A remark of the assembler on asynchronous products or register budgets: why a correct
    kernel is slow. It rejects nothing."""

    name: str  # wgmma_serialised, wgmma_wait_injected, wgmma_arrive_injected, setmaxnreg_ignored
    code: str  # the assembler's: C7511
    entry: str  # the function it is about; "" when the assembler does not tell
    sentence: str
    count: int = 1


@dataclass(frozen=True)
class PtxasEvidence:
    """The assembler's figures for a cubin, and the occupancy of one SM that follows from them."""

    registers: int  # a thread, the largest entry
    spill_bytes: int  # stores and loads
    stack_bytes: int
    smem_static_bytes: int
    smem_dynamic_bytes: int
    threads_per_block: int
    blocks_per_sm: int
    occupancy: float  # resident threads / the SM's threads
    limited_by: str  # "registers" | "shared memory" | "threads" | "blocks"
    notes: tuple[AssemblerNote, ...] = ()
    machine_code: str = ""  # a digest of what the GPU executes; empty: not recorded


@dataclass(frozen=True)
class CheckEvidence:
    """One run compared with the reference; errors are absolute, of the output that fares worst."""

    workload: str  # the check's or workload's name
    shape: str  # "B=1 H=2 S_q=33 ..."
    inputs: str
    layout: str
    seed: int
    order: str  # the schedule it ran under
    output: str
    passed: bool
    max_abs_error: float | None  # None when a value is not finite, or nothing came out
    mean_abs_error: float | None
    share_out_of_bound: float
    sign_bias: float | None  # mean signed error / mean absolute error: systematic when near +-1
    frobenius_error: float | None  # relative
    frobenius_allowed: float | None
    worst_index: tuple[int, ...]
    worst_value: str
    worst_expected: str
    output_digest: str
    sentence: str  # empty when passed
    input_digest: str = ""  # of a run whose results a parameter promises to leave the same


@dataclass(frozen=True)
class CorrectnessEvidence:
    checks: tuple[CheckEvidence, ...]
    # Obviously wrong outputs that the kernel's test would have accepted, too: a sentence for each.
    weak_tests: tuple[str, ...] = ()

    @property
    def max_abs_error(self) -> float | None:
        errors = [check.max_abs_error for check in self.checks if check.max_abs_error is not None]
        return max(errors, default=None)


@dataclass(frozen=True)
class LineCost:
    """The memory traffic of one line of a template, counted in a sample of blocks.

    Source of the terms: CUDA C++ Best Practices Guide, coalesced access (sectors of 32 bytes),
    shared-memory banks.
    """

    file: str  # as the author knows it: attention/wmma.cu.j2
    line: int
    source_line: int | None  # the first line of the source's text that came from it
    kind: str  # "shared_read" | "shared_write" | "global_read" | "global_write"
    instructions: int  # warp-wide
    total_bytes: int
    wavefronts: int  # of shared memory
    wavefronts_ideal: int  # without bank conflicts
    sectors: int  # of 32 bytes of global memory
    sectors_ideal: int  # that the bytes need at least

    @property
    def is_shared(self) -> bool:
        return self.kind.startswith("shared")

    @property
    def transactions(self) -> int:
        """Wavefronts or sectors: what the line costs."""
        return self.wavefronts if self.is_shared else self.sectors

    @property
    def factor(self) -> float:
        """Wavefronts or sectors over the ideal; 1.0: no bank conflicts, fully coalesced."""
        ideal = self.wavefronts_ideal if self.is_shared else self.sectors_ideal
        return self.transactions / ideal if ideal else 1.0


DEVICE_INDEX = "device_index"  # in a timing's detail: the number of the GPU that measured it


@dataclass(frozen=True)
class Timing:
    """One workload's time on a target."""

    workload: str
    time_median_us: float
    time_kind: TimeKind
    limited_by: str  # the resource that takes the time, if known
    detail: tuple[tuple[str, float], ...] = ()
    note: str = ""
    lines: tuple[LineCost, ...] = ()  # where the target counts by line
    samples: tuple[float, ...] = ()  # measured, us, in order: two a block
    baseline_samples: tuple[float, ...] = ()  # of the baseline, timed in turns with it
    limits: tuple[
        tuple[str, float], ...
    ] = ()  # modelled us that each resource alone would take, the longest first
    mix: tuple[tuple[str, float], ...] = ()  # counted warp instructions of all launches, by class
    mode: str = ""  # how a measured time found the caches: "hot" | "cold"
    weight: float = 1.0  # of the workload, in means over several

    @property
    def bound_us(self) -> float:
        """The least time that its workload can take on the device; 0: not known."""
        return dict(self.detail).get("floor_us", 0.0)

    @property
    def device_index(self) -> int | None:
        """The number of the GPU that measured it; None if no GPU did, or it was not stored."""
        number = dict(self.detail).get(DEVICE_INDEX)
        return None if number is None else int(number)

    @property
    def is_below_bound(self) -> bool:
        """No device of this kind can reach this time."""
        return self.time_median_us < self.bound_us


@dataclass(frozen=True)
class PerformanceEvidence:
    timings: tuple[Timing, ...]
    ratio_to_baseline: (
        float | None
    )  # geometric mean over workloads of time / baseline's time; below 1 is faster
    band: float  # a factor: times closer than this are not told apart
    ratio_interval: tuple[float, float] | None = None  # of a measured ratio, from its blocks

    @property
    def mode(self) -> str:
        """The state of the caches: "hot", "cold", or of several workloads "hot and cold"."""
        return " and ".join(
            sorted({timing.mode for timing in self.timings if timing.mode}, reverse=True)
        )

    @property
    def is_ranked(self) -> bool:
        """Whether the times order candidates.

        A modelled time below its bound does not: it is a fault of the model. Its limits and
        instruction counts are kept, since they show where the model is wrong.
        """
        return not any(
            timing.time_kind is TimeKind.MODELLED and timing.is_below_bound
            for timing in self.timings
        )


FINDING_REASONS = {
    "race": Reason.RACE,
    "uninitialised": Reason.UNINITIALISED,
    "out_of_bounds": Reason.OUT_OF_BOUNDS,
    "in_flight_read": Reason.IN_FLIGHT_READ,
    "unwaited_copy": Reason.IN_FLIGHT_READ,
    "divergence": Reason.DIVERGENCE,
    "undefined_shuffle": Reason.DIVERGENCE,
    "misaligned": Reason.MISALIGNED,
    "deadlock": Reason.DEADLOCK,
    "timeout": Reason.TIMEOUT,
    "input_changed": Reason.INPUT_CHANGED,
    "out_of_memory": Reason.OUT_OF_MEMORY,
    "device_fault": Reason.DEVICE_FAULT,
    "wrong_values": Reason.WRONG_VALUES,
    "undefined_operation": Reason.WRONG_VALUES,
    "same_value_write": Reason.RACE,
    "order_dependent": Reason.WRONG_VALUES,
    "read_only_path": Reason.RACE,
    "carried_state": Reason.UNINITIALISED,
    "unset_variable": Reason.UNINITIALISED,
}


@dataclass(frozen=True)
class SafetyFinding:
    """One defect that a run of the candidate showed, whether or not its results were correct.

    `where` and `other_where` are the lines of both accesses in the author's file.
    """

    kind: str  # a key of FINDING_REASONS
    sentence: str
    where: tuple[str, int] | None = None
    other_where: tuple[str, int] | None = None
    source_line: int | None = None  # the same two, as lines of the source's text
    other_source_line: int | None = None
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    other_thread: tuple[int, int, int] | None = None
    memory: str = ""  # "shared", "global:q"
    offset_bytes: int = 0
    count: int = 1  # how often in that run

    @property
    def reason(self) -> Reason:
        return FINDING_REASONS.get(self.kind, Reason.DEVICE_FAULT)


@dataclass(frozen=True)
class SafetyRun:
    """One run under the checks."""

    workload: str
    shape: str
    order: str
    findings: int


@dataclass(frozen=True)
class SafetyEvidence:
    reports: tuple[str, ...] = ()  # stored by versions that had no findings
    findings: tuple[SafetyFinding, ...] = ()
    runs: tuple[SafetyRun, ...] = ()
    looked_for: tuple[str, ...] = ()


Evidence = PtxasEvidence | CorrectnessEvidence | PerformanceEvidence | SafetyEvidence
EVIDENCE: Mapping[str, type[Evidence]] = {
    Stage.PTXAS: PtxasEvidence,
    Stage.CORRECTNESS: CorrectnessEvidence,
    Stage.PERFORMANCE: PerformanceEvidence,
    Stage.SAFETY: SafetyEvidence,
}  # in the order of the gates
E = TypeVar("E", bound=Evidence, covariant=True)
AnyEvidence = TypeVar("AnyEvidence", bound=Evidence)


@dataclass(frozen=True)
class Passed(Generic[E]):
    """The gate found nothing wrong."""

    outcome: ClassVar[Outcome] = Outcome.PASSED

    gate: str
    sentence: str
    evidence: E | None = None

    def __post_init__(self) -> None:
        _require_own_evidence(self.gate, self.evidence)


@dataclass(frozen=True)
class Failed(Generic[E]):
    """The candidate's fault."""

    outcome: ClassVar[Outcome] = Outcome.FAILED

    gate: str
    sentence: str
    reason: Reason
    evidence: E | None = None

    def __post_init__(self) -> None:
        _require_own_evidence(self.gate, self.evidence)


@dataclass(frozen=True)
class Unavailable(Generic[E]):
    """The gate cannot judge here, for the reason in the sentence."""

    outcome: ClassVar[Outcome] = Outcome.UNAVAILABLE

    gate: str
    sentence: str
    evidence: E | None = None

    def __post_init__(self) -> None:
        _require_own_evidence(self.gate, self.evidence)


@dataclass(frozen=True)
class Skipped:
    """The gate was not reached, or deliberately left out."""

    outcome: ClassVar[Outcome] = Outcome.SKIPPED
    evidence: ClassVar[None] = None

    gate: str
    sentence: str


GateResult = Passed[Evidence] | Failed[Evidence] | Unavailable[Evidence] | Skipped


def _require_own_evidence(gate: str, evidence: Evidence | None) -> None:
    if evidence is not None and not isinstance(evidence, EVIDENCE.get(gate, ())):
        raise ValueError(f"a {type(evidence).__name__} is not evidence of gate {gate}")


@dataclass(frozen=True)
class Accepted:
    """Correct, safe, and measured faster than the baseline."""

    gates: tuple[GateResult, ...]


@dataclass(frozen=True)
class Green:
    """Correct and safe as far as this target can tell, but not shown to be faster here."""

    gates: tuple[GateResult, ...]


@dataclass(frozen=True)
class Rejected:
    """The candidate's fault, with the evidence up to the stage that rejected it."""

    stage: Stage
    reason: Reason
    sentence: str
    gates: tuple[GateResult, ...] = ()
    log: str = ""  # hostile text: a compiler's log quotes the candidate


@dataclass(frozen=True)
class Faulted:
    """A fault of greenfast or the machine: retried, then reported, and hidden from strategies."""

    stage: Stage
    code: str
    message: str
    gates: tuple[GateResult, ...] = ()


Verdict = Accepted | Green | Rejected | Faulted


class VerdictName(StrEnum):
    """The verdicts by name: one list for code, API, pages and docs."""

    ACCEPTED = "accepted"
    GREEN = "green"
    REJECTED = "rejected"
    FAULTED = "faulted"


CORRECT = (VerdictName.ACCEPTED, VerdictName.GREEN)


def verdict_name(verdict: Verdict) -> VerdictName:
    match verdict:
        case Accepted():
            return VerdictName.ACCEPTED
        case Green():
            return VerdictName.GREEN
        case Rejected():
            return VerdictName.REJECTED
        case Faulted():
            return VerdictName.FAULTED


def gate_result(verdict: Verdict, gate: str) -> GateResult | None:
    return next((result for result in verdict.gates if result.gate == gate), None)


def evidence_of(results: Iterable[GateResult], kind: type[AnyEvidence]) -> AnyEvidence | None:
    """The evidence of one type, and so of one gate; None if that gate left none."""
    return next((result.evidence for result in results if isinstance(result.evidence, kind)), None)


def weak_tests_of(verdict: Verdict) -> tuple[str, ...]:
    """Wrong outputs that the kernel's test accepts, from a correct candidate's evidence."""
    result = gate_result(verdict, Stage.CORRECTNESS)
    evidence = result.evidence if result is not None else None
    return evidence.weak_tests if isinstance(evidence, CorrectnessEvidence) else ()


def performance_of(verdict: Verdict) -> PerformanceEvidence | None:
    """The times by which the candidate is ranked; None if there are none."""
    evidence = evidence_of(verdict.gates, PerformanceEvidence)
    return evidence if evidence is not None and evidence.is_ranked else None


def rejection(before: Sequence[GateResult], failed: Failed[Evidence]) -> Rejected:
    """The verdict after a failed gate; the gates behind it are skipped."""
    behind = [
        Skipped(gate, f"not reached: {failed.gate} failed")
        for gate in map(str, list(EVIDENCE)[len(before) + 1 :])
    ]
    gates = (*before, failed, *behind)
    return Rejected(Stage(failed.gate), failed.reason, failed.sentence, gates)


# (stage or "waiting", wall seconds), in the order of the stages.
StageSeconds = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Trial:
    """One candidate's way through the gates in one search."""

    number: int
    candidate: Any  # Candidate
    verdict: Verdict
    source_digest: str | None
    duration_s: float
    sampler: dict[str, Any] = field(default_factory=dict)  # what a strategy needs to be rebuilt
    stage_seconds: StageSeconds = ()  # empty: not evaluated here
