"""After the timed launches a candidate runs on other inputs, in the module that was timed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from drawn_gpu import DrawnGpu
from subjects import axpy_subject

from greenfast.search.gates.performance import timed_problems
from greenfast.search.gates.safety import SafetyGate
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.verdict import Outcome, Reason


class KeepingGpu(DrawnGpu):
    """Its modules stay loaded; the `cheating` one replays its answer once it has been timed."""

    keeps_modules = True

    def __init__(self, cheating: bool) -> None:
        super().__init__()
        self.cheating, self.kept, self.runs = cheating, {}, 0

    def measure(self, program, cubin, problems, against=None, inspect=None):
        if self.cheating:
            self.kept = {p.case.name: self._outputs(program, p)["y"] for p in problems}
        (timing,) = super().measure(program, cubin, problems, against, inspect)
        fast = tuple(0.5 * sample for sample in timing.samples)
        return (replace(timing, samples=fast, time_median_us=0.5 * timing.time_median_us),)

    def execute(self, program, problems):
        for execution in super().execute(program, problems):
            self.runs += 1
            kept = self.kept.get(execution.problem.case.name)
            yield execution if kept is None else replace(execution, outputs={"y": kept})


@pytest.fixture(scope="module")
def subject(artifacts, catalogue, album, toolchain):
    emulator = open_target(
        "emulator:h200", TargetSettings(artifacts, catalogue.include_dirs, 2, run_deadline_s=20.0)
    )
    return axpy_subject(album, emulator, toolchain)


@pytest.mark.parametrize("cheating", [True, False])
def test_an_answer_kept_from_the_timed_launches_is_no_answer_to_other_inputs(subject, cheating):
    gpu = KeepingGpu(cheating)
    timed = replace(subject, conditions=replace(subject.conditions, target=gpu))
    gpu.measure(timed.program, timed.machine_code, timed_problems(timed))
    result = SafetyGate().judge(timed)
    assert gpu.runs == 1
    if cheating:
        assert (result.outcome, result.reason) == (Outcome.FAILED, Reason.WRONG_VALUES)
        assert result.sentence.startswith("after the timed launches: ")
    else:
        # A drawn GPU has no checker of races.
        assert result.outcome is Outcome.UNAVAILABLE, result.sentence
