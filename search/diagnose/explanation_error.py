"""The error of a wrong candidate characterised: how much, where, at which lengths, how steadily."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from greenfast.search.diagnose.probe_patterns import pattern
from greenfast.search.gates.base import Subject
from greenfast.search.kernels.workloads import Items
from greenfast.search.oracle.cases import Case, derived_cases
from greenfast.search.oracle.comparison import comparable, element_errors
from greenfast.search.oracle.problem import Tensor, lay_out
from greenfast.search.targets.base import Execution
from greenfast.search.verdict import CheckEvidence

MOST_CASES = 4
STEADY_BIAS = 0.5  # a mean signed error of this share of the mean error has a direction
AXIS_NAMES = {"S_q": "row", "S_kv": "key", "B": "batch", "H": "head", "H_kv": "head"}


@dataclass(frozen=True)
class ErrorOfCase:
    """The wrong elements of one output in one run."""

    case: str
    shape: str
    seed: int
    order: str
    output: str
    elements: int
    wrong: int
    share: float
    bias: float | None  # mean signed error / mean absolute error of the wrong elements
    max_error: float | None  # None: not finite
    where: str
    unwritten: bool


@dataclass(frozen=True)
class ErrorShape:
    """The pattern of the wrong values."""

    cases: tuple[ErrorOfCase, ...]
    sentences: tuple[str, ...]


def error_of_subject(subject: Subject, failing: Sequence[str]) -> ErrorShape:
    """Run the failing checks again, the first of them twice, and describe the wrong elements."""
    cases = [
        case
        for case in derived_cases(
            subject.kernel, subject.compiled, subject.point.tiles, subject.seed
        )
        if not failing or case.name in failing
    ]
    first_of_each = list({case.name: case for case in reversed(cases)}.values())[::-1]
    examined = first_of_each[:MOST_CASES]
    if not examined:
        return ErrorShape((), ())
    runs = [*examined, examined[0], examined[0]]
    problems = [
        lay_out(
            subject.kernel,
            subject.template,
            subject.point,
            case,
            subject.target.case_data(subject.kernel, case),
        )
        for case in runs
    ]
    errors: list[ErrorOfCase] = []
    images: list[tuple[Case, str, tuple[bytes, ...]]] = []
    for execution in subject.target.execute(subject.program, problems):
        if execution.failure is not None:
            return ErrorShape(
                tuple(errors), (f"a run ends without outputs: {execution.failure.sentence}",)
            )
        errors += _errors(subject, execution)
        outputs = tuple(
            np.ascontiguousarray(tensor.view(execution.outputs[tensor.name])).tobytes()
            for tensor in execution.problem.tensors
            if tensor.role == "output" and execution.outputs.get(tensor.name) is not None
        )
        images.append((execution.problem.case, execution.order, outputs))
    return ErrorShape(tuple(errors), tuple(_sentences(errors, images)))


def _errors(subject: Subject, execution: Execution) -> list[ErrorOfCase]:
    case = execution.problem.case
    data = subject.target.case_data(subject.kernel, case)
    errors = []
    for tensor in execution.problem.tensors:
        image = execution.outputs.get(tensor.name)
        if tensor.role != "output" or image is None or tensor.name not in data.outputs:
            continue
        got = comparable(tensor.view(image))
        compared = element_errors(
            case, subject.kernel.argument(tensor.name), tensor.view(image), data
        )
        wrong = ~compared.within
        errors.append(_error(subject, case, execution.order, tensor, got, compared.signed, wrong))
    return errors


def _error(
    subject: Subject,
    case: Case,
    order: str,
    tensor: Tensor,
    got: np.ndarray,
    signed: np.ndarray,
    wrong: np.ndarray,
) -> ErrorOfCase:
    count = int(wrong.sum())
    of_wrong = signed[wrong]
    finite = bool(np.isfinite(of_wrong).all())
    size = float(np.abs(of_wrong).mean()) if count and finite else 0.0
    where = ""
    if count:
        axes = axis_names(subject.kernel.argument(tensor.name).shape)
        tiles = axis_tiles(axes, subject.point.tiles)
        warp_rows = subject.template.warp_rows
        rows = int(warp_rows(subject.point.values)) if warp_rows else 0
        where = pattern(wrong, np.ones(wrong.shape, bool), axes, tiles, {}, rows)
    return ErrorOfCase(
        case.name,
        shape_of(case.dims),
        case.seed,
        order,
        tensor.name,
        int(wrong.size),
        count,
        count / wrong.size if wrong.size else 0.0,
        float(of_wrong.mean()) / size if size else None,
        float(np.abs(of_wrong).max()) if count and finite else None,
        where,
        bool(count and np.isnan(got[wrong]).all()),
    )


def axis_names(shape: Sequence[str]) -> list[str]:
    """Names of an output's axes, as people speak of them; the last of several is `column`."""
    names = [AXIS_NAMES.get(dim, dim) for dim in shape]
    if len(names) > 1 and names[-1] == shape[-1]:
        names[-1] = "column"
    if len(names) == 2 and names[0] == shape[0]:
        names[0] = "row"
    return names if len(names) > 1 else ["element"]


