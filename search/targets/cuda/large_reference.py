"""References of large workloads on the GPU: the kernel's own reference.py, in float64, with CuPy for its arrays.

A `reference` that takes a fourth argument, `xp`, says that it works with CuPy's arrays, too. It is believed after it
agreed with NumPy on a small case of the same options. Otherwise, and where CuPy lacks something, NumPy does it all.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.oracle.cases import Case, derived_cases
from greenfast.search.oracle.reference import Arrays, described_module, kernel_module
from greenfast.search.oracle.reference_children import described_case, described_kernel
from greenfast.search.space.space import resolve

LARGE_FLOP = 4e9  # below, NumPy is done before a GPU has begun
# Largest differences from NumPy, relative to the largest value of a field. A bound may be made of float32 sums; in the
# model of rounding NumPy may round twice.
CLOSE = {"value": 1e-12, "bound": 1e-4}
ROUNDED_CLOSE = 0.1  # Frobenius, of what rounding costs


def takes_cupy(kernel: KernelSpec) -> bool:
    return "xp" in inspect.signature(kernel_module(kernel).reference).parameters


def described(kernel: KernelSpec, case: Case) -> dict[str, Any]:
    """What the measuring child needs to compute it by itself."""
    return {**described_kernel(kernel), **described_case(case)}


def computed(request: Mapping[str, Any], xp: Any) -> Arrays:
    """In the child: the reference of what `described` made."""
    module = described_module(request)
    inputs = module.make_inputs(
        request["dims"], request["options"], request["inputs"], request["seed"], request["tiles"]
    )
    return module.reference(request["dims"], request["options"], inputs, xp)


def small_case(kernel: KernelSpec, case: Case) -> Case:
    """The largest of the kernel's checks, sized for its baseline, with the options of `case`."""
    dims = dict(case.dims)
    compiled = (
        *((dim.name, dims[dim.name]) for dim in kernel.dims if dim.time == "compile"),
        *case.options,
    )
    template, preset = kernel.preset(kernel.baseline)
    tiles = resolve(template, preset.parameters, compiled).tiles
    return max(
        derived_cases(kernel, compiled, tiles, case.seed),
        key=lambda one: kernel.work_flop(one.values(kernel)),
    )


def agrees(
    kernel: KernelSpec, case: Case, compute: Callable[[KernelSpec, Case], Arrays | None]
) -> bool:
    """Whether `compute` gives what NumPy does on a small case of the same options."""
    small = small_case(kernel, case)
    found = compute(kernel, small)
    return found is not None and close(found, computed(described(kernel, small), np))


def close(found: Arrays, right: Arrays) -> bool:
    """Field by field, by the tolerances above; infinities in the same places."""
    if {name: set(one) for name, one in found.items()} != {
        name: set(one) for name, one in right.items()
    }:
        return False
    for name, fields in right.items():
        for field, one in fields.items():
            other = found[name][field]
            if (one is None) != (other is None):
                return False
            if one is not None and not _close(field, other, one, fields["value"]):
                return False
    return True


def _close(field: str, found: np.ndarray, right: np.ndarray, value: np.ndarray) -> bool:
    finite = np.isfinite(right)
    if found.shape != right.shape or not np.array_equal(found[~finite], right[~finite]):
        return False
    difference = np.abs(found[finite] - right[finite])
    if field == "rounded":
        return bool(
            np.linalg.norm(difference) <= ROUNDED_CLOSE * np.linalg.norm((right - value)[finite])
        )
    return bool((difference <= CLOSE[field] * np.abs(right[finite]).max(initial=0.0)).all())
