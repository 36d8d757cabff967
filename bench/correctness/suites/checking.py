"""One file under the emulator's checks, and the comparison with its label."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from bench.correctness.suites.cases import SuiteCase
from bench.results import Row
from greenfast.search.diagnose.check import ORDERS_OF_A_BROUGHT_KERNEL, merged
from greenfast.search.diagnose.launch_file import read_launch_file
from greenfast.search.diagnose.plain import PlainKernel, PlainOptions, read_plain
from greenfast.search.errors import GreenfastError
from greenfast.search.oracle.problem import Problem
from greenfast.search.targets.base import SourceRefused
from greenfast.search.targets.emulator.target import EmulatorTarget

RIGHT, MISSED, FALSE_ALARM, STOPPED = "right", "missed", "false_alarm", "stopped"
DIFFERENT = "different"  # from its label, for a reason that the suite's module gives


@dataclass(frozen=True)
class Outcome:
    """What the checks said about a file, and whether its label agrees."""

    case: SuiteCase
    kinds: frozenset[str]
    first: tuple[str, ...]  # a sentence for each kind
    runs: int
    stop: str  # why the file did not run; empty: it did
    cpu_s: float

    @property
    def outcome(self) -> str:
        if self.stop:
            return STOPPED
        if self.kinds == self.case.expected:
            return RIGHT
        if self.case.reason_to_differ:
            return DIFFERENT
        return FALSE_ALARM if self.kinds - self.case.expected else MISSED

    def row(self) -> Row:
        return {
            "what": "file",
            "name": self.case.name,
            "expected": sorted(self.case.expected),
            "found": sorted(self.kinds),
            "outcome": self.outcome,
            "first": list(self.first),
            "runs": self.runs,
            "stop": self.stop,
            "reason_to_differ": self.case.reason_to_differ,
            "cpu_s": round(self.cpu_s, 3),
        }


def check_case(case: SuiteCase, target: EmulatorTarget, folder: Path) -> Outcome:
    """Check a file under all of its launches, each in every schedule of `greenfast check`."""
    begin_s = _cpu_s()
    try:
        options = PlainOptions(include_dirs=case.include_dirs)
        plain = read_plain(case.path, case.launches[0].write(folder), options, target)
        program = target.load(plain.brought.source, None)
        problems = _problems(case, plain, folder)
        # The labels are about one call: some files set flags that nothing resets.
        checked = list(target.check(program, problems, is_called_once=True) or ())
    except (GreenfastError, SourceRefused) as error:
        return Outcome(case, frozenset(), (), 0, str(error), _cpu_s() - begin_s)
    findings = merged(finding for run in checked for finding in run.findings)
    sentences = {finding.kind: finding.sentence for finding in reversed(findings)}
    return Outcome(
        case,
        frozenset(sentences),
        tuple(f"{kind}: {sentence}" for kind, sentence in sorted(sentences.items())),
        len(checked),
        "",
        _cpu_s() - begin_s,
    )


def _problems(case: SuiteCase, first: PlainKernel, folder: Path) -> list[Problem]:
    """Every launch's problem, once for each schedule; the file itself is read for the first."""
    problems = [first.brought.problem]
    for launch in case.launches[1:]:
        problem = read_launch_file(launch.write(folder), 0).problem
        (plan,) = problem.launches
        problems.append(replace(problem, launches=(replace(plan, entry=first.entries[0].alias),)))
    return [problem for problem in problems for _ in range(ORDERS_OF_A_BROUGHT_KERNEL)]


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
