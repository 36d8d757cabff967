"""The test itself is judged: obviously wrong outputs must be refused by a kernel's checks.

A reference whose outputs are all nearly zero, or whose bounds are wide, accepts a kernel that
computes nothing. Each wrong output here is one that a broken or dishonest kernel writes: zeros,
neighbouring rows, an input. The test is weak where no case refuses it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from greenfast.search.kernels.spec import Argument, KernelSpec
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.comparison import compare_output
from greenfast.search.oracle.expected import CaseData
from greenfast.search.oracle.reference import kernel_module
from greenfast.search.oracle.storage import DTYPES

DataOf = Callable[[Case], CaseData]
Wrong = Callable[[np.ndarray, CaseData], np.ndarray | None]  # None: a case without such an output

_KEPT_JUDGEMENTS = 256


@dataclass(frozen=True)
class Weakness:
    """A wrong output that no case refuses."""

    output: str
    accepts: str  # "zeros"
    cases: int  # that had such an output

    @property
    def sentence(self) -> str:
        cases = "the only case" if self.cases == 1 else f"all {self.cases} cases"
        return f"it accepts {self.accepts} as {self.output} in {cases}"


def weakness_sentence(sentences: Sequence[str]) -> str:
    """All weaknesses of a test in one sentence for people; empty without weaknesses."""
    return "this test is weak: " + "; ".join(sentences) if sentences else ""


class Judgements:
    """Weaknesses by reference and cases, so that a search judges its test once."""

    def __init__(self) -> None:
        self._kept: dict[object, tuple[Weakness, ...]] = {}
        self._lock = threading.Lock()

    def of(
        self, kernel: KernelSpec, cases: Sequence[Case], data_of: DataOf
    ) -> tuple[Weakness, ...]:
        # The name of a reference's module holds the digest of its text.
        key = (
            kernel_module(kernel).__name__,
            tuple(dict.fromkeys((case.name, case.inputs, case.options) for case in cases)),
        )
        with self._lock:
            if key in self._kept:
                return self._kept[key]
        weaknesses = judged_reference(kernel, cases, data_of)
        with self._lock:
            if len(self._kept) >= _KEPT_JUDGEMENTS:
                self._kept.clear()
            self._kept[key] = weaknesses
        return weaknesses


JUDGEMENTS = Judgements()


def judged_reference(
    kernel: KernelSpec, cases: Iterable[Case], data_of: DataOf
) -> tuple[Weakness, ...]:
    """The wrong outputs that the kernel's test accepts on all of `cases`.

    A wrong output that happens to be correct in a case proves nothing there, except that
    zeros and a constant are never a result worth computing.
    """
    cases = sorted(cases, key=lambda case: -_elements(kernel, case))  # large ones refuse most
    weaknesses = []
    for output in (argument for argument in kernel.arguments if argument.kind == "output"):
        for name, wrong, always in _wrong_outputs(kernel, output):
            accepted = _accepting_cases(kernel, cases, data_of, output, wrong, always)
            if accepted:
                weaknesses.append(Weakness(output.name, name, accepted))
    return tuple(weaknesses)


def _accepting_cases(
    kernel: KernelSpec,
    cases: Sequence[Case],
    data_of: DataOf,
    output: Argument,
    wrong: Wrong,
    always: bool,
) -> int:
    """The number of cases that accept the wrong output; 0 as soon as one of them refuses it."""
    accepted = 0
    for case in cases:
        data = data_of(case)
        value = data.outputs[output.name].value
        if not value.size:
            continue
        with np.errstate(all="ignore"):
            guess = wrong(value, data)
            if guess is None:
                continue
            stored, correct = (_stored(array, output, case) for array in (guess, value))
        if not always and np.array_equal(stored, correct, equal_nan=True):
            continue
        if not compare_output(kernel, case, output, stored, data).passes:
            return 0
        accepted += 1
    return accepted


def _stored(values: np.ndarray, output: Argument, case: Case) -> np.ndarray:
    """The values as a kernel would have stored them."""
    dtype = DTYPES[str(dict(case.options)["dtype"]) if output.dtype == "dtype" else output.dtype]
    stored: np.ndarray = values.astype(dtype).astype(np.float64)
    return stored


def _elements(kernel: KernelSpec, case: Case) -> float:
    return case.flop(kernel)


def _wrong_outputs(kernel: KernelSpec, output: Argument) -> Iterator[tuple[str, Wrong, bool]]:
    """(name, wrong output, whether it is wrong even where it is the correct one)."""
    rank = len(output.shape)
    yield "zeros", lambda value, data: np.zeros_like(value), True
    yield "a constant", _constant, True
    yield "half of the values", lambda value, data: value * _first_half(value), False
    yield "values half as large", lambda value, data: 0.5 * value, False
    names = {1: "elements", 2: "columns"}.get(min(rank, 2), "elements")
    yield f"{names} off by one", _rolled(-1, lambda size: 1), False
    yield "halves swapped", _rolled(-1, lambda size: size // 2), False
    if rank >= 2:
        yield "rows off by one", _rolled(-2, lambda size: 1), False
        yield "rows in reverse order", _reversed_rows, False
        yield "the transpose", _transposed, False
    for axis in range(rank - 2):
        yield f"another {output.shape[axis]}'s rows", _rolled(axis, lambda size: 1), False
    for argument in kernel.arguments:
        if argument.kind == "input" and argument.dtype != "uint8":
            yield f"the input {argument.name}", _input(argument.name), False


def _constant(value: np.ndarray, data: CaseData) -> np.ndarray | None:
    finite = value[np.isfinite(value)]
    if value.size < 2 or not finite.size:
        return None
    return np.full_like(value, finite.mean())


def _first_half(value: np.ndarray) -> np.ndarray:
    return (np.arange(value.size) < value.size / 2).reshape(value.shape)


def _rolled(axis: int, by: Callable[[int], int]) -> Wrong:
    def rolled(value: np.ndarray, data: CaseData) -> np.ndarray | None:
        size = value.shape[axis]
        return np.roll(value, by(size), axis) if size > 1 else None

    return rolled


def _reversed_rows(value: np.ndarray, data: CaseData) -> np.ndarray | None:
    return np.flip(value, -2) if value.shape[-2] > 1 else None


def _transposed(value: np.ndarray, data: CaseData) -> np.ndarray | None:
    rows, columns = value.shape[-2:]
    return np.swapaxes(value, -1, -2) if rows == columns > 1 else None


def _input(name: str) -> Wrong:
    def copied(value: np.ndarray, data: CaseData) -> np.ndarray | None:
        array = data.inputs[name]
        return array.astype(np.float64) if array.shape == value.shape else None

    return copied
