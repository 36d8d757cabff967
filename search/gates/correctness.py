"""Gate 2: compares every output with a float64 reference.

Each output of each case must lie within two bounds, and nothing else may be written. Where a
template promises that a parameter leaves results unchanged, outputs are compared with a sibling's,
too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace

import numpy as np

from greenfast.search import compute_turns
from greenfast.search.errors import SpecError
from greenfast.search.gates.base import Baseline, Subject
from greenfast.search.gates.bounded_grids import walked_cases
from greenfast.search.gates.claimed_tiles import cases_of_submitted
from greenfast.search.gates.few_blocks import few_blocks_cases
from greenfast.search.gates.judges import CorrectnessResult, judged_elsewhere
from greenfast.search.gates.promises import Siblings, input_digest, promised, with_broken_promise
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.workloads import Items
from greenfast.search.oracle.cases import Case, derived_cases, workload_case
from greenfast.search.oracle.comparison import (
    Comparison,
    comparable,
    compare_output,
    element_errors,
)
from greenfast.search.oracle.drawn import drawn_cases
from greenfast.search.oracle.expected import CaseData, Expected
from greenfast.search.oracle.far import far_cases
from greenfast.search.oracle.judged_reference import JUDGEMENTS, weakness_sentence
from greenfast.search.oracle.not_finite import not_finite_cases
from greenfast.search.oracle.problem import Problem, Tensor, lay_out, poison_of
from greenfast.search.oracle.reference import kernel_module, precompute
from greenfast.search.space.space import Resolved, resolve
from greenfast.search.targets.base import Execution
from greenfast.search.verdict import (
    CheckEvidence,
    CorrectnessEvidence,
    Failed,
    Passed,
    Reason,
)

ENOUGH_FAILURES = 6  # by then the pattern is clear, and the rest would only cost time
PASSED_KEPT = 64  # outputs of a case that passed
ENOUGH_CASES = 3  # shared by siblings, whose case lengths follow from different tiles or depths


class CorrectnessGate:
    name = "correctness"
    compares = False

    def judge(self, subject: Subject, baseline: Baseline | None = None) -> CorrectnessResult:
        result = judged_elsewhere(subject) or self.judged_here(subject)
        siblings = subject.conditions.siblings
        if isinstance(result, Failed) or siblings is None or result.evidence is None:
            return result
        broken = siblings.broken_promise(subject.candidate, result.evidence.checks)
        return with_broken_promise(result.evidence, broken) if broken is not None else result

    def judged_here(self, subject: Subject) -> CorrectnessResult:
        """The result in this process, without a comparison with siblings."""
        checks: list[CheckEvidence] = []
        first: tuple[Reason, str] | None = None
        failures = 0
        siblings = subject.conditions.siblings if promised(subject.template) else None
        for execution in subject.target.execute(subject.program, _problems(subject)):
            compared, reason = compare(subject, execution)
            if siblings is not None:
                compared = [
                    replace(check, input_digest=input_digest(execution.problem))
                    for check in compared
                ]
            checks += compared
            if reason is not None:
                failures += 1
                first = first or (
                    reason,
                    next(check.sentence for check in compared if not check.passed),
                )
            if (
                failures >= ENOUGH_FAILURES
                or (failures and execution.failure)
                or subject.conditions.stop.is_set()
            ):
                break
        evidence = CorrectnessEvidence(tuple(checks), _weak_tests(subject) if not first else ())
        if first is not None:
            runs = len({(check.workload, check.seed) for check in checks})
            bad = len({(check.workload, check.seed) for check in checks if not check.passed})
            sentence = f"{first[1]} ({bad} of {runs} runs failed)"
            return Failed(self.name, sentence, first[0], evidence)
        worst = evidence.max_abs_error
        sentence = (
            f"{len(checks)} outputs within both bounds; largest absolute error {worst:.3g}"
            if worst is not None
            else "nothing to compare"
        )
        weak = weakness_sentence(evidence.weak_tests)
        return Passed(self.name, f"{sentence}; {weak}" if weak else sentence, evidence)


def _weak_tests(subject: Subject) -> tuple[str, ...]:
    """Wrong outputs that the kernel's checks accept, judged on this candidate's cases."""
    cases = derived_cases(subject.kernel, subject.compiled, subject.point.tiles, subject.seed)
    weaknesses = JUDGEMENTS.of(
        subject.kernel, cases, lambda case: subject.target.case_data(subject.kernel, case)
    )
    # A reference may say that its truth is no float64 computation but another kernel.
    truth = getattr(kernel_module(subject.kernel), "TRUTH", "")
    return (*((truth,) if truth else ()), *(weakness.sentence for weakness in weaknesses))


def _problems(subject: Subject) -> list[Problem]:
    """The derived cases, the drawn ones, then the timed workloads that the target can afford."""
    derived = derived_cases(subject.kernel, subject.compiled, subject.point.tiles, subject.seed)
    cases = list(derived)
    secret = subject.conditions.sizes_secret
    if secret is not None:
        cases += drawn_cases(subject.kernel, subject.compiled, derived, secret, subject.seed)
    cases += cases_of_submitted(subject)
    planted_cases = not_finite_cases(subject.kernel, derived, lambda case: True)
    precompute(subject.kernel, [*cases, *planted_cases])
    cases += [case for case in planted_cases if _reference_takes(subject, case)]
    if subject.target.reserves_addresses:
        cases += far_cases(subject.kernel, derived)
    for workload in subject.workloads:
        case = workload_case(workload, subject.seed)
        if case.flop(subject.kernel) <= subject.target.check_flop_limit:
            cases.append(case)
    if subject.conditions.siblings is not None:
        cases += _cases_of_sibling(subject, subject.conditions.siblings, cases)
    few = few_blocks_cases(subject, derived)
    if few is None:
        cases += walked_cases(subject, derived)
    return [
        *_laid_out(subject, cases),
        *(_laid_out(subject, *few) if few is not None else ()),
    ]


def _reference_takes(subject: Subject, case: Case) -> bool:
    """Whether reference.py has an answer for inputs that are not finite."""
    try:
        subject.target.case_data(subject.kernel, case)
    except SpecError:
        return False
    return True


def _cases_of_sibling(subject: Subject, siblings: Siblings, cases: list[Case]) -> list[Case]:
    """The sibling's smallest cases, as many as `cases` lacks for comparing the two."""
    first = siblings.first(subject.candidate)
    if first is None:
        return []
    own, sibling_cases = {_lengths(case) for case in cases}, _cases_of(subject, first.parameters)
    apart = [case for case in sibling_cases if _lengths(case) not in own]
    missing = ENOUGH_CASES - (len(sibling_cases) - len(apart))
    return sorted(apart, key=lambda case: case.flop(subject.kernel))[: max(missing, 0)]


