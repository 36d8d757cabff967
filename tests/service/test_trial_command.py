"""`greenfast trial`: the contract that scripts rely on."""

from __future__ import annotations

import hashlib

import pytest


def trial(home, *arguments):
    return home.run("trial", "axpy", "--workload", "line", "--json", *arguments)


def test_a_right_candidate_is_green_with_evidence_of_every_gate_and_a_ratio_to_the_baseline(home):
    ended = trial(
        home, "--template", "right", "--set", "threads=64", "--seed", "5", "-o", "candidate.cu"
    )
    report = ended.json
    assert (
        ended.code == 0
        and report["verdict"] == "green"
        and report["stage"] is report["reason"] is None
    )
    assert list(report["gates"]) == ["ptxas", "correctness", "performance", "safety"]
    assert {
        "outcome",
        "registers",
        "spill_bytes",
        "smem_static_bytes",
        "smem_dynamic_bytes",
    } <= set(report["gates"]["ptxas"])
    checks = report["gates"]["correctness"]["checks"]
    assert {"line", "one"} <= {check["workload"] for check in checks} and all(
        "seed" in check for check in checks
    )
    assert all(check["max_abs_error"] is not None for check in checks)
    assert (
        report["time_kind"] == "modelled"
        and report["time_median_us"] > 0
        and report["ratio_to_baseline"] > 0
    )
    assert report["baseline"]["name"] == "right:plain" and report["baseline"]["verdict"] == "green"
    assert report["parameters"]["threads"] == 64 and report["seed"] == 5
    assert (
        hashlib.sha256((home.data / "candidate.cu").read_bytes()).hexdigest()
        == report["source_digest"]
    )


@pytest.mark.slow
def test_the_baseline_is_not_compared_with_itself_and_no_baseline_compares_with_nothing(home):
    itself = trial(home, "--template", "right", "--preset", "plain").json
    alone = trial(home, "--template", "right", "--set", "threads=64", "--no-baseline").json
    for report in (itself, alone):
        assert (
            report["baseline"] is None
            and report["ratio_to_baseline"] is None
            and report["time_median_us"] > 0
        )


@pytest.mark.slow
def test_a_source_that_does_not_compile_is_rejected_with_the_compilers_log(home):
    ended = trial(home, "--template", "broken", "--set", "defect=does_not_compile")
    report = ended.json
    assert (ended.code, report["verdict"], report["stage"], report["reason"]) == (
        1,
        "rejected",
        "compile",
        "compile_error",
    )
    assert "axpy/broken.cu.j2" in report["sentence"] and "valeu" in report["log"]
    assert {gate["outcome"] for gate in report["gates"].values()} == {"skipped"}


def test_wrong_values_are_rejected_at_correctness_with_the_failing_checks(home):
    ended = trial(home, "--template", "broken", "--set", "defect=zeros")
    report = ended.json
    assert (ended.code, report["stage"], report["reason"]) == (1, "correctness", "wrong_values")
    failed = [check for check in report["gates"]["correctness"]["checks"] if not check["passed"]]
    assert failed and failed[0]["sentence"] and failed[0]["max_abs_error"] > 0
    assert (
        report["time_median_us"] is None and report["gates"]["performance"]["outcome"] == "skipped"
    )


def test_a_person_reads_gates_figures_and_the_sentence(home):
    ended = home.run("trial", "axpy", "--template", "broken", "--set", "defect=does_not_compile")
    assert (
        ended.code == 1
        and "compile_error" in ended.out
        and "valeu" in ended.out
        and ended.err == ""
    )
    assert not any(character < " " and character != "\n" for character in ended.out)
