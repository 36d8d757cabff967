"""The contract of targets, for every target that opens on this machine."""

from __future__ import annotations

import numpy as np
import pytest
from slow_cases import quick_first
from subjects import axpy_subject, problems_of

from greenfast.search.devices.facts import device_names
from greenfast.search.errors import UsageError
from greenfast.search.targets import FAMILIES, TargetSettings, check_target_name, open_target
from greenfast.search.targets.base import Failure
from greenfast.search.targets.cuda import gpu_count
from greenfast.search.verdict import Reason

# The emulator of one model; slow tests run that of each, which differ in their facts alone.
EMULATORS = [f"emulator:{name}" for name in sorted(device_names(), key=lambda name: name != "h200")]
NAMES = [
    *quick_first(EMULATORS, 1),
    *(f"cuda:{number}" for number in range(gpu_count())),
]


@pytest.fixture(scope="module", params=NAMES)
def target(request, artifacts, catalogue):
    opened = open_target(
        request.param, TargetSettings(artifacts, catalogue.include_dirs, 2, run_deadline_s=20.0)
    )
    opened.prepare()
    yield opened
    opened.close()


def test_there_is_something_to_test_and_each_family_has_a_name():
    assert "emulator:h200" in EMULATORS and "emulator:l4" in EMULATORS
    assert {"emulator", "cuda", "replay"} <= set(
        FAMILIES
    )  # replay runs nothing: tests/unit/test_replay.py


@pytest.mark.parametrize(
    "name",
    [
        "",
        "emulator",
        "emulator:",
        "emulator:b200",
        "cuda:",
        "cuda:-1",
        "cpu:0",
        "emulator:../h200",
        "replay",
        "replay:",
        "replay:../x",
    ],
)
def test_an_unknown_target_is_refused_with_the_known_ones(name):
    with pytest.raises(UsageError) as refused:
        check_target_name(name)
    assert refused.value.code == "unknown_target" and refused.value.mend


def test_a_gpu_that_is_not_there_is_refused_in_one_sentence(tmp_path):
    with pytest.raises(UsageError, match=f"cuda:{gpu_count()} cannot be used") as refused:
        open_target(f"cuda:{gpu_count()}", TargetSettings(tmp_path, (), 1))
    assert refused.value.code == "no_gpu"


def test_each_problem_gives_one_execution_with_all_outputs(target, album, toolchain):
    subject = axpy_subject(album, target, toolchain)
    problems = problems_of(subject)
    executions = list(target.execute(subject.program, problems))
    assert [execution.problem for execution in executions] == problems
    for execution in executions:
        assert execution.failure is None
        assert set(execution.outputs) >= {
            tensor.name for tensor in execution.problem.tensors if tensor.role == "output"
        }
        for tensor in execution.problem.tensors:
            if tensor.role == "output":
                assert execution.outputs[tensor.name].dtype == np.uint8
                assert execution.outputs[tensor.name].size == tensor.image.size


def test_the_same_program_gives_the_same_bits_again(target, album, toolchain):
    subject = axpy_subject(album, target, toolchain)
    problems = problems_of(subject)
    first, again = (list(target.execute(subject.program, problems)) for _ in range(2))
    for execution, other in zip(first, again, strict=True):
        assert all(
            np.array_equal(execution.outputs[name], other.outputs[name])
            for name in execution.outputs
        )


def test_a_candidate_that_breaks_is_a_failure_and_harms_no_other(target, album, toolchain):
    broken = axpy_subject(album, target, toolchain, "broken", defect="wild_pointer")
    first = next(iter(target.execute(broken.program, problems_of(broken))))
    assert isinstance(first.failure, Failure) and first.failure.sentence
    assert first.failure.reason in (Reason.DEVICE_FAULT, Reason.OUT_OF_BOUNDS)
    right = axpy_subject(album, target, toolchain)
    assert all(
        execution.failure is None for execution in target.execute(right.program, problems_of(right))
    )


def test_a_consumer_may_stop_early(target, album, toolchain):
    subject = axpy_subject(album, target, toolchain)
    executions = target.execute(subject.program, problems_of(subject))
    assert next(executions).failure is None
    executions.close()


def test_a_measured_or_modelled_time_says_which_it_is(target, album, toolchain):
    subject = axpy_subject(album, target, toolchain)
    problems = problems_of(subject)[-1:]
    (timing,) = target.measure(subject.program, subject.cubin, problems)
    assert timing.workload == "odd" and timing.time_median_us > 0
    assert (
        bool(timing.limited_by) is not target.measures
    )  # nothing is counted beside a measured time
    assert (timing.time_kind == "measured") is target.measures
    assert target.band >= 1


def test_more_work_never_models_as_less_time(target, album, toolchain):
    if target.measures:
        pytest.skip("measured times have their own tests under tests/gpu")
    times = []
    for per_thread in (1, 4):
        subject = axpy_subject(album, target, toolchain, per_thread=per_thread)
        (timing,) = target.measure(subject.program, subject.cubin, problems_of(subject)[-1:])
        times.append(timing.time_median_us)
    assert times[0] <= times[1]


def test_its_checks_are_silent_on_a_right_kernel_and_name_a_planted_defect(
    target, album, toolchain
):
    right = axpy_subject(album, target, toolchain)
    if target.check(right.program, problems_of(right)) is None:
        pytest.skip(f"{target.name} has no safety checks")
    checked = list(target.check(right.program, problems_of(right)))
    assert len(checked) == len(problems_of(right))
    assert all(result.findings == () for result in checked)
    broken = axpy_subject(album, target, toolchain, "broken", defect="no_barrier")
    findings = [
        finding
        for result in target.check(broken.program, problems_of(broken))
        for finding in result.findings
    ]
    assert {"race"} <= {finding.kind for finding in findings} and all(
        finding.where and finding.source_line for finding in findings
    )


def test_costs_by_line_add_up_and_point_into_the_source(target, album, toolchain):
    subject = axpy_subject(album, target, toolchain)
    costs = target.line_costs(subject.program, problems_of(subject)[-1])
    lines = subject.source.text.splitlines()
    for cost in costs:
        assert cost.source_line and "y[i]" in lines[cost.source_line - 1]
        assert cost.factor >= 1.0 and cost.transactions > 0
    assert list(costs) == sorted(costs, key=lambda cost: -cost.transactions)


def test_an_interrupted_target_works_again(target, album, toolchain):
    subject = axpy_subject(album, target, toolchain)
    target.interrupt()
    assert all(
        execution.failure is None
        for execution in target.execute(subject.program, problems_of(subject))
    )


def test_its_identity_names_what_results_depend_on(target):
    identity = dict(target.identity())
    assert identity["target"] == target.name and len(identity) > 1
