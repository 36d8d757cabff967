"""The comparison of outputs, on real problems with one kind of damage at a time."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from greenfast.search.devices.facts import device
from greenfast.search.gates import correctness
from greenfast.search.gates.correctness import compare
from greenfast.search.oracle.cases import derived_cases
from greenfast.search.oracle.problem import POISON, lay_out
from greenfast.search.oracle.reference import case_data
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import resolve
from greenfast.search.targets.base import Execution, Failure
from greenfast.search.verdict import Reason


@pytest.fixture(scope="module")
def attention(catalogue):
    kernel = catalogue.kernel("attention")
    template, preset = kernel.preset("wmma:stage2")
    compiled = kernel.workload("mission").compile_time(kernel)
    candidate = preset_candidate(template, preset.name, compiled)
    return (
        kernel,
        template,
        resolve(template, candidate.parameters, compiled, device("h200")),
        compiled,
    )


def _problem(attention, layout):
    kernel, template, point, compiled = attention
    cases = derived_cases(kernel, compiled, point.tiles, 0)
    case = next(
        case
        for case in cases
        if case.layout == layout and case.inputs == "normal" and dict(case.dims)["S_kv"] > 1
    )
    return lay_out(kernel, template, point, case, case_data(kernel, case))


def _run(attention, layout="padded", damage=lambda name, values, image: None):
    """The rounded reference as if a kernel had written it, after `damage`."""
    kernel = attention[0]
    problem = _problem(attention, layout)
    right = case_data(kernel, problem.case)
    outputs = {}
    for tensor in problem.tensors:
        if tensor.role == "output":
            image = tensor.image.copy()
            tensor.view(image)[...] = right.outputs[tensor.name].value.astype(tensor.dtype)
            damage(tensor.name, tensor.view(image), image)
            outputs[tensor.name] = image
    return compare(
        SimpleNamespace(kernel=kernel, target=SimpleNamespace(case_data=case_data)),
        Execution(problem, "forward", outputs, None),
    )


def _only(name, action):
    return lambda output, values, image: action(values, image) if output == name else None


@pytest.mark.parametrize("layout", ["contiguous", "padded", "bshd"])
def test_a_right_output_passes_in_every_layout(attention, layout):
    checks, reason = _run(attention, layout)
    assert reason is None
    assert {check.output for check in checks} == {"o", "lse"} and all(
        check.passed for check in checks
    )
    assert all(check.sentence == "" and check.share_out_of_bound == 0 for check in checks)


def test_equal_outputs_are_compared_once_and_a_byte_between_rows_makes_another(
    attention, monkeypatch
):
    compared = []

    def counted(*arguments):
        compared.append(arguments)
        return real(*arguments)

    real = correctness.compare_output
    monkeypatch.setattr(correctness, "compare_output", counted)
    case_data(attention[0], _problem(attention, "padded").case).passed.clear()
    first, again = _run(attention), _run(attention)
    assert first == again and len(compared) == 2  # `o` and `lse`
    problem = _problem(attention, "padded")
    gap = next(
        int(np.flatnonzero(~tensor.owned_bytes)[0])
        for tensor in problem.tensors
        if tensor.name == "o"
    )
    for _ in range(2):  # what failed is compared again
        _, reason = _run(attention, damage=_only("o", lambda values, image: image.put(gap, 1)))
        assert reason is Reason.OUT_OF_BOUNDS
    assert len(compared) == 4


def test_one_wrong_element_is_found_with_its_place(attention):
    def damage(values, image):
        values[0, 1, 3, 5] += 0.25

    checks, reason = _run(attention, damage=_only("o", damage))
    wrong = next(check for check in checks if check.output == "o")
    assert reason is Reason.WRONG_VALUES
    assert wrong.worst_index == (0, 1, 3, 5) and wrong.max_abs_error == pytest.approx(
        0.25, abs=0.01
    )
    assert "o[0, 1, 3, 5] is" in wrong.sentence and "padded" in wrong.sentence


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nothing_that_is_not_finite_passes(attention, value):
    def damage(values, image):
        values[0, 0, 0, 0] = value

    _, reason = _run(attention, damage=_only("o", damage))
    assert reason is Reason.NOT_FINITE


def test_an_element_that_was_never_written_is_called_so(attention):
    def damage(values, image):
        poison = np.full(2, POISON, np.uint8).view(np.float16)[0]
        values[0, 1, 2, 7] = poison
        values.view(np.uint16)[0, 1, 2, 7] = 0xFFFF

    checks, reason = _run(attention, damage=_only("o", damage))
    assert reason is Reason.UNWRITTEN
    assert "1 of" in next(check for check in checks if check.output == "o").sentence


def test_a_write_between_the_rows_is_out_of_bounds(attention):
    tensor = next(tensor for tensor in _problem(attention, "padded").tensors if tensor.name == "o")
    gap = (tensor.strides[2] * 1 - 1) * 2  # the last element of row 0's padding

    def damage(values, image):
        image[gap : gap + 2] = 0

    checks, reason = _run(attention, damage=_only("o", damage))
    assert reason is Reason.OUT_OF_BOUNDS
    assert (
        "2 bytes between the rows of o"
        in next(check for check in checks if not check.passed).sentence
    )


def test_many_small_errors_within_the_pointwise_bound_fail_by_their_norm(attention):
    kernel = attention[0]
    problem = _problem(attention, "padded")
    expected = case_data(kernel, problem.case).outputs["o"]

    def damage(values, image):
        values[...] = (expected.value + 0.8 * expected.bound).astype(np.float16)

    checks, reason = _run(attention, damage=_only("o", damage))
    wrong = next(check for check in checks if check.output == "o")
    assert reason is Reason.WRONG_VALUES and wrong.share_out_of_bound < 0.2
    assert wrong.frobenius_error > wrong.frobenius_allowed
    assert wrong.sign_bias > 0.9


def test_a_run_that_failed_is_evidence_with_its_sentence(attention):
    problem = _problem(attention, "padded")
    checks, reason = compare(
        SimpleNamespace(kernel=attention[0], target=SimpleNamespace(case_data=case_data)),
        Execution(problem, "reverse", {}, Failure(Reason.DEADLOCK, "thread 3 waits for ever")),
    )
    assert reason is Reason.DEADLOCK
    assert checks[0].passed is False and checks[0].sentence.endswith("thread 3 waits for ever")
    assert "reverse order" in checks[0].sentence
