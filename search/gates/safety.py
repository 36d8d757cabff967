"""Gate 4: looks for races, reads of unwritten memory and accesses out of bounds.

A candidate with such a defect may give correct results by chance. On a GPU the gate first repeats
the timed launches on other inputs, because a candidate may also be fast by answering from what an
earlier launch left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from greenfast.search.devices.facts import Device, device, device_names
from greenfast.search.errors import Fault
from greenfast.search.gates.after_timing import wrong_after_timing
from greenfast.search.gates.base import Baseline, Subject
from greenfast.search.gates.bounded_grids import walked_cases
from greenfast.search.gates.claimed_tiles import cases_of_submitted
from greenfast.search.gates.few_blocks import few_blocks_cases
from greenfast.search.oracle.cases import Case, derived_cases, uncompared_cases
from greenfast.search.oracle.problem import Problem, lay_out
from greenfast.search.oracle.reference import case_data, inputs_alone, precompute
from greenfast.search.render import RenderedSource
from greenfast.search.targets.base import Checked, Runner, SourceRefused
from greenfast.search.text import file_line
from greenfast.search.verdict import (
    Failed,
    Passed,
    SafetyEvidence,
    SafetyFinding,
    SafetyRun,
    Unavailable,
)

LOOKED_FOR = (
    "races on shared and global memory",
    "reads of memory that was never written",
    "accesses out of bounds",
    "reads of asynchronous copies in flight",
    "copies that are never waited for",
    "misaligned accesses",
    "divergent barriers and collectives",
    "deadlock",
)
INLINE_ASSEMBLY = "holds inline assembly that the emulator does not see"
LACKING = (
    "host_compiler_missing",
    "emulator_unsupported",
)  # faults that leave a measuring target without checks
OF_THE_HOST = (
    "timeout",
    "out_of_memory",
)  # findings that a host busy with other candidates may cause
ORDERS = 3  # of a target's checked runs, which take turns: forward, reverse, seeded


SafetyResult = Passed[SafetyEvidence] | Failed[SafetyEvidence] | Unavailable[SafetyEvidence]


class SafetyGate:
    name = "safety"
    compares = False

    def judge(self, subject: Subject, baseline: Baseline | None = None) -> SafetyResult:
        if subject.target.keeps_modules and (kept := wrong_after_timing(subject)) is not None:
            return Failed(self.name, kept.sentence, kept.reason)
        return self.checked(subject)

    def checked(self, subject: Subject) -> SafetyResult:
        """The findings of checked runs, whatever the timed launches did."""
        if unseen := _unseen(subject):
            return Unavailable(
                self.name, f"the template {INLINE_ASSEMBLY}, so nothing is claimed: {unseen}"
            )
        problems = checked_problems(subject)
        checked = subject.target.check(subject.program, problems)
        if checked is not None:
            return self._result(subject, checked)
        checker = subject.conditions.checker
        if checker is None:
            return Unavailable(
                self.name,
                f"{subject.target.name} does not look for races and uninitialised reads, "
                "so nothing is claimed about them",
            )
        try:
            checked = checker.check(checker.load(subject.source, subject.cubin), problems)
            place = f" on {where(checker, subject.target)}"
            return self._result(subject, checked or (), place, OF_THE_HOST)
        except Fault as fault:
            if fault.code not in LACKING:
                raise
            return Unavailable(
                self.name,
                f"{subject.target.name} leaves safety to {checker.name}: {fault}; "
                "nothing is claimed",
            )

    def _result(
        self,
        subject: Subject,
        checked: Iterable[Checked],
        on: str = "",
        inconclusive: tuple[str, ...] = (),
    ) -> SafetyResult:
        """The first run with a finding decides; further runs would only cost time."""
        runs: list[SafetyRun] = []
        for run in checked:
            runs.append(safety_run(run))
            if run.findings and run.findings[0].kind in inconclusive:
                return Unavailable(
                    self.name,
                    f"a checked run{on} came to no end ({run.findings[0].kind}), though the "
                    "candidate did where it is timed: nothing is claimed",
                )
            if run.findings:
                first = run.findings[0]
                evidence = SafetyEvidence((), run.findings, tuple(runs), LOOKED_FOR)
                sentence = f"{place(run)}{on}: {with_lines(first)}{_others(run.findings)}"
                return Failed(self.name, sentence, first.reason, evidence)
            if subject.conditions.stop.is_set():
                return Unavailable(
                    self.name, f"cancelled after {_counted(runs)}, so nothing is claimed"
                )
        evidence = SafetyEvidence((), (), tuple(runs), LOOKED_FOR)
        return Passed(
            self.name,
            f"nothing found in {_counted(runs)}{on} ({_orders(runs)}); looked for "
            + ", ".join(LOOKED_FOR),
            evidence,
        )


def _counted(runs: Sequence[SafetyRun]) -> str:
    return f"{len(runs)} checked run{'' if len(runs) == 1 else 's'}"


def _unseen(subject: Subject) -> str:
    # A measuring target leaves its checks to another; without one they are unavailable anyhow.
    examiner = subject.conditions.checker or subject.target
    return unseen_assembly(subject.source, examiner)


def unseen_assembly(source: RenderedSource, examiner: Runner) -> str:
    """Why the checks of `examiner` do not see the source's inline assembly; empty if they do."""
    if not source.raw_asm:
        return ""
    try:
        examiner.examine(source)
    except SourceRefused as refused:
        return str(refused)
    except Fault as fault:
        if fault.code not in LACKING:
            raise
    return ""


