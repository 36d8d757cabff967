"""The child that computes references: the cases of a request in order, their arrays in a file."""

from __future__ import annotations

import signal
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from greenfast.search.children import serve_requests
from greenfast.search.errors import SpecError
from greenfast.search.oracle.accumulation import moved_inputs
from greenfast.search.oracle.not_finite import planted, planted_inputs, with_planted
from greenfast.search.oracle.reference import raised
from greenfast.search.oracle.reference_children import OUT_OF_MEMORY, Part, Work
from greenfast.search.oracle.reference_contract import read_only
from greenfast.search.oracle.reference_module import described_module

GRACE_S = 10  # after the deadline


def compute(request: Mapping[str, Any]) -> dict[str, Any]:
    """Compute {"name", "text", "uses", "cases", "file", "deadline_s", "work"}.

    The arrays go to `file`.

    Returns {"arrays": for each case the arrays in the file, in order; None after an error,
    "errors": for each case the error, with its line, or ""}, or {"unwritten": why `file` could not
    be written}.
    """
    # The parent keeps the deadline; this ends an endless reference whose parent was killed.
    signal.alarm(int(request["deadline_s"]) + GRACE_S)
    try:
        return _computed_all(request)
    finally:
        signal.alarm(0)


def _computed_all(request: Mapping[str, Any]) -> dict[str, Any]:
    cases, place = request["cases"], f"{request['name']}/reference.py"
    try:
        module = described_module(request)
    except SpecError as error:  # the parent loads it too, and reports the error
        return {"arrays": [None] * len(cases), "errors": [str(error)] * len(cases)}
    try:
        with Path(request["file"]).open("wb") as file:
            work = Work(request["work"])
            contents = [_content(module, case, work, file, place) for case in cases]
    except OSError as error:  # one of the author's code is among the errors below
        return {"unwritten": error.strerror}
    return {
        "arrays": [parts for parts, _ in contents],
        "errors": [error for _, error in contents],
    }


def _content(
    module: types.ModuleType, case: Mapping[str, Any], work: Work, file: BinaryIO, place: str
) -> tuple[list[Part] | None, str]:
    """The arrays of a case that were written, or None and the error of the author's code.

    No error either: the results break the contract, and the parent reports how.
    """
    try:
        inputs, outputs = _computed(module, case, work)
    except MemoryError:
        return None, OUT_OF_MEMORY
    except (Exception, SystemExit) as error:
        return None, raised(place, case["label"], error)
    try:
        return _written(inputs, outputs, file), ""
    except (AttributeError, TypeError, ValueError):
        return None, ""


def _computed(
    module: types.ModuleType, case: Mapping[str, Any], work: Work
) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """The inputs and the outputs, as the author's functions return them."""
    put = planted(case["inputs"])
    inputs = module.make_inputs(
        case["dims"],
        case["options"],
        case["inputs"] if put is None else put.recipe,
        case["seed"],
        case["tiles"],
    )

    def reference(inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
        given = read_only(inputs)
        outputs: dict[str, Any] = module.reference(case["dims"], case["options"], given)
        return outputs

    if work is Work.INPUTS:
        return inputs, {}
    if work is Work.MOVED:
        given = inputs if put is None else planted_inputs(case["seed"], put, inputs)
        return {}, reference(moved_inputs(case["seed"], given))
    outputs = reference(inputs)
    if put is None:
        return inputs, outputs
    outputs = with_planted(case["seed"], put, inputs, plain_fields(outputs), reference)
    return planted_inputs(case["seed"], put, inputs), outputs


def _written(inputs: Mapping[str, Any], outputs: Mapping[str, Any], file: BinaryIO) -> list[Part]:
    """Write the arrays; an error where a value is neither an array nor a number."""
    fields = [
        (name, field, _array(value))
        for name, expected in outputs.items()
        for field, value in expected.items()
    ]
    arrays = [*fields, *((name, "", _array(value)) for name, value in inputs.items())]
    for _, _, array in arrays:
        if array is not None:
            file.write(array.reshape(-1).view(np.uint8).data if array.size else b"")
    return [
        (name, field, "", None) if array is None else (name, field, array.dtype.name, array.shape)
        for name, field, array in arrays
    ]


def _array(value: Any) -> np.ndarray | None:
    if value is None:
        return None
    if (
        not isinstance(value, np.ndarray | np.generic | int | float)
        or np.asarray(value).dtype == object
    ):
        raise TypeError("no array of numbers")
    return np.asarray(value, order="C")


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
