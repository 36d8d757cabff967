"""[[tensor_maps]] of launch.toml: the maps that a user's kernel takes, as literal numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import numpy as np

from greenfast.search.devices.tensor_map import TensorMap, misfit
from greenfast.search.errors import SpecError
from greenfast.search.kernels.tables import Table
from greenfast.search.kernels.tensor_map_spec import FILLS
from greenfast.search.oracle.problem import Tensor

_IDENTIFIER = re.compile(r"[A-Za-z_]\w{0,200}\Z")
LARGEST = 2**63


def read_tensor_map(
    table: Table, tensors: Mapping[str, Tensor], dtype_names: Mapping[np.dtype, str]
) -> TensorMap:
    """A map of one of `tensors`; SpecError for one that no GPU has."""
    name, buffer = table.get("name", str), table.get("tensor", str)
    if not _IDENTIFIER.match(name):
        raise SpecError(
            f"{table.where}: the name {name!r}; names are letters, digits and _", code="bad_spec"
        )
    if buffer not in tensors:
        raise SpecError(
            f"{table.where}: tensor = {buffer!r} is not a buffer",
            code="bad_spec",
            mend="known: " + (", ".join(tensors) or "none"),
        )
    tensor = tensors[buffer]
    dtype = dtype_names[tensor.dtype]
    sizes = _numbers(table, "sizes", list(reversed(tensor.shape)))
    dense = [math.prod(sizes[:axis]) for axis in range(1, len(sizes))]
    tensor_map = TensorMap(
        name=name,
        buffer=buffer,
        dtype=dtype,
        sizes=sizes,
        strides_bytes=tuple(
            stride * tensor.dtype.itemsize for stride in _numbers(table, "strides", dense)
        ),
        box=_numbers(table, "box"),
        swizzle_bytes=table.get("swizzle_bytes", int, 0),
        fill=table.one_of("fill", FILLS, FILLS[0]),
        l2_promotion_bytes=table.get("l2_promotion_bytes", int, 0),
    )
    table.finish()
    if (reason := misfit(tensor_map)) is not None:
        raise SpecError(f"{table.where}: {reason.sentence}", code="tensor_map", mend=reason.mend)
    return tensor_map


def _numbers(table: Table, key: str, *default: list[int]) -> tuple[int, ...]:
    numbers = tuple(table.get(key, list, *default))
    if not all(type(number) is int and 0 <= number < LARGEST for number in numbers):
        raise SpecError(
            f"{table.where}: {key} = {list(numbers)}; it is a list of whole numbers",
            code="bad_spec",
        )
    return numbers
