"""`greenfast check`: every run under the checks, findings merged, costs by line."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from greenfast.search.diagnose.brought import BroughtKernel
from greenfast.search.diagnose.launch_file import ExpectedOutput
from greenfast.search.diagnose.order_dependence import KIND as ORDER_DEPENDENT
from greenfast.search.diagnose.order_dependence import Dependence, order_dependence
from greenfast.search.errors import UsageError
from greenfast.search.gates.safety import LOOKED_FOR, safety_run, with_lines
from greenfast.search.oracle.problem import Problem, Tensor
from greenfast.search.targets.base import Execution, Failure, Runner
from greenfast.search.verdict import LineCost, SafetyFinding, SafetyRun

ORDERS_OF_A_BROUGHT_KERNEL = 3  # one run in each schedule
STOPPING = (
    "deadlock",
    "divergence",
    "timeout",
    "misaligned",
    "device_fault",
    "out_of_memory",
    "undefined_operation",
)


@dataclass(frozen=True)
class CheckReport:
    """Findings are distinct by kind and lines, with counts added over `runs`.

    `costs` are of the run named `counted`.
    """

    runs: tuple[SafetyRun, ...]
    findings: tuple[SafetyFinding, ...]
    costs: tuple[LineCost, ...]
    counted: str
    looked_for: tuple[str, ...] = LOOKED_FOR
    notes: tuple[str, ...] = ()  # observations that reject no run, unless the check is strict
    remarks: tuple[str, ...] = ()  # observations that are no defects
    limits: tuple[str, ...] = ()  # what was not checked


def check_program(
    target: Runner,
    program: Any,
    problems: Sequence[Problem],
    counted: Problem,
    *,
    is_strict: bool = False,
    is_called_once: bool = False,
) -> CheckReport:
    """Check all `problems` and count lines of `counted`.

    Writes of one value by several threads are findings where `is_strict`, notes elsewhere.

    UsageError when the target has no checks.
    """
    checked = target.check(program, problems, is_called_once=is_called_once)
    if checked is None:
        raise UsageError(
            f"{target.name} has no safety checks",
            code="cannot_check",
            mend="use --target emulator:h200",
        )
    done = list(checked)
    if is_called_once:  # its result may be in `__device__` memory
        done = [
            replace(run, findings=tuple(f for f in run.findings if f.kind != "carried_state"))
            for run in done
        ]
    findings = merged(finding for run in done for finding in run.findings)
    dependence = order_dependence(done) if is_called_once else Dependence()
    tolerated = merged(note for run in done for note in run.tolerated)
    tolerated += dependence.beyond_rounding
    if is_strict:
        findings += tolerated
    costs = () if is_stopped(findings) else target.line_costs(program, counted)
    return CheckReport(
        tuple(safety_run(run, is_strict=is_strict) for run in done),
        findings,
        () if isinstance(costs, Failure) else costs,
        counted.case.name,
        notes=() if is_strict else tuple(map(_note, tolerated)),
        remarks=dependence.rounding,
    )


def _note(tolerated: SafetyFinding) -> str:
    if tolerated.kind == ORDER_DEPENDENT:
        return tolerated.sentence
    return with_lines(tolerated) + "; same-value writes are tolerated"


def check_brought(
    target: Runner, brought: BroughtKernel, *, is_strict: bool = False
) -> CheckReport:
    """Check a user's kernel under each schedule, and its outputs where expected ones are
    given."""
    program = target.load(brought.source, None)
    report = check_program(
        target,
        program,
        [brought.problem] * ORDERS_OF_A_BROUGHT_KERNEL,
        brought.problem,
        is_strict=is_strict,
        is_called_once=True,
    )
    if not brought.expected or is_stopped(report.findings):
        return report
    (execution,) = target.execute(program, [brought.problem])
    wrong = [
        finding
        for expected in brought.expected
        if (finding := compare(execution, expected)) is not None
    ]
    return replace(report, findings=(*report.findings, *wrong))


def compare(execution: Execution, expected: ExpectedOutput) -> SafetyFinding | None:
    """None when the output is within its tolerance. NaN passes only where NaN is expected."""
    if execution.failure is not None:
        return SafetyFinding(execution.failure.reason.value, execution.failure.sentence)
    tensor: Tensor = next(
        output for output in execution.problem.tensors if output.name == expected.output
    )
    got = tensor.view(execution.outputs[tensor.name]).astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.abs(got - expected.value)
        within = error <= expected.absolute + expected.relative * np.abs(expected.value)
    within |= (got == expected.value) | (np.isnan(got) & np.isnan(expected.value))
    if within.all():
        return None
    first = tuple(int(position) for position in np.argwhere(~within)[0])
    wrong = int((~within).sum())
    sentence = (
        f"{wrong} of {within.size} elements of {tensor.name} are not what is expected; "
        f"{tensor.name}{list(first)} is {got[first]:.6g}, not {expected.value[first]:.6g}"
    )
    return SafetyFinding("wrong_values", sentence, memory=f"global:{tensor.name}", count=wrong)


def merged(findings: Iterable[SafetyFinding]) -> tuple[SafetyFinding, ...]:
    """One finding for each kind and pair of lines, in the order in which they were first seen."""
    by_place: dict[Hashable, SafetyFinding] = {}
    for finding in findings:
        key = (finding.kind, finding.where, finding.other_where)
        by_place[key] = (
            replace(by_place[key], count=by_place[key].count + finding.count)
            if key in by_place
            else finding
        )
    return tuple(by_place.values())


def is_stopped(findings: Iterable[SafetyFinding]) -> bool:
    """Whether a finding stops the run early; nothing is counted then."""
    return any(finding.kind in STOPPING for finding in findings)
