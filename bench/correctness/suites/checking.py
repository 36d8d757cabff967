"""One file under the emulator's checks, and the comparison with its label."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from bench.correctness.suites.cases import SuiteCase
from bench.correctness.suites.device_part import device_part
from bench.results import Row
from greenfast.search.diagnose.brought import BroughtKernel, read_brought
from greenfast.search.diagnose.check import ORDERS_OF_A_BROUGHT_KERNEL, merged
from greenfast.search.errors import GreenfastError
from greenfast.search.targets.base import Runner, SourceRefused

RIGHT, MISSED, FALSE_ALARM, STOPPED = "right", "missed", "false_alarm", "stopped"
DIFFERENT = "different"  # from its label, for a reason that the suite's module gives
_KERNEL = re.compile(r"^\s*__global__\b", re.MULTILINE)


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


def check_case(
    case: SuiteCase, target: Runner, include_dirs: tuple[Path, ...], folder: Path
) -> Outcome:
    """Check a file under all of its launches, each in every schedule of `greenfast check`."""
    begin_s = _cpu_s()
    try:
        brought = [_brought(case, index, include_dirs, folder) for index in range(len(case.launches))]
        program = target.load(brought[0].source, None)
        problems = [
            kernel.problem for kernel in brought for _ in range(ORDERS_OF_A_BROUGHT_KERNEL)
        ]
        checked = list(target.check(program, problems) or ())
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


def _brought(
    case: SuiteCase, index: int, include_dirs: tuple[Path, ...], folder: Path
) -> BroughtKernel:
    file = folder / case.path.name
    if index == 0:
        text = device_part(case.path.read_text("utf-8"))
        file.write_text(_KERNEL.sub('extern "C" __global__', text), "utf-8")
    return read_brought(file, case.launches[index].write(folder), include_dirs, seed=0)


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
