"""Outputs that differ between orders of threads, in runs without a finding.

Atomics order two accesses without saying which comes first. A lock, a queue or a counter may
therefore give another output in another order, all without a race. That may be intended, as in a
list whose elements have no order, so it is a note. A sum of floats by atomics only rounds
differently, which is no error at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from greenfast.search.oracle.problem import Tensor
from greenfast.search.targets.base import Checked
from greenfast.search.verdict import SafetyFinding

KIND = "order_dependent"
# Of a value, or of the output's root mean square: what sums in other orders usually differ by.
ROUNDING_EPSILONS = 2.0**13


@dataclass(frozen=True)
class Dependence:
    """What orders of threads change in a kernel's outputs."""

    beyond_rounding: tuple[SafetyFinding, ...] = ()
    rounding: tuple[str, ...] = ()  # sentences


def order_dependence(runs: Sequence[Checked]) -> Dependence:
    """The outputs that differ between the first run and another one of the same problem."""
    done = [run for run in runs if run.outputs]
    if len(done) < 2 or any(run.findings for run in runs):
        return Dependence()
    found: list[SafetyFinding] = []
    rounding: list[str] = []
    for tensor in done[0].problem.tensors:
        if tensor.name not in done[0].outputs:
            continue
        differing = [other for other in done[1:] if _differs(tensor, done[0], other)]
        if not differing:
            continue
        worst = max(differing, key=lambda other: _distance(tensor, done[0], other))
        if _distance(tensor, done[0], worst) > 1:
            found.append(_finding(tensor, done[0], worst))
        else:
            rounding.append(_rounding(tensor, done[0], worst))
    return Dependence(tuple(found), tuple(rounding))


def _values(tensor: Tensor, run: Checked) -> np.ndarray:
    return tensor.view(run.outputs[tensor.name])


def _differs(tensor: Tensor, one: Checked, other: Checked) -> bool:
    return not np.array_equal(one.outputs[tensor.name], other.outputs[tensor.name])


def _in_steps(tensor: Tensor, one: Checked, other: Checked) -> np.ndarray:
    return steps_between(_values(tensor, one), _values(tensor, other))


def steps_between(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The difference of each element; above 1 it is more than rounding."""
    if first.dtype.kind in "iub":
        return np.where(first == second, 0.0, np.inf)
    epsilon = _epsilon(first.dtype)
    first, second = first.astype(np.float64), second.astype(np.float64)
    finite = np.isfinite(first) & np.isfinite(second)
    scale = float(np.sqrt(np.mean(first[finite] ** 2))) if finite.any() else 0.0
    with np.errstate(invalid="ignore"):
        size = np.maximum(np.maximum(np.abs(first), np.abs(second)), scale)
        steps = np.abs(first - second) / np.maximum(size * epsilon * ROUNDING_EPSILONS, 1e-300)
    alike = (first == second) | (np.isnan(first) & np.isnan(second))
    return np.where(alike, 0.0, np.where(finite, steps, np.inf))


def _epsilon(dtype: np.dtype) -> float:
    """The spacing of numbers at 1; a narrow type is a rounded sum of a wide one."""
    step = float(np.spacing(np.ones(1, dtype))[0])
    return max(step / (2.0**9 if dtype.itemsize < 4 else 1.0), 2.0**-52)


def _distance(tensor: Tensor, one: Checked, other: Checked) -> float:
    return float(_in_steps(tensor, one, other).max(initial=0.0))


def _finding(tensor: Tensor, one: Checked, other: Checked) -> SafetyFinding:
    steps = _in_steps(tensor, one, other)
    index = tuple(int(each) for each in np.argwhere(steps > 1)[0])
    first, second = (shown_number(_values(tensor, run)[index]) for run in (one, other))
    sentence = (
        f"{int((steps > 1).sum()):,} of {steps.size:,} elements of {tensor.name} differ between "
        f"orders of the threads: {tensor.name}{list(index)} is {first} in the order {_order(one)} "
        f"and {second} in {_order(other)}; nothing races, so atomics or volatile accesses decide "
        "which thread comes first, and the kernel is correct only if it may leave either"
    )
    return SafetyFinding(KIND, sentence, memory=f"global:{tensor.name}")


def _rounding(tensor: Tensor, one: Checked, other: Checked) -> str:
    steps = _in_steps(tensor, one, other)
    return (
        f"{int((steps > 0).sum()):,} of {steps.size:,} elements of {tensor.name} differ by "
        "rounding between orders of the threads, as sums of floats by atomics do; this is no defect"
    )


def _order(run: Checked) -> str:
    return run.order.partition(":")[0]


def shown_number(value: np.generic) -> str:
    return str(value) if value.dtype.kind in "iub" else f"{float(value):.9g}"
