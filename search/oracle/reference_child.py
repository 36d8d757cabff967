"""The child that computes references: the cases of a request one after the other, their arrays in a file."""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from greenfast.search.children import serve_requests
from greenfast.search.oracle.reference import described_module


def compute(request: Mapping[str, Any]) -> dict[str, Any]:
    """{"name", "text", "uses", "cases", "file"} -> {"found": what stands in the file of each case, None after an error}."""
    module = described_module(request)
    with Path(request["file"]).open("wb") as file:
        return {"found": [_written(module, case, file) for case in request["cases"]]}


def _written(
    module: types.ModuleType, case: Mapping[str, Any], file: BinaryIO
) -> list[tuple] | None:
    """(argument, field of Expected or "" of an input, dtype, shape or None where there is no array), as they follow."""
    try:
        inputs = module.make_inputs(
            case["dims"], case["options"], case["inputs"], case["seed"], case["tiles"]
        )
        found = module.reference(case["dims"], case["options"], inputs)
        fields = [
            (name, field, array) for name, one in found.items() for field, array in one.items()
        ]
        arrays = [
            (name, field, None if array is None else np.ascontiguousarray(array))
            for name, field, array in (
                *fields,
                *((name, "", array) for name, array in inputs.items()),
            )
        ]
    except Exception:  # who asked computes it again, and says what is wrong with it
        return None
    for _, _, array in arrays:
        if array is not None:
            file.write(array.view(np.uint8).data if array.size else b"")
    return [
        (
            name,
            field,
            "" if array is None else array.dtype.name,
            None if array is None else array.shape,
        )
        for name, field, array in arrays
    ]


if __name__ == "__main__":
    serve_requests(compute, int(sys.argv[1]), int(sys.argv[2]))
