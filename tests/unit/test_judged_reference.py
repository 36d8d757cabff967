"""Tests that accept obviously wrong outputs are called weak."""

from __future__ import annotations

import numpy as np
import pytest
from contexts import workload_context
from slow_cases import quick_first

from greenfast.search.devices.facts import device
from greenfast.search.loop.evaluate import evaluate
from greenfast.search.oracle.cases import derived_cases
from greenfast.search.oracle.judged_reference import (
    Judgements,
    judged_reference,
    weakness_sentence,
)
from greenfast.search.oracle.reference import case_data
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import resolve
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.verdict import Green, weak_tests_of

EXACT = '2 * UNIT[options["dtype"]] * np.abs(value) + 1e-5'
ROUNDED = "value.astype(storage).astype(np.float64)"
VALUE = 'A * inputs["x"].astype(np.float64) + B'
# Shapes of public benchmark problems: outputs near zero under an absolute tolerance of 1e-2, a
# mean of many values, an output that hardly depends on its input.
WEAK = {
    "near_zero": (VALUE, '1e-6 * inputs["x"].astype(np.float64)', {"zeros", "a constant"}),
    "nothing": (VALUE, '0.0 * inputs["x"].astype(np.float64)', {"zeros", "a constant"}),
    "mean_of_large": (
        VALUE,
        'np.full(dims["N"], np.tanh(inputs["x"].astype(np.float64)).mean())',
        {"a constant"},
    ),
    "anything": (EXACT, "np.full(value.shape, 1e9)", {"zeros", "the input x"}),
    "infinite": (EXACT, "np.full(value.shape, np.inf)", {"zeros", "elements off by one"}),
    "of_twice_the_size": (EXACT, "2.1 * np.abs(value) + 1.0", {"zeros", "values half as large"}),
}


def _derived(kernel, workload=0):
    template, preset = kernel.preset(kernel.baseline)
    compiled = kernel.workloads[workload].compile_time(kernel)
    candidate = preset_candidate(template, preset.name, compiled)
    point = resolve(template, candidate.parameters, compiled, device("h200"))
    return derived_cases(kernel, compiled, point.tiles, 0)


def _weaknesses(kernel, workload=0):
    return judged_reference(
        kernel, _derived(kernel, workload), lambda case: case_data(kernel, case)
    )


@pytest.mark.parametrize(
    "name",
    quick_first(
        ["attention", "rmsnorm", "axpy", "quantise", "attention_fp8", "reduce", "tile", "scan"], 2
    ),
)
def test_shipped_tests_and_those_of_the_album_refuse_every_wrong_output(album, name):
    kernel = album.kernel(name)
    for workload in range(len(kernel.workloads)):
        assert _weaknesses(kernel, workload) == ()


@pytest.mark.parametrize("name", quick_first(["rmsnorm", "gemm", "gemm_fp8", "attention"], 2))
def test_inputs_of_shipped_kernels_have_both_signs(catalogue, name):
    """Otherwise a kernel that takes an input's absolute value is green."""
    kernel = catalogue.kernel(name)
    cases = [case_data(kernel, case) for case in _derived(kernel)]
    floats = [
        each.name for each in kernel.arguments if (each.kind, each.dtype) == ("input", "dtype")
    ]
    assert floats
    for each in floats:
        values = [data.inputs[each].astype(np.float64) for data in cases]
        assert any((array < 0).any() for array in values), each
        assert any((array > 0).any() for array in values), each


@pytest.mark.parametrize("name", WEAK)
def test_a_weak_test_is_called_so_with_what_it_accepts(broken_kernel, name):
    old, new, accepted = WEAK[name]
    catalogue = broken_kernel("reference.py", old, new)
    catalogue = broken_kernel("reference.py", ROUNDED, "None")  # nor a bound on the total error
    if name in ("near_zero", "nothing", "mean_of_large"):
        catalogue = broken_kernel("reference.py", EXACT, "np.full(value.shape, 1e-2)")
    weaknesses = _weaknesses(catalogue.kernel("axpy"))
    assert accepted <= {weakness.accepts for weakness in weaknesses}
    assert all(weakness.output == "y" and weakness.cases for weakness in weaknesses)
    sentence = weakness_sentence([weakness.sentence for weakness in weaknesses])
    assert sentence.startswith("this test is weak: it accepts ")


def test_one_case_that_refuses_is_enough(broken_kernel):
    """Of seven cases, six have constant outputs; the large one does not."""
    catalogue = broken_kernel("reference.py", '"normal": 1.0', '"normal": 0.0')
    assert _weaknesses(catalogue.kernel("axpy")) == ()


def test_a_copy_may_equal_its_input(broken_kernel):
    catalogue = broken_kernel("reference.py", "A, B = 2.5, -0.75", "A, B = 1.0, 0.0")
    assert _weaknesses(catalogue.kernel("axpy")) == ()


def test_a_test_is_judged_once_for_each_reference(album, broken_kernel):
    kernel, judgements, asked = album.kernel("axpy"), Judgements(), []

    def data_of(case):
        asked.append(case)
        return case_data(kernel, case)

    cases = _derived(kernel)
    assert judgements.of(kernel, cases, data_of) == judgements.of(kernel, cases, data_of) == ()
    first = len(asked)
    assert 0 < first < 60
    judgements.of(kernel, cases, data_of)
    assert len(asked) == first
    broken_kernel("reference.py", ROUNDED, "None")
    changed = broken_kernel("reference.py", EXACT, "np.full(value.shape, 1e9)").kernel("axpy")
    assert judgements.of(changed, cases, lambda case: case_data(changed, case))


def test_the_evidence_of_a_correct_candidate_names_its_weak_test(
    broken_kernel, artifacts, toolchain
):
    broken_kernel("reference.py", ROUNDED, "None")
    catalogue = broken_kernel("reference.py", EXACT, "np.full(value.shape, 1e9)")
    target = open_target("emulator:h200", TargetSettings(artifacts, catalogue.include_dirs, 2))
    context = workload_context(catalogue, "axpy", "odd", target, toolchain)
    template, preset = context.kernel.preset(context.kernel.baseline)
    verdict = evaluate(preset_candidate(template, preset.name, context.compiled), context).verdict
    assert isinstance(verdict, Green)
    assert any("zeros as y in all 7 cases" in sentence for sentence in weak_tests_of(verdict))
    correctness = next(gate for gate in verdict.gates if gate.gate == "correctness")
    assert "this test is weak: it accepts zeros" in correctness.sentence


def test_outputs_that_are_not_finite_are_judged_too(album):
    """LSE of a row without keys is minus infinity; a constant or zeros are no LSE."""
    kernel = album.kernel("attention")
    cases = [case for case in _derived(kernel) if case.name == "no_keys"]
    assert np.isneginf(case_data(kernel, cases[0]).outputs["lse"].value).all()
    outputs = {
        weakness.output
        for weakness in judged_reference(kernel, cases, lambda case: case_data(kernel, case))
    }
    assert outputs == {"o"}  # of which all are zero in this case, and only in this case
