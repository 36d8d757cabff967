"""Evidence from runs on the emulator: failure, findings, line costs, modelled time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from greenfast.search.devices.facts import Device
from greenfast.search.errors import Fault
from greenfast.search.oracle.problem import Problem
from greenfast.search.targets.base import Failure
from greenfast.search.targets.bound import bound_us
from greenfast.search.targets.emulator.model import model
from greenfast.search.targets.emulator.runs import RunFault, RunResult
from greenfast.search.targets.emulator.sample import SAMPLED_BLOCKS
from greenfast.search.targets.emulator.unset_variables import KIND as UNSET_VARIABLE
from greenfast.search.targets.emulator.unset_variables import Place
from greenfast.search.targets.emulator.work import (
    estimated_mixes,
    launch_works,
    mixes_of,
    whole_mix,
)
from greenfast.search.text import file_line
from greenfast.search.toolchain import Cubin
from greenfast.search.verdict import (
    FINDING_REASONS,
    LineCost,
    Reason,
    SafetyFinding,
    TimeKind,
    Timing,
)

MOST_PLACES = 4  # that a sentence names
SAME_VALUE_WRITES = "same_value_writes"  # a note's kind in native/checker.cpp
REASONS = {
    "deadlock": Reason.DEADLOCK,
    "divergence": Reason.DIVERGENCE,
    "misaligned": Reason.MISALIGNED,
    "out_of_bounds": Reason.OUT_OF_BOUNDS,
    "timeout": Reason.TIMEOUT,
    "out_of_memory": Reason.OUT_OF_MEMORY,
    "input_changed": Reason.INPUT_CHANGED,
}

SourceLines = Mapping[tuple[str, int], int]  # the source's line of a line of the author's files


def failure_of(result: RunResult, deadline_s: float) -> Failure | None:
    """The candidate's failure in a run; None when it passed. Fault when it did not run."""
    if result.status == "not_run":
        raise Fault("an emulated run did not start", code="emulator_not_run")
    if result.status == "timeout":
        return Failure(
            Reason.TIMEOUT,
            f"no end within {deadline_s:g} s of processor time on the emulator",
        )
    if result.faults:
        first = result.faults[0]
        return Failure(REASONS.get(first.kind, Reason.DEVICE_FAULT), _placed(first))
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


def _placed(fault: RunFault) -> str:
    """The fault's sentence with its line, unless it names the line and its caller already."""
    if fault.where is None or fault.where[0].startswith("/"):  # not a line of the kernel's text
        return fault.sentence
    place = file_line(*fault.where)
    return fault.sentence if place in fault.sentence else f"{fault.sentence} ({place})"


def modelled_timing(
    device: Device,
    problem: Problem,
    cubin: Cubin,
    result: RunResult,
    source_lines: SourceLines,
) -> Timing:
    """The modelled time of a counted run. Fault when the run has no counters."""
    counters = result.counters
    if counters is None:
        raise Fault("the emulator gave no counters for a counted run", code="emulator_no_counters")
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
    time = model(device, works, problem.work_bytes)
    detail = (
        ("bank_conflict_factor", round(counters.bank_conflict_factor, 3)),
        ("floor_us", round(bound_us(device, problem), 4)),
    )
    return Timing(
        problem.case.name,
        time.time_us,
        TimeKind.MODELLED,
        time.limited_by,
        detail,
        note,
        line_costs_of(result, source_lines),
        limits=tuple((name, round(us, 4)) for name, us in time.limits),
        mix=tuple((name, round(count)) for name, count in whole_mix(problem, mixes, SAMPLED_BLOCKS))
        if mixes
        else (),
    )


def findings_of(result: RunResult, source_lines: SourceLines) -> tuple[SafetyFinding, ...]:
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


def tolerated_of(result: RunResult, source_lines: SourceLines) -> tuple[SafetyFinding, ...]:
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


def unset_finding(places: Sequence[Place], source_lines: SourceLines) -> SafetyFinding:
    """Of a variable that is used before it is set; `places`: lines that use such variables."""
    own = [place for place in places if place in source_lines]
    where = own[0] if len(own) == 1 else None  # of several it may be another
    sentence = "the outputs depend on a variable that is used before it is set"
    named = " or ".join(file_line(*place) for place in own[:MOST_PLACES])
    return SafetyFinding(
        UNSET_VARIABLE,
        f"{sentence} (at {named})" if named else sentence,
        where,
        source_line=_source_line(source_lines, where),
    )


def _source_line(source_lines: SourceLines, where: tuple[str, int] | None) -> int | None:
    return None if where is None else source_lines.get(where)


def line_costs_of(result: RunResult, source_lines: SourceLines) -> tuple[LineCost, ...]:
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
