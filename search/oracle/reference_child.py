"""The child that computes references: the cases of a request in order, their arrays in a file."""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from greenfast.search.children import serve_requests
from greenfast.search.oracle.reference import described_module
from greenfast.search.oracle.reference_children import Part


def compute(request: Mapping[str, Any]) -> dict[str, Any]:
    """Compute {"name", "text", "uses", "cases", "file"} and write the arrays to `file`.

    Returns {"arrays": for each case the arrays in the file, in order; None after an error}.
    """
    module = described_module(request)
    with Path(request["file"]).open("wb") as file:
        return {"arrays": [_written(module, case, file) for case in request["cases"]]}


def _written(
    module: types.ModuleType, case: Mapping[str, Any], file: BinaryIO
) -> list[Part] | None:
    try:
        inputs = module.make_inputs(
            case["dims"], case["options"], case["inputs"], case["seed"], case["tiles"]
        )
        outputs = module.reference(case["dims"], case["options"], inputs)
        fields = [
            (name, field, array)
            for name, expected in outputs.items()
            for field, array in expected.items()
        ]
        arrays = [
            (name, field, None if array is None else np.ascontiguousarray(array))
            for name, field, array in (
                *fields,
                *((name, "", array) for name, array in inputs.items()),
            )
        ]
    except Exception:  # the parent computes the case again and reports the error
        return None
    for _, _, array in arrays:
        if array is not None:
            file.write(array.view(np.uint8).data if array.size else b"")
    return [
        (name, field, "", None) if array is None else (name, field, array.dtype.name, array.shape)
        for name, field, array in arrays
    ]


if __name__ == "__main__":
    serve_requests(compute, int(sys.argv[1]), int(sys.argv[2]))
