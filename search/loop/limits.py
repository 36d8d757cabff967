"""Limits of launches and memory that a workload has to keep, checked before a search begins."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

from greenfast.search.errors import SpecError, UsageError
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.kernels.workloads import Workload
from greenfast.search.oracle.problem import launches, layout_strides
from greenfast.search.oracle.tensor_maps import tensor_maps
from greenfast.search.space.space import Resolved

# CUDA C++ Programming Guide, Compute Capabilities: largest grid and block in x, y and z.
LARGEST_GRID = (2**31 - 1, 65535, 65535)
LARGEST_BLOCK = (1024, 1024, 64)
# An input is drawn in float64, rounded, and laid out: 8 + 8 bytes for each of its elements.
HOST_BYTES_PER_ELEMENT = 16


def require_memory(kernel: KernelSpec, workload: Workload) -> None:
    """UsageError for tensors that this machine's memory cannot hold."""
    elements = sum(
        math.prod(int(dict(workload.dims)[name]) for name in argument.shape)
        for argument in kernel.arguments
        if argument.kind != "scalar"
    )
    available_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if elements * HOST_BYTES_PER_ELEMENT > available_bytes:
        raise UsageError(
            f"workload {workload.name}: its tensors have {elements:,} elements, which take more "
            f"than the {available_bytes >> 30} GiB of memory here",
            code="workload_too_large",
            mend=f"at most {available_bytes // HOST_BYTES_PER_ELEMENT:,} elements",
        )


def require_grid(
    kernel: KernelSpec, point: Resolved, template: TemplateSpec, workload: Workload
) -> None:
    """UsageError for a workload on which no GPU launches this point's grid."""
    values = {**kernel.values_of(dict(workload.dims), dict(workload.options)), **point.values}
    for launch in launches(template, values):
        for axis, blocks, largest in zip("xyz", launch.grid, LARGEST_GRID, strict=True):
            if blocks > largest:
                raise UsageError(
                    f"template {template.name} launches {blocks:,} blocks in {axis} for workload "
                    f"{workload.name}; CUDA allows {largest:,}",
                    code="unsupported_workload",
                )


def require_tensor_maps(
    kernel: KernelSpec, point: Resolved, template: TemplateSpec, workload: Workload
) -> None:
    """UsageError for a workload of which TMA cannot copy this point's tensors.

    They are judged in every layout in which the kernel's checks pass them, too.
    """
    if not template.tensor_maps:
        return
    dims = dict(workload.dims)
    values = {**kernel.values_of(dims, dict(workload.options)), **point.values}
    for layout in dict.fromkeys(("contiguous", *(check.layout for check in kernel.checks))):
        strides = {
            argument.name: layout_strides(
                kernel,
                argument,
                tuple(int(dims[name]) for name in argument.shape),
                "contiguous" if argument.contiguous else layout,
            )[0]
            for argument in kernel.arguments
            if argument.kind != "scalar"
        }
        try:
            tensor_maps(template, values, strides, _scalars(kernel, values, strides))
        except SpecError as error:
            raise UsageError(
                f"{error.message}, for the {layout} tensors of workload {workload.name}",
                code=error.code,
                mend=error.mend,
            ) from error


def _scalars(
    kernel: KernelSpec, values: Mapping[str, Value], strides: Mapping[str, tuple[int, ...]]
) -> dict[str, Value]:
    scalars: dict[str, Value] = {}
    for argument in kernel.arguments:
        if argument.stride_of is not None:
            owner, axis = argument.stride_of
            scalars[argument.name] = strides[owner][axis]
        elif argument.value is not None:
            scalars[argument.name] = argument.value(values)
    return scalars
