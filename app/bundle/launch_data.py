"""The parts of launch.json that kernel.toml and template.toml give: expressions and numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from greenfast.search.devices.tensor_map import ELEMENT_BYTES, STRIDES_BELOW_BYTES, UNIT_BYTES
from greenfast.search.kernels.expressions import Expression, Value
from greenfast.search.kernels.spec import KernelSpec, TemplateSpec
from greenfast.search.kernels.tensor_map_spec import TensorMapSpec, whole


def launch_texts(template: TemplateSpec, values: Mapping[str, Value]) -> dict[str, Any]:
    """The entries `launches` and `tensor_maps`, with the template's own expressions."""
    return {
        "launches": [
            {
                "entry": launch.entry,
                "grid": [size.text for size in launch.grid],
                "block": [size.text for size in launch.block],
                "cluster": [size.text for size in launch.cluster],
                "smem_dynamic_bytes": launch.smem_dynamic_bytes.text,
            }
            for launch in template.launched(values)
        ],
        **_tensor_maps(template.mapped(values)),
    }


def alignments(
    kernel: KernelSpec,
    template: TemplateSpec,
    values: Mapping[str, Value],
    options: Mapping[str, Any],
) -> dict[str, dict[str, int]]:
    """The entry `alignment`: what the kernel asks of each tensor's address and strides, in bytes.

    A tensor without `stride_bytes` is dense. The last dim's stride is one element in any case.
    """
    mapped = {each.tensor for each in template.mapped(values)}
    strided = {each.stride_of[0] for each in kernel.arguments if each.stride_of is not None}
    needs: dict[str, dict[str, int]] = {}
    for argument in kernel.arguments:
        if argument.kind == "scalar":
            continue
        dtype = str(options["dtype"]) if argument.dtype == "dtype" else argument.dtype
        unit = UNIT_BYTES if argument.name in mapped else 1
        need = {"pointer_bytes": math.lcm(kernel.pointer_bytes, unit)}
        if argument.name in strided:
            stride_bytes = kernel.stride_elements * ELEMENT_BYTES[dtype]
            need["stride_bytes"] = math.lcm(stride_bytes, unit)
        if argument.name in mapped:
            need["strides_below_bytes"] = STRIDES_BELOW_BYTES
        needs[argument.name] = need
    return needs


def _tensor_maps(maps: tuple[TensorMapSpec, ...]) -> dict[str, Any]:
    """The entry `tensor_maps`, with expressions; none for a kernel without maps."""

    def texts(expressions: tuple[Expression, ...]) -> list[str]:
        return [expression.text for expression in expressions]

    entries = [
        {
            "name": each.name,
            "tensor": each.tensor,
            "dtype": each.dtype,
            "sizes": texts(each.sizes),
            "axes": list(each.axes),
            "strides": texts(each.strides),
            "box": texts(each.box),
            "swizzle_bytes": each.swizzle_bytes.text,
            "fill": each.fill,
            "l2_promotion_bytes": each.l2_promotion_bytes.text,
        }
        for each in maps
    ]
    return {"tensor_maps": entries} if entries else {}


def launch_numbers(
    kernel: KernelSpec,
    template: TemplateSpec,
    values: Mapping[str, Value],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """The entries `constants`, `interface` and `entries`; `values` are those of a point."""
    return {
        "constants": dict(values),
        "interface": [
            *(_argument(argument, options) for argument in kernel.arguments),
            *(
                {
                    "name": scalar.name,
                    "kind": "scalar",
                    "dtype": scalar.dtype,
                    "value": scalar.value.text,
                }
                for scalar in template.own_scalars(values)
            ),
            *(
                {
                    "name": workspace.name,
                    "kind": "workspace",
                    "bytes": workspace.bytes.text,
                    "zero_fill": workspace.zero_fill,
                }
                for workspace in template.scratch(values)
            ),
            *(_numbers_of_map(each, values, options) for each in template.mapped(values)),
        ],
        "entries": [
            {
                "entry": launch.entry,
                "grid": [size.text for size in launch.grid],
                "block": [int(size(values)) for size in launch.block],
                "cluster": [int(size(values)) for size in launch.cluster],
                "smem_dynamic_bytes": int(launch.smem_dynamic_bytes(values)),
            }
            for launch in template.launched(values)
        ],
    }


def _numbers_of_map(
    spec: TensorMapSpec, values: Mapping[str, Value], options: Mapping[str, Any]
) -> dict[str, Any]:
    """A map that the caller encodes; only its sizes and strides depend on the call."""
    return {
        "name": spec.name,
        "kind": "tensor_map",
        "tensor": spec.tensor,
        "dtype": str(options["dtype"]) if spec.dtype == "dtype" else spec.dtype,
        "sizes": [size.text for size in spec.sizes],
        "axes": list(spec.axes),
        "strides": [stride.text for stride in spec.strides],
        "box": [whole(size, values) for size in spec.box],
        "swizzle_bytes": whole(spec.swizzle_bytes, values),
        "fill": spec.fill,
        "l2_promotion_bytes": whole(spec.l2_promotion_bytes, values),
    }


def _argument(argument: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    if argument.kind == "scalar":
        scalar = {"name": argument.name, "kind": "scalar", "dtype": argument.dtype}
        if argument.stride_of is not None:
            return {**scalar, "stride_of": list(argument.stride_of)}
        return {**scalar, "value": argument.value.text}
    return {
        "name": argument.name,
        "kind": argument.kind,
        "dtype": str(options["dtype"]) if argument.dtype == "dtype" else argument.dtype,
        "shape": list(argument.shape),
        "contiguous": argument.contiguous,
        "optional": argument.optional,
        **({"unread": True} if argument.is_left_out(options) else {}),
    }
