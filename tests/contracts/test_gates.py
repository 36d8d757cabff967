"""What every gate must do, over the registry, on real compiled candidates."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest
from subjects import axpy_subject

from greenfast.search.devices.facts import device
from greenfast.search.devices.occupancy import occupancy
from greenfast.search.digest import canonical
from greenfast.search.errors import Fault
from greenfast.search.gates import GATES, GateLimits
from greenfast.search.gates.ptxas import PtxasGate
from greenfast.search.gates.safety import SafetyGate, like
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.targets.base import Checked, Runner
from greenfast.search.verdict import (
    Failed,
    Outcome,
    Passed,
    Reason,
    SafetyEvidence,
    SafetyFinding,
    Skipped,
    Stage,
    Unavailable,
)


@pytest.fixture(scope="module")
def emulator(artifacts, catalogue):
    return open_target(
        "emulator:h200", TargetSettings(artifacts, catalogue.include_dirs, 2, run_deadline_s=20.0)
    )


def on(subject, target, checker=None):
    """The subject, to be judged on another target."""
    return replace(subject, conditions=replace(subject.conditions, target=target, checker=checker))


def test_the_order_is_cheap_first():
    assert [gate.name for gate in GATES] == ["ptxas", "correctness", "performance", "safety"]


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.name)
def test_a_gate_names_itself_and_says_one_sentence(gate, album, emulator, toolchain):
    result = gate.judge(axpy_subject(album, emulator, toolchain))
    assert result.gate == gate.name == Stage(gate.name).value
    assert isinstance(result, (Passed, Unavailable))
    assert result.sentence and "\n" not in result.sentence
    json.dumps(canonical(result))


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.name)
def test_a_gate_says_the_same_twice(gate, album, emulator, toolchain):
    subject = axpy_subject(album, emulator, toolchain)
    assert gate.judge(subject) == gate.judge(subject)


def test_what_cannot_be_judged_here_is_never_passed(album, emulator, toolchain):
    subject = axpy_subject(album, emulator, toolchain)
    outcomes = {gate.name: gate.judge(subject).outcome for gate in GATES}
    assert outcomes["performance"] is Outcome.UNAVAILABLE and outcomes["safety"] is Outcome.PASSED


def test_inline_assembly_is_not_seen_so_safety_claims_nothing(album, emulator, toolchain):
    subject = with_assembly(axpy_subject(album, emulator, toolchain), "frob.b32 %0, %0;")
    result = SafetyGate().judge(subject)
    assert result.outcome is Outcome.UNAVAILABLE
    assert "holds inline assembly that the emulator does not see" in result.sentence
    assert "`frob.b32`" in result.sentence
    seen = with_assembly(subject, "add.u32 %0, %0, 1;")
    assert SafetyGate().judge(seen).outcome is Outcome.PASSED


def with_assembly(subject, instruction: str):
    """The subject with a function that no kernel calls, of one PTX instruction."""
    function = f'__device__ void f(unsigned x) {{ asm("{instruction}" : "+r"(x)); }}'
    unit = subject.source.unit.split("__device__ void f(")[0] + "\n" + function
    return replace(subject, source=replace(subject.source, unit=unit, raw_asm=True))


def test_a_target_without_checks_claims_nothing_about_safety(album, emulator, toolchain):
    class Unchecked:
        name, device, keeps_modules = "cuda:0", emulator.device, False

        def load(self, source, cubin):
            return None

        def check(self, program, problems):
            return Runner.check(self, program, problems)

    subject = axpy_subject(album, emulator, toolchain)
    subject = on(subject, Unchecked())
    result = SafetyGate().judge(subject)
    assert (
        result.outcome is Outcome.UNAVAILABLE
        and "cuda:0 does not look for races" in result.sentence
    )


class Unchecking:
    """A target that measures and does not look for races."""

    name, keeps_modules = "cuda:0", False

    def __init__(self, facts):
        self.device = facts

    def load(self, source, cubin):
        return None

    def check(self, program, problems):
        return Runner.check(self, program, problems)


@pytest.fixture
def on_a_gpu(album, emulator, toolchain):
    def subject(*args, checker=emulator, facts=None, **values):
        subject = axpy_subject(album, emulator, toolchain, *args, **values)
        return on(subject, Unchecking(facts or emulator.device), checker)

    return subject


def test_where_the_target_does_not_look_a_checker_of_the_same_gpu_does(on_a_gpu):
    result = SafetyGate().judge(on_a_gpu())
    assert (
        result.outcome is Outcome.PASSED
        and "checked runs on emulator:h200 (forward" in result.sentence
    )
    result = SafetyGate().judge(on_a_gpu("broken", defect="no_barrier"))
    assert result.outcome is Outcome.FAILED and result.reason in (Reason.RACE, Reason.UNINITIALISED)
    assert " on emulator:h200: " in result.sentence


def test_a_checker_of_another_gpu_says_so(on_a_gpu):
    facts = replace(device("h200"), name="nvidia-h800", title="NVIDIA H800")
    assert like(facts).sm == 90 and like(device("l4")).name == "l4"
    assert like(replace(device("a100"), name="nvidia-a30", multiprocessors=56)).name == "a100"
    result = SafetyGate().judge(on_a_gpu(facts=facts))
    assert "on emulator:h200, the closest that is known to NVIDIA H800," in result.sentence


def test_inline_assembly_is_unavailable_to_a_checker_too(on_a_gpu):
    subject = with_assembly(on_a_gpu(), "frob.b32 %0, %0;")
    assert SafetyGate().judge(subject).outcome is Outcome.UNAVAILABLE


def test_without_a_host_compiler_safety_is_unavailable_where_times_are_measured(
    on_a_gpu, tmp_path, catalogue, monkeypatch
):
    monkeypatch.setenv("GREENFAST_CXX", "no-such-compiler")
    checker = open_target("emulator:h200", TargetSettings(tmp_path, catalogue.include_dirs, 1))
    result = SafetyGate().judge(on_a_gpu(checker=checker))
    assert result.outcome is Outcome.UNAVAILABLE and "needs a C++ compiler" in result.sentence


def test_a_checked_run_that_a_busy_host_did_not_finish_is_no_verdict(on_a_gpu, emulator):
    class Slow(Unchecking):
        name = "emulator:h200"

        def check(self, program, problems):
            finding = SafetyFinding("timeout", "no end within 1 s")
            return (Checked(problem, "forward", (finding,)) for problem in problems)

    result = SafetyGate().judge(on_a_gpu(checker=Slow(emulator.device)))
    assert result.outcome is Outcome.UNAVAILABLE and "came to no end (timeout)" in result.sentence


def test_a_fault_of_the_checker_is_ours_and_raised(on_a_gpu, emulator):
    class Lost(Unchecking):
        name = "emulator:h200"

        def check(self, program, problems):
            raise Fault("a checked run did not start", code="emulator_not_run")

    with pytest.raises(Fault, match="did not start"):
        SafetyGate().judge(on_a_gpu(checker=Lost(emulator.device)))


def test_what_is_right_by_luck_is_found_with_both_lines(album, emulator, toolchain):
    result = SafetyGate().judge(
        axpy_subject(album, emulator, toolchain, "broken", defect="no_barrier")
    )
    assert result.outcome is Outcome.FAILED and result.reason in (Reason.RACE, Reason.UNINITIALISED)
    race = next(finding for finding in result.evidence.findings if finding.kind == "race")
    text = album.kernel("axpy").template("broken").text.splitlines()
    lines = {text[line - 1].split(";")[0].strip() for _, line in (race.where, race.other_where)}
    assert lines == {
        "tile[threadIdx.x] = value",
        "if (mirror < N) y[mirror] = tile[threads - 1 - threadIdx.x]",
    }
    assert race.thread != race.other_thread and race.memory == "shared"
    assert all(
        f"{place[0]}:{place[1]}" in race.sentence for place in (race.where, race.other_where)
    )


def test_safety_runs_every_check_once_and_each_order(album, emulator, toolchain):
    subject = axpy_subject(album, emulator, toolchain)
    result = SafetyGate().judge(subject)
    assert [run.workload for run in result.evidence.runs] == [
        check.name for check in subject.kernel.checks
    ]
    assert [run.order for run in result.evidence.runs] == ["forward", "reverse", "seeded:1"]
    assert result.evidence.looked_for and not result.evidence.findings


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (GateLimits(max_registers=4), Reason.OVER_REQUEST_LIMIT),
        (GateLimits(max_smem_bytes=0), None),
        (GateLimits(max_registers=255, max_spill_bytes=None), None),
    ],
)
def test_a_requests_limits_are_held_by_the_ptxas_gate(limits, reason, album, emulator, toolchain):
    result = PtxasGate().judge(axpy_subject(album, emulator, toolchain, limits=limits))
    assert isinstance(result, Failed) == (reason is not None)
    assert reason is None or result.reason is reason


def test_only_a_failed_gate_has_a_reason_and_each_gate_its_own_evidence():
    assert [field.name for field in fields(Failed)] == ["gate", "sentence", "reason", "evidence"]
    assert not any(hasattr(result, "reason") for result in (Passed, Unavailable, Skipped))
    with pytest.raises(ValueError, match="a SafetyEvidence is not evidence of gate ptxas"):
        Passed("ptxas", "yes", SafetyEvidence())


@pytest.mark.parametrize(
    ("registers", "threads", "smem", "blocks", "limited_by"),
    [
        (32, 128, 0, 16, "threads"),
        (255, 256, 0, 1, "registers"),
        (64, 128, 0, 8, "registers"),
        (32, 64, 0, 32, "threads"),
        (16, 32, 0, 32, "blocks"),
        (32, 128, 100_000, 2, "shared memory"),
        (32, 128, 227 * 1024, 1, "shared memory"),
    ],
)
def test_occupancy_agrees_with_the_programming_guides_rules(
    registers, threads, smem, blocks, limited_by
):
    limit = occupancy(device("h200"), registers, threads, smem)
    assert (limit.blocks_per_sm, limit.limited_by) == (blocks, limited_by)