def _cases_of(subject: Subject, parameters: Items) -> list[Case]:
    """The derived cases of another candidate of the subject's template, without empty ones."""
    tiles = resolve(subject.template, parameters, subject.compiled, subject.target.device).tiles
    return [
        case
        for case in derived_cases(subject.kernel, subject.compiled, tiles, subject.seed)
        if case.flop(subject.kernel) > 0
    ]


def _lengths(case: Case) -> Hashable:
    return case.dims, case.inputs, case.layout, case.seed


def _laid_out(
    subject: Subject, cases: Iterable[Case], point: Resolved | None = None
) -> list[Problem]:
    cases = list(cases)
    precompute(subject.kernel, cases)
    data = [subject.target.case_data(subject.kernel, case) for case in cases]
    with compute_turns.turn(max((array.nbytes for array in data), default=0)):
        return [
            lay_out(subject.kernel, subject.template, point or subject.point, case, each)
            for case, each in zip(cases, data, strict=True)
        ]


def differing_outputs(first: Subject, second: Subject) -> tuple[str, ...]:
    """Cases of `first`, its workloads included, in which the two candidates differ in any bit."""
    cases = [
        *_cases_of(first, first.candidate.parameters),
        *(workload_case(workload, first.seed) for workload in first.workloads),
    ]
    places = []
    runs = (
        subject.target.execute(subject.program, _laid_out(subject, cases))
        for subject in (first, second)
    )
    for run, second_run in zip(*runs, strict=True):
        failure = run.failure or second_run.failure
        if failure is not None:
            places.append(f"{_place(run.problem.case, run.order)}: {failure.sentence}")
        for tensor in (
            tensor for tensor in run.problem.tensors if tensor.role != "input" and failure is None
        ):
            if not np.array_equal(
                *(
                    tensor.view(execution.outputs[tensor.name]).view(f"u{tensor.dtype.itemsize}")
                    for execution in (run, second_run)
                )
            ):
                places.append(f"{_place(run.problem.case, run.order)}: {tensor.name}")
    return tuple(places)