def like(facts: Device) -> Device:
    """The known GPU of that name, else the one with the closest compute capability and size."""
    return min(
        map(device, device_names()),
        key=lambda known: (
            known.name != facts.name,
            abs(known.sm - facts.sm),
            abs(known.multiprocessors - facts.multiprocessors),
        ),
    )


def where(checker: Runner, target: Runner) -> str:
    """`emulator:h200`, and the GPU that it replaces if the emulator does not know that GPU."""
    if checker.device.name == target.device.name:
        return checker.name
    return f"{checker.name}, the closest that is known to {target.device.title},"


def checked_problems(subject: Subject) -> list[Problem]:
    """Each derived check on one seed: findings depend on sizes and orders, hardly on values.

    A submitted source runs on drawn sizes, too.
    """
    cases = {
        case.name: case
        for case in reversed(
            derived_cases(subject.kernel, subject.compiled, subject.point.tiles, subject.seed)
        )
    }
    in_order = list(reversed(cases.values()))
    in_order += cases_of_submitted(subject)
    precompute(subject.kernel, in_order)
    problems = [
        lay_out(
            subject.kernel, subject.template, subject.point, case, case_data(subject.kernel, case)
        )
        for case in in_order
    ]
    few = few_blocks_cases(subject, in_order)
    more, point = few or (walked_cases(subject, in_order), subject.point)
    for case in more:
        data = case_data(subject.kernel, case)
        problem = lay_out(subject.kernel, subject.template, point, case, data)
        # What blocks do between two tiles, only these cases show: in each order.
        problems += [problem] * ORDERS
    return problems + uncompared_problems(subject)


def uncompared_problems(subject: Subject) -> list[Problem]:
    """The first and last blocks of the checks that are too large to compare.

    None if blocks may depend on others: with workspaces, or with several launches.
    """
    kernel, template, point = subject.kernel, subject.template, subject.point
    problems = (
        lay_out(kernel, template, point, case, inputs_alone(kernel, case))
        for case in uncompared_cases(kernel, subject.compiled, point.tiles, subject.seed)
    )
    return [
        replace(problem, ends_only=True)
        for problem in problems
        if len(problem.launches) == 1 and not problem.workspaces
    ]


def safety_run(run: Checked, *, is_strict: bool = False) -> SafetyRun:
    number = len(run.findings) + (len(run.tolerated) if is_strict else 0)
    return SafetyRun(run.problem.case.name, shape(run.problem.case), run.order, number)


def place(run: Checked) -> str:
    case = run.problem.case
    return (
        f"{case.name} ({shape(case)}, {run.order} order)"
        if case.dims
        else f"{case.name} ({run.order} order)"
    )


def shape(case: Case) -> str:
    return " ".join(f"{name}={size}" for name, size in case.dims)


def with_lines(finding: SafetyFinding) -> str:
    """The finding's sentence with the lines of both accesses."""
    sentence = finding.sentence.rstrip(". ")
    for word, where in (("at", finding.where), ("against", finding.other_where)):
        if where is not None and f":{where[1]}" not in sentence:
            sentence += f", {word} {file_line(*where)}"
    return sentence


def _others(findings: tuple[SafetyFinding, ...]) -> str:
    return f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""


def _orders(runs: list[SafetyRun]) -> str:
    orders = sorted({run.order.partition(":")[0] for run in runs})
    return ", ".join(orders) + " order"
