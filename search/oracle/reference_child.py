"""The child that computes references: the cases of a request in order, their arrays in a file."""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from greenfast.search.children import serve_requests
from greenfast.search.oracle.not_finite import planted, planted_inputs, with_planted
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
    put = planted(case["inputs"])
    try:
        inputs = module.make_inputs(
            case["dims"],
            case["options"],
            case["inputs"] if put is None else put.recipe,
            case["seed"],
            case["tiles"],
        )

        def reference(inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
            outputs: dict[str, Any] = module.reference(case["dims"], case["options"], inputs)
            return outputs

        outputs = reference(inputs)
        if put is not None:
            outputs = with_planted(case["seed"], put, inputs, plain_fields(outputs), reference)
            inputs = planted_inputs(case["seed"], put, inputs)
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
    except (Exception, SystemExit):  # the parent computes the case again and reports the error
        return None
    for _, _, array in arrays:
        if array is not None:
            file.write(array.view(np.uint8).data if array.size else b"")
    return [
        (name, field, "", None) if array is None else (name, field, array.dtype.name, array.shape)
        for name, field, array in arrays
    ]


def plain_fields(outputs: Mapping[str, Any]) -> dict[str, dict[str, np.ndarray]]:
    """Value and bound of each output, as `Expected` holds them."""
    fields = {}
    for name, given in outputs.items():
        value = np.asarray(given["value"]).astype(np.float64, copy=False)
        bound = np.asarray(given["bound"]).astype(np.float64, copy=False)
        fields[name] = {"value": value, "bound": np.broadcast_to(bound, value.shape)}
    return fields


if __name__ == "__main__":
    serve_requests(compute, int(sys.argv[1]), int(sys.argv[2]))