def compare(subject: Subject, execution: Execution) -> tuple[list[CheckEvidence], Reason | None]:
    """Evidence for each output of one run, and the first reason to reject it."""
    case = execution.problem.case
    if execution.failure is not None:
        sentence = f"{_place(case, execution.order)}: {execution.failure.sentence}"
        return [_nothing_came(case, execution.order, sentence)], execution.failure.reason
    data = subject.target.case_data(subject.kernel, case)
    images = [
        (tensor, execution.outputs[tensor.name])
        for tensor in execution.problem.tensors
        if tensor.role != "input" and execution.outputs.get(tensor.name) is not None
    ]
    with compute_turns.turn(max((image.nbytes for _, image in images), default=0)):
        compared = [
            _known_or_compared(subject.kernel, tensor, image, data, case, execution.order)
            for tensor, image in images
        ]
    return [evidence for evidence, _ in compared], next((why for _, why in compared if why), None)


def _known_or_compared(
    kernel: KernelSpec, tensor: Tensor, image: np.ndarray, data: CaseData, case: Case, order: str
) -> tuple[CheckEvidence, Reason | None]:
    """The comparison of an output; equal bytes are compared only once."""
    key = case.layout, tensor.name, hashlib.sha256(image.data).digest()
    if (known := data.passed.get(key)) is not None:
        return replace(known, workload=case.name, order=order), None
    evidence, reason = _compare_output(kernel, tensor, image, data, case, order)
    if reason is None:
        if len(data.passed) >= PASSED_KEPT:
            data.passed.clear()
        data.passed[key] = evidence
    return evidence, reason


def _compare_output(
    kernel: KernelSpec,
    tensor: Tensor,
    image: np.ndarray,
    data: CaseData,
    case: Case,
    order: str,
) -> tuple[CheckEvidence, Reason | None]:
    values = tensor.view(image)
    output, expected = kernel.argument(tensor.name), data.outputs[tensor.name]
    compared = compare_output(kernel, case, output, values, data)
    reason, what = _why(
        tensor,
        image,
        values,
        expected,
        compared,
        lambda: element_errors(case, output, values, data).within,
    )
    worst = compared.worst
    sentence = shown = shown_expected = ""
    if worst:
        shown, shown_expected = _number(values[worst]), _expected_number(expected, worst, values)
    if reason is not None:
        sentence = f"{_place(case, order)}: {what}"
        if worst and reason in (Reason.WRONG_VALUES, Reason.NOT_FINITE):
            sentence += (
                f"; {tensor.name}{list(worst)} is {shown}, expected {shown_expected} "
                f"within {expected.bound[worst]:.2g}; "
                f"{compared.wrong} of {compared.size} elements are out of bound"
            )
            if np.isnan(expected.value[worst]):
                sentence += (
                    "; reference.py gives NaN for this input (where a kernel may drop a NaN, "
                    "np.fmax and np.fmin say so)"
                )
    return CheckEvidence(
        workload=case.name,
        shape=_shape(case),
        inputs=case.inputs,
        layout=case.layout,
        seed=case.seed,
        order=order,
        output=tensor.name,
        passed=reason is None,
        max_abs_error=compared.largest_error if compared.all_finite else None,
        mean_abs_error=compared.mean_error,
        share_out_of_bound=compared.wrong / compared.size if compared.wrong else 0.0,
        sign_bias=compared.sign_bias,
        frobenius_error=compared.frobenius,
        frobenius_allowed=compared.allowed,
        worst_index=worst or (),
        worst_value=shown,
        worst_expected=shown_expected,
        output_digest=hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest(),
        sentence=sentence,
    ), reason


