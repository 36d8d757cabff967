"""What one candidate does to the GPU, no other one feels."""

from __future__ import annotations

import pytest
from spins import spin
from subjects import axpy_subject, problems_of

from greenfast.search.errors import Fault
from greenfast.search.loop.evaluate import evaluate
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.verdict import Green, Reason, Rejected

BREAKS = {
    "wild_pointer": Reason.DEVICE_FAULT,
    "null_pointer": Reason.DEVICE_FAULT,
    "trap": Reason.DEVICE_FAULT,
    "misaligned_copy": Reason.MISALIGNED,
}


@pytest.mark.parametrize("defect", BREAKS)
def test_a_candidate_that_breaks_is_rejected_for_its_own_reason_and_the_next_one_runs(
    defect, gpu, album, toolchain
):
    broken = axpy_subject(album, gpu, toolchain, "broken", defect=defect)
    failures = [
        execution.failure
        for execution in gpu.execute(broken.program, problems_of(broken))
        if execution.failure
    ]
    assert failures and failures[0].reason is BREAKS[defect] and failures[0].sentence
    right = axpy_subject(album, gpu, toolchain)
    assert all(
        execution.failure is None for execution in gpu.execute(right.program, problems_of(right))
    )


def test_a_candidate_that_does_not_end_is_rejected_and_the_next_one_runs(gpu, bench_of):
    verdict = evaluate(spin(10**12), bench_of()).verdict
    assert isinstance(verdict, Rejected) and verdict.reason is Reason.TIMEOUT, verdict
    assert "no end within 3 s" in verdict.sentence
    assert isinstance(evaluate(spin(20000), bench_of()).verdict, Green)


def test_a_workspace_that_cannot_be_had_is_the_candidates_doing(gpu, bench_of, watches):
    greedy = Candidate("stopwatch", "greedy", (("unused", 0),), Origin(OriginKind.SEEDED))
    verdict = evaluate(greedy, bench_of()).verdict
    assert isinstance(verdict, Rejected) and verdict.reason is Reason.OUT_OF_MEMORY, verdict
    assert "1000000000000 bytes" in verdict.sentence


def test_a_cubin_for_another_gpu_is_our_fault_and_says_so(gpu, bench_of, toolchain):
    context = bench_of()
    source = context.render(spin(20000))
    other = toolchain.compile(source, "sm_80")
    subject = context.subject(spin(20000), source, other)
    with pytest.raises(Fault, match="another GPU than sm_90") as fault:
        list(gpu.execute(subject.program, problems_of(subject)))
    assert fault.value.code == "wrong_arch"


def test_who_times_has_the_gpu_alone(gpu, artifacts, catalogue, album, toolchain):
    other = open_target("cuda:0", TargetSettings(artifacts, catalogue.include_dirs, 1))
    other.prepare()
    subject = axpy_subject(album, other, toolchain)
    other._open().lock._deadline_s = 0.2
    with (
        gpu._open().lock.held(),
        pytest.raises(Fault, match=r"another process has used cuda:0 for 0\.2 s"),
    ):
        list(other.execute(subject.program, problems_of(subject)))
    assert all(
        execution.failure is None
        for execution in other.execute(subject.program, problems_of(subject))
    )
    other.close()
