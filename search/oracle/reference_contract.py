"""The contract of reference.py: the functions it has, and the arrays they return.

A kernel's author reads these sentences, so each names the line, what was wrong and what is right.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from greenfast.search.errors import SpecError
from greenfast.search.kernels.spec import Argument

# Name of each function, and of its parameters.
FUNCTIONS = {
    "make_inputs": ("dims", "options", "recipe", "seed", "tiles"),
    "reference": ("dims", "options", "inputs"),
}
FIELDS = ("value", "bound", "rounded")
OPTIONAL_FIELDS = ("undefined",)
FORM = '{"value": array, "bound": array, "rounded": array or None}'


def check_functions(module: types.ModuleType, file: str) -> None:
    """SpecError when a function is missing or takes other parameters than it is called with."""
    for name, parameters in FUNCTIONS.items():
        function = getattr(module, name, None)
        if not callable(function):
            raise SpecError(
                f"{file} has no function {name}",
                code="reference_failed",
                mend=f"write def {name}({', '.join(parameters)})",
            )
        try:
            inspect.signature(function).bind(*parameters)
        except TypeError:
            code = getattr(function, "__code__", None)
            place = f"{file}:{code.co_firstlineno}" if code else file
            raise SpecError(
                f"{place}: {name} is called with {len(parameters)} arguments, but it is "
                f"{name}{inspect.signature(function)}",
                code="reference_failed",
                mend=f"write def {name}({', '.join(parameters)})",
            ) from None
        except ValueError:  # a function of another language: it has no signature
            continue


def check_named_function(module: types.ModuleType, function: str, file: str) -> None:
    """SpecError when a module of the author's lacks the function that reference_uses names."""
    if not callable(getattr(module, function, None)):
        known = [
            name
            for name, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__
        ]
        raise SpecError(
            f"{file} has no function {function}, which reference_uses in kernel.toml names",
            code="reference_failed",
            mend="known: " + (", ".join(each for each in known if each[0] != "_") or "none"),
        )


def said_by(error: BaseException) -> str:
    """The error's text; an author's own class may fail to give one."""
    try:
        return str(error)
    except Exception:
        return "its __str__ fails"


def place_of(error: BaseException, file: str) -> str:
    """`file` with the line of reference.py in which the error was raised, where it is known."""
    line, traceback = 0, error.__traceback__
    if isinstance(error, SyntaxError) and error.filename == file:
        line = error.lineno or 0
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == file:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return f"{file}:{line}" if line else file


def input_fault(argument: Argument, inputs: Any, shape: tuple[int, ...], dtype: np.dtype) -> str:
    """Why an input of make_inputs cannot be used; empty when it can."""
    if not isinstance(inputs, Mapping):
        return (
            f"make_inputs returns {_shown(inputs)}, and it must return a dict of arrays by the "
            "names of the inputs"
        )
    if argument.name not in inputs:
        return f"make_inputs returns no {argument.name}; it returns {_names(inputs)}"
    array = inputs[argument.name]
    if not isinstance(array, np.ndarray):
        return f"make_inputs returns {_shown(array)} for {argument.name}, and it must be an array"
    if array.shape != shape:
        return (
            f"make_inputs gives {argument.name!r} another shape: {array.shape}, and kernel.toml "
            f"says [{', '.join(argument.shape)}], which is {shape} here"
        )
    if array.dtype != dtype:
        return (
            f"make_inputs gives {argument.name!r} the type {array.dtype}, and kernel.toml says "
            f"{dtype}: convert it with .astype"
        )
    return ""


def output_fields(
    argument: Argument, outputs: Any, shape: tuple[int, ...]
) -> tuple[dict[str, np.ndarray | None], str]:
    """The fields of Expected for an output, and why it cannot be used; empty when it can.

    A bound that is a number holds for every element.
    """
    name = argument.name
    if not isinstance(outputs, Mapping):
        return {}, (
            f"reference returns {_shown(outputs)}, and it must return a dict with {FORM} for each "
            "output"
        )
    if name not in outputs:
        return {}, f"reference returns no {name}; it returns {_names(outputs)}"
    given = outputs[name]
    if not isinstance(given, Mapping):
        return {}, f"reference returns {_shown(given)} for {name}, and it must be {FORM}"
    if fault := _field_names_fault(name, list(given)):
        return {}, fault
    fields: dict[str, np.ndarray | None] = {}
    for field, array in given.items():
        if array is None and field not in ("value", "bound"):
            fields[field] = None
            continue
        numbers = array if isinstance(array, np.ndarray) else np.asarray(array)
        if numbers.dtype == object or numbers.dtype.kind in "UScMmV":
            return {}, f"the {field} of {name} is {_shown(array)}, and it must hold real numbers"
        if field == "bound" and numbers.ndim == 0:
            numbers = np.full(shape, float(numbers))
        if numbers.shape != shape:
            return {}, (
                f"reference gives the {field} of {name} another shape: {numbers.shape}, and "
                f"kernel.toml says [{', '.join(argument.shape)}], which is {shape} here"
            )
        if field == "value" and argument.dtype == "int64" and numbers.dtype.kind in "iu":
            fields["whole"] = numbers = numbers.astype(np.int64, copy=False)
        fields[field] = numbers if field == "undefined" else numbers.astype(np.float64, copy=False)
    return fields, _values_fault(name, fields)


def _field_names_fault(name: str, given: Sequence[str]) -> str:
    missing = [field for field in FIELDS if field not in given]
    unknown = [field for field in given if field not in (*FIELDS, *OPTIONAL_FIELDS)]
    if missing:
        return f"reference gives {name} no {' and no '.join(map(repr, missing))}; write {FORM}"
    if unknown:
        return f"reference gives {name} the unknown {unknown[0]!r}; write {FORM}"
    return ""


def _values_fault(name: str, fields: Mapping[str, np.ndarray | None]) -> str:
    value, bound = fields["value"], fields["bound"]
    assert value is not None and bound is not None
    if np.isnan(value).any() or np.isnan(bound).any():
        return (
            f"the reference of {name} holds NaN; let make_inputs draw numbers for which {name} has "
            "a value"
        )
    if bound.size and bound.min() < 0.0:
        return f"the bound of {name} is negative ({bound.min():.3g}), so no output can be within it"
    return ""


def _names(mapping: Mapping[Any, Any]) -> str:
    return ", ".join(map(str, mapping)) or "nothing"


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    text = repr(value)
    if isinstance(value, np.ndarray) and len(text) > 40:
        return f"an array of {value.dtype}"
    return f"a {type(value).__name__}" if len(text) > 40 else text


def read_only(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs for a reference, which cannot change them: candidates compute with them later.

    Otherwise a step that a reference does in place would be done for the kernel, too.
    """
    given = dict(inputs)
    for name, value in given.items():
        if isinstance(value, np.ndarray):
            given[name] = view = value.view()
            view.flags.writeable = False
    return given
