"""References of large workloads on the GPU: the kernel's own reference.py, in float64, with CuPy.

A `reference` with a fourth parameter, `xp`, declares that it accepts CuPy's arrays. Its results on
the GPU are used once they have agreed with NumPy on a small case of the same options. Otherwise,
and where CuPy lacks a function, NumPy computes the reference.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from greenfast.search.devices.facts import Device
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.oracle.cases import Case, derived_cases
from greenfast.search.oracle.expected import Arrays
from greenfast.search.oracle.reference import kernel_module
from greenfast.search.oracle.reference_children import described_case, described_kernel
from greenfast.search.oracle.reference_module import described_module
from greenfast.search.space.space import resolve

# Largest differences from NumPy, relative to the largest value of a field. A bound may be computed
# from float32 sums, and in the model of rounding NumPy may round twice.
CLOSE = {"value": 1e-12, "bound": 1e-4}
ROUNDED_CLOSE = 0.1  # of the rounding error's Frobenius norm


def takes_cupy(kernel: KernelSpec) -> bool:
    return "xp" in inspect.signature(kernel_module(kernel).reference).parameters


def described(kernel: KernelSpec, case: Case) -> dict[str, Any]:
    """The kernel and the case as JSON, from which the measuring child computes the reference."""
    return {**described_kernel(kernel), **described_case(case)}


def computed(request: Mapping[str, Any], xp: Any) -> Arrays:
    """In the child: the reference for a request made by `described`, with the arrays of `xp`."""
    module = described_module(request)
    inputs = module.make_inputs(
        request["dims"], request["options"], request["inputs"], request["seed"], request["tiles"]
    )
    reference: Arrays = module.reference(request["dims"], request["options"], inputs, xp)
    return reference


def small_case(kernel: KernelSpec, case: Case, device: Device) -> Case:
    """The largest of the kernel's checks, sized for its baseline on `device`.

    It has the options of `case`.
    """
    dims = dict(case.dims)
    compiled = (
        *((dim.name, dims[dim.name]) for dim in kernel.dims if dim.time == "compile"),
        *case.options,
    )
    template, preset = kernel.preset(kernel.baseline)
    tiles = resolve(template, preset.parameters, compiled, device).tiles
    return max(
        derived_cases(kernel, compiled, tiles, case.seed),
        key=lambda derived: derived.flop(kernel),
    )


def agrees(
    kernel: KernelSpec,
    case: Case,
    device: Device,
    compute: Callable[[KernelSpec, Case], Arrays | None],
) -> bool:
    """Whether `compute` agrees with NumPy on a small case of the same options."""
    small = small_case(kernel, case, device)
    arrays = compute(kernel, small)
    return arrays is not None and close(arrays, computed(described(kernel, small), np))


def close(arrays: Arrays, expected: Arrays) -> bool:
    """Whether all fields agree within the tolerances above, with infinities in the same places."""
    if {name: set(fields) for name, fields in arrays.items()} != {
        name: set(fields) for name, fields in expected.items()
    }:
        return False
    for name, fields in expected.items():
        value = fields["value"]
        for field, expected_array in fields.items():
            array = arrays[name][field]
            if array is None or expected_array is None:
                if array is not expected_array:
                    return False
            elif value is None or not _close(field, array, expected_array, value):
                return False
    return True


def _close(field: str, array: np.ndarray, expected: np.ndarray, value: np.ndarray) -> bool:
    finite = np.isfinite(expected)
    if array.shape != expected.shape or not np.array_equal(array[~finite], expected[~finite]):
        return False
    difference = np.abs(array[finite] - expected[finite])
    if field == "rounded":
        rounding = np.linalg.norm((expected - value)[finite])
        return bool(np.linalg.norm(difference) <= ROUNDED_CLOSE * rounding)
    return bool((difference <= CLOSE[field] * np.abs(expected[finite]).max(initial=0.0)).all())