def axis_tiles(axes: Sequence[str], tiles: Mapping[str, int]) -> dict[str, int]:
    """Elements of a tile along the axes for which the template names one."""
    known = {}
    for axis in axes:
        names = {"row": ("tile_q", "tile_m", "tile_rows"), "element": ("tile_q",)}.get(axis, ())
        size = next((tiles[name] for name in names if name in tiles), None)
        if size is not None:
            known[axis] = size
    return known


def shape_of(dims: Items) -> str:
    return " ".join(f"{name}={size}" for name, size in dims)


def _sentences(
    errors: Sequence[ErrorOfCase], images: Sequence[tuple[Case, str, tuple[bytes, ...]]]
) -> list[str]:
    wrong = [error for error in errors if error.wrong]
    if not wrong:
        return ["the values are correct in this run: the failure does not happen each time"]
    worst = max(wrong, key=lambda error: error.share)
    share = f"{worst.share:.1%} of the elements of {worst.output} are out of bound"
    sentences = [f"{share} in {worst.case} ({worst.shape}), {worst.where}"]
    if worst.unwritten:
        sentences.append("the wrong elements were never written")
    biased = [error for error in wrong if error.bias is not None]
    steady = [error for error in biased if abs(error.bias or 0.0) >= STEADY_BIAS]
    if biased and len(steady) == len(biased):
        signs = {(error.bias or 0.0) > 0 for error in steady}
        if len(signs) == 1:
            sentences.append(f"the values are too {'large' if signs.pop() else 'small'} throughout")
    elif biased:
        sentences.append("the errors have no common sign")
    sentences += _between_runs(images)
    return sentences


def _between_runs(images: Sequence[tuple[Case, str, tuple[bytes, ...]]]) -> list[str]:
    """The first case ran three times, where the target has schedules in different orders."""
    first = images[0][0]
    same = [(order, outputs) for case, order, outputs in images if case == first]
    if len(same) < 2:
        return []
    orders = ", ".join(dict.fromkeys(order for order, _ in same))
    if len({outputs for _, outputs in same}) > 1:
        varies = f"the same inputs give different results from run to run ({orders} order)"
        return [f"{varies}: look for a race"]
    return [f"{len(same)} runs of the same inputs agree bit for bit ({orders} order)"]


def with_length(checks: Sequence[CheckEvidence]) -> str:
    """How the failures of the stored checks depend on their sizes; empty if they do not."""
    sizes: dict[str, dict[bool, set[int]]] = {}
    for check in checks:
        for word in check.shape.split():
            name, _, size = word.partition("=")
            if size.isdecimal():
                sizes.setdefault(name, {True: set(), False: set()})[check.passed].add(int(size))
    for name, groups in sizes.items():
        passed, failed = groups[True], groups[False]
        if not passed or not failed:
            continue
        if min(failed) > max(passed):
            return f"it fails from {name}={min(failed)} on, and passes up to {max(passed)}"
        if max(failed) < min(passed):
            return f"it fails up to {name}={max(failed)}, and passes from {min(passed)} on"
    total = len(checks)
    failed_checks = sum(not check.passed for check in checks)
    return f"{failed_checks} of {total} stored checks failed" if 0 < failed_checks < total else ""
