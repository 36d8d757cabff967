"""The data of a case: inputs, and for each output the correct result with its bounds."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from greenfast.search.oracle.read_tiles import TilesRead

BLOCK = 2**20  # elements: 8 MB of float64


def frobenius_norm(values: np.ndarray) -> float:
    """The Frobenius norm, without BLAS: its threads and locks make concurrent callers wait."""
    flat = values.ravel()
    return math.sqrt(float(np.einsum("i,i->", flat, flat)))


def distance(model: np.ndarray, value: np.ndarray) -> float:
    """The Frobenius norm of the difference, which is never held as a whole where it is large."""
    flat, exact = model.ravel(), value.ravel()
    norms = (
        frobenius_norm(flat[begin : begin + BLOCK] - exact[begin : begin + BLOCK])
        for begin in range(0, flat.size, BLOCK)
    )
    return math.hypot(*norms)


@dataclass(frozen=True)
class Expected:
    """One output. All arrays have its shape.

    `value` is the correct result in float64, and `bound` the largest allowed |output - value|.
    `whole` is the same of an int64 output, which float64 cannot hold beyond 2^53.
    `rounded` is a float64 model in which only stored values are rounded; an output's total error
    may be at most twice that of `rounded`. None: only the pointwise bound applies.
    """

    value: np.ndarray
    bound: np.ndarray
    rounded: np.ndarray | None
    undefined: np.ndarray | None = None  # where any output is correct: not_finite.py
    whole: np.ndarray | None = None  # int64; None: the output has another type

    @cached_property
    def finite(self) -> np.ndarray:
        mask: np.ndarray = np.isfinite(self.value)
        return mask

    @cached_property
    def written(self) -> np.ndarray | bool:
        """Where the output must not be NaN, so that a NaN there is unwritten poison."""
        if self.all_finite and self.undefined is None:
            return True
        nan: np.ndarray = np.isnan(self.value)
        return ~nan if self.undefined is None else ~(nan | self.undefined)

    @cached_property
    def all_finite(self) -> bool:
        return bool(self.finite.all())

    @cached_property
    def norm(self) -> float:
        """Frobenius norm of the finite elements."""
        return frobenius_norm(self.value if self.all_finite else self.value[self.finite])

    @cached_property
    def rounding(self) -> float:
        """Frobenius norm of the error that rounding alone causes; needs `rounded`."""
        assert self.rounded is not None, "this output has no model of rounding"
        if self.all_finite:
            return distance(self.rounded, self.value)
        return distance(self.rounded[self.finite], self.value[self.finite])


def blocks(values: np.ndarray, expected: Expected) -> Iterator[tuple[int, np.ndarray, Expected]]:
    """An output and what it should be in blocks of elements, each with the index of its first.

    Large outputs are flattened; a small one is a block as it is.
    """
    if values.size <= BLOCK:
        if values.size:
            yield 0, values, expected
        return
    flat = values.reshape(-1)
    fields = {
        name: array.reshape(-1)
        for name in ("value", "bound", "undefined", "whole")
        if (array := getattr(expected, name)) is not None
    }
    for first in range(0, values.size, BLOCK):
        part = slice(first, first + BLOCK)
        of_part = {name: array[part] for name, array in fields.items()}
        yield first, flat[part], Expected(rounded=None, **of_part)


@dataclass(frozen=True)
class CaseData:
    """Inputs by argument name (logical order, storage dtype), and the expected outputs."""

    inputs: dict[str, np.ndarray]
    outputs: dict[str, Expected]
    # Tensors made of this data, kept because every candidate that runs the case needs them.
    laid_out: dict[Hashable, Any] = field(default_factory=dict, compare=False)
    # Evidence for outputs that passed, by their bytes: many candidates leave the same ones.
    passed: dict[Hashable, Any] = field(default_factory=dict, compare=False)
    tiles_read: TilesRead | None = field(default=None, compare=False)  # None: not known

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays; the inputs count twice, since they are also laid out."""
        expected = (
            array
            for output in self.outputs.values()
            for array in (output.value, output.bound, output.rounded, output.whole)
            if array is not None
        )
        inputs_bytes = sum(array.nbytes for array in self.inputs.values())
        return 2 * inputs_bytes + sum(array.nbytes for array in expected)


Arrays = dict[str, dict[str, np.ndarray | None]]  # output -> the fields of Expected