def _number(number: np.generic) -> str:
    """A whole number with all its digits, another one with six."""
    return str(number) if number.dtype.kind in "iu" else f"{float(number):.6g}"


def _expected_number(expected: Expected, place: tuple[int, ...], values: np.ndarray) -> str:
    number = (expected.value if expected.whole is None else expected.whole)[place]
    if values.dtype.kind in "iu" and float(number).is_integer():
        return str(int(number))
    return _number(number)


def _why(
    tensor: Tensor,
    image: np.ndarray,
    values: np.ndarray,
    expected: Expected,
    compared: Comparison,
    within: Callable[[], np.ndarray],
) -> tuple[Reason | None, str]:
    """The most telling fault of an output; `within` gives its elements that are within bounds."""
    outside = tensor.gaps_changed(image)
    if outside:
        return (
            Reason.OUT_OF_BOUNDS,
            f"{outside} bytes between the rows of {tensor.name} were written",
        )
    unwritten = _unwritten(values, within, expected)
    if unwritten:
        return Reason.UNWRITTEN, (
            f"{unwritten} of {values.size} elements of {tensor.name} were never written, or were "
            "computed from memory that never was; a launch does not find zeros in an output"
        )
    # A finite value where NaN is expected has no finite error, but is no wrong kind.
    wrong_kind = 0 if compared.all_finite else _not_finite(values, expected)
    if wrong_kind:
        return (
            Reason.NOT_FINITE,
            f"{wrong_kind} of {values.size} elements of {tensor.name} are NaN or infinite",
        )
    if not compared.all_within:
        return Reason.WRONG_VALUES, f"{tensor.name} is wrong"
    if compared.frobenius_exceeded:
        return Reason.WRONG_VALUES, (
            f"{tensor.name} is within the pointwise bound, but its relative Frobenius error "
            f"{compared.frobenius:.3g} exceeds {compared.allowed:.3g}"
        )
    return None, ""


def _not_finite(values: np.ndarray, expected: Expected) -> int:
    return int((expected.finite & ~np.isfinite(comparable(values))).sum())


def _unwritten(values: np.ndarray, within: Callable[[], np.ndarray], expected: Expected) -> int:
    """Elements that still hold the poison, bit for bit.

    Where NaN is correct, any NaN is: a negated canonical NaN of the hardware has the poison's bits.
    In an integer the poison is a number, which may be within the bound. A wrong byte is the poison
    once in 256 cases, so most of the wrong ones have to be.
    """
    width = values.dtype.itemsize
    bits = np.ascontiguousarray(values).view(f"u{width}")
    untouched = bits == int.from_bytes(bytes([poison_of(values.dtype)]) * width)
    if not untouched.any():
        return 0
    if values.dtype.kind not in "iu":
        return int(np.count_nonzero(untouched & expected.written))
    right = within()
    count = int(np.count_nonzero(untouched & ~right & expected.written))
    return count if width > 1 or 2 * count > np.count_nonzero(~right) else 0


def _nothing_came(case: Case, order: str, sentence: str) -> CheckEvidence:
    return CheckEvidence(
        case.name,
        _shape(case),
        case.inputs,
        case.layout,
        case.seed,
        order,
        "",
        False,
        None,
        None,
        1.0,
        None,
        None,
        None,
        (),
        "",
        "",
        "",
        sentence,
    )


def _shape(case: Case) -> str:
    return " ".join(f"{name}={size}" for name, size in case.dims)


def _place(case: Case, order: str) -> str:
    return (
        f"{case.name} ({_shape(case)}, {case.inputs} inputs, {case.layout}, seed {case.seed}, "
        f"{order} order)"
    )
