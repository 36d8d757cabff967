"""The tensor maps of a template for concrete sizes and strides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from greenfast.search.devices.tensor_map import ELEMENT_BYTES, TensorMap, misfit
from greenfast.search.errors import SpecError
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import TemplateSpec
from greenfast.search.kernels.tensor_map_spec import TensorMapSpec, whole


def tensor_maps(
    template: TemplateSpec,
    values: Mapping[str, Value],
    strides: Mapping[str, Sequence[int]],
    scalars: Mapping[str, Value],
) -> tuple[TensorMap, ...]:
    """The maps that the entries take, in order; SpecError `tensor_map` when no GPU has such a map.

    `strides`: of each tensor, in elements. `scalars`: the kernel's, which include strides.
    """
    present = {*strides, *(workspace.name for workspace in template.scratch(values))}
    for spec in template.mapped(values):
        if spec.tensor not in present:
            raise SpecError(
                f"template {template.name}, tensor map {spec.name}: the workspace {spec.tensor} "
                "is absent for these parameters",
                code="tensor_map",
                mend="give the map the same `when` as its workspace",
            )
    return tuple(
        _checked(template, spec, _tensor_map(spec, values, strides, scalars))
        for spec in template.mapped(values)
    )


def _tensor_map(
    spec: TensorMapSpec,
    values: Mapping[str, Value],
    strides: Mapping[str, Sequence[int]],
    scalars: Mapping[str, Value],
) -> TensorMap:
    every = {**scalars, **values}
    dtype = str(values["dtype"]) if spec.dtype == "dtype" else spec.dtype
    elements = (
        [int(strides[spec.tensor][axis]) for axis in spec.axes[1:]]
        if spec.axes
        else [whole(stride, every) for stride in spec.strides]
    )
    return TensorMap(
        name=spec.name,
        buffer=spec.tensor,
        dtype=dtype,
        sizes=tuple(whole(size, values) or 1 for size in spec.sizes),
        strides_bytes=tuple(stride * ELEMENT_BYTES[dtype] for stride in elements),
        box=tuple(whole(size, values) for size in spec.box),
        swizzle_bytes=whole(spec.swizzle_bytes, values),
        fill=spec.fill,
        l2_promotion_bytes=whole(spec.l2_promotion_bytes, values),
    )


def _checked(template: TemplateSpec, spec: TensorMapSpec, tensor_map: TensorMap) -> TensorMap:
    if (reason := misfit(tensor_map)) is not None:
        raise SpecError(
            f"template {template.name}, tensor map {spec.name} of {spec.tensor}: {reason.sentence}",
            code="tensor_map",
            mend=reason.mend,
        )
    return tensor_map
