"""Games with time and place on a GPU: repeated launches show them, and no correct kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from greenfast.search.gates import GateLimits, Subject
from greenfast.search.gates.after_timing import wrong_after_timing
from greenfast.search.gates.performance import timed_problems
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.loop.evaluate import EvaluationContext, prepare
from greenfast.search.space.candidate import (
    Candidate,
    Origin,
    OriginKind,
    complete_parameters,
    preset_candidate,
)
from greenfast.search.targets.base import Failure
from greenfast.search.verdict import Reason

GAMES = {
    "known_content": (Reason.IMPLAUSIBLE,),
    # On a ring the times tell first: the answer of the last set's address hides the outputs.
    "known_address": (Reason.UNWRITTEN, Reason.WRONG_VALUES, Reason.IMPLAUSIBLE),
    "in_a_row": (Reason.UNWRITTEN, Reason.WRONG_VALUES),
    "in_a_row_at_one_address": (Reason.IMPLAUSIBLE,),
    "late_in_a_row": (Reason.IMPLAUSIBLE,),
    "first_launches": (Reason.UNWRITTEN, Reason.WRONG_VALUES),
}
HONEST = [
    ("attention", "wmma", "stage2", "mission"),
    ("attention", "mma", "fa2", "mission"),
    ("attention", "mma", "fa2", "long"),
    ("rmsnorm", "", "", "decode"),
    ("gemm", "", "", "small"),
]


def subject_of(context: EvaluationContext, candidate: Candidate, mode: str) -> Subject:
    subject = prepare(candidate, replace(context, mode=mode))
    assert isinstance(subject, Subject), subject
    return subject


def timed(subject: Subject) -> Failure | None:
    timings = subject.target.measure(subject.program, subject.machine_code, timed_problems(subject))
    assert not isinstance(timings, Failure), timings
    return wrong_after_timing(subject)


@pytest.mark.parametrize("mode", ["hot", "cold"])
@pytest.mark.parametrize("game", ["none", *GAMES])
def test_work_that_repeated_launches_leave_out_shows(game, mode, bench_of):
    context = bench_of()
    template = context.kernel.template("keeper")
    parameters = complete_parameters(template, {"game": game}, context.compiled)
    candidate = Candidate("stopwatch", "keeper", parameters, Origin(OriginKind.SEEDED))
    failure = timed(subject_of(context, candidate, mode))
    if game == "none":
        assert failure is None, failure
    elif mode == "hot" or game not in ("in_a_row_at_one_address", "late_in_a_row"):
        # A ring of input sets gives these two nothing.
        times_us = context.target.repeated_us
        assert failure is not None and failure.reason in GAMES[game], (failure, times_us)


@pytest.mark.parametrize("mode", ["hot", "cold"])
@pytest.mark.parametrize(("name", "template", "preset", "workload"), HONEST)
def test_no_correct_kernel_is_suspicious(
    name, template, preset, workload, mode, gpu, toolchain, catalogue: Catalogue
):
    kernel = catalogue.kernel(name)
    spec = kernel.workload(workload)
    compiled = spec.compile_time(kernel)
    context = EvaluationContext(
        kernel, compiled, (spec,), gpu, toolchain, catalogue.include_dirs, GateLimits(), 0
    )
    design, _, default = kernel.baseline.partition(":")
    candidate = preset_candidate(kernel.template(template or design), preset or default, compiled)
    failure = timed(subject_of(context, candidate, mode))
    assert failure is None, failure
