"""The arguments that a Kernel Tuner script passes, as --arg texts for `greenfast import`.

Known are arrays and numbers that NumPy makes of constants: zeros, ones, random numbers, `astype`,
`reshape`, `np.int32(n)`. Whatever else a script passes stays to be given by --arg.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from greenfast.app.cli.import_constant_memory import FLAT
from greenfast.app.cli.import_parameters import Declared
from greenfast.app.cli.import_script import Script
from greenfast.app.cli.import_script_sizes import size_text
from greenfast.app.cli.import_source import ENTRY, SPELLINGS, Entry, end_of_block, without_comments
from greenfast.app.cli.script.interpreter import TuningCall
from greenfast.app.cli.script.values import Array, Scalar, items
from greenfast.search.errors import UsageError


def script_arguments(
    script: Script,
    entry: Entry,
    text: str,
    wanted: str | None = None,
    named: Collection[str] = (),
    constants: Sequence[str] = (),
) -> dict[str, str]:
    """--arg texts by the entry's parameters, as far as the script has them.

    `constants` are the parameters behind the kernel's own. UsageError where the script passes
    another number of arguments, and `named` are not all that there are.
    """
    call = script.call(wanted)
    if call is None:
        return {}
    filled = _filled(call)
    passed = [
        *(items(call.given.get("arguments")) or ()),
        *(filled.get(name, filled.get(name.removesuffix(FLAT))) for name in constants),
    ]
    if len(passed) != len(entry.parameters):
        _require_named(entry, len(passed), named)
        return {}
    passed = [
        _typed(value, parameter) for value, parameter in zip(passed, entry.parameters, strict=True)
    ]
    answers = items(call.given.get("answer")) or ()
    answers = [*answers, *[None] * (len(constants) if answers else 0)]
    scalars = [value for value in passed if isinstance(value, Scalar)]
    names = {
        value.value: parameter.name
        for parameter, value in zip(entry.parameters, passed, strict=True)
        if isinstance(value, Scalar) and scalars.count(value) == 1 and "int" in value.dtype
    }
    texts: dict[str, str] = {}
    shapes = {size for each in passed if isinstance(each, Array) for size in each.shape}
    body = _body(entry, text)
    for number, (parameter, value) in enumerate(zip(entry.parameters, passed, strict=True)):
        if isinstance(value, Scalar) and not parameter.is_pointer:
            texts[parameter.name] = f"{parameter.name}:{value.dtype}={value.value}"
        elif isinstance(value, Array) and parameter.is_pointer:
            sizes = ",".join(size_text(size, names) for size in value.shape)
            known = len(answers) == len(passed)
            is_answer = (answers[number] is not None) if known else None
            role = _role(parameter, value, text, body, is_answer)
            first = _first_values(value, names, shapes) if role != "output" else ""
            texts[parameter.name] = f"{parameter.name}:{value.dtype}[{sizes}]{first}:{role}"
    return texts


def _typed(value: Any, parameter: Declared) -> Any:
    """The value; a plain number as one of the type that the kernel declares."""
    if type(value) not in (int, float) or parameter.is_pointer or not parameter.dtype:
        return value
    is_whole = "int" in parameter.dtype and value % 1 == 0
    return Scalar(parameter.dtype, int(value) if is_whole else value)


def check_told(told: Mapping[str, str], entry: Entry, place: str) -> None:
    """UsageError for a type that the script passes and the kernel does not declare."""
    for parameter in entry.parameters:
        passed = told.get(parameter.name, "::").split(":")[1].partition("=")[0]
        dtype, is_array = passed.partition("[")[0], "[" in passed
        if not passed or not parameter.dtype:
            continue
        if (SPELLINGS.get(dtype, dtype), is_array) != (parameter.dtype, parameter.is_pointer):
            kind = parameter.dtype + "[...]" * parameter.is_pointer
            raise UsageError(
                f"{place}: the script passes {parameter.name} as {dtype}{'[...]' * is_array}, and "
                f"the kernel declares it as {kind}",
                code="bad_argument",
                mend=f"correct the script or the kernel, or give --arg {parameter.name}:{kind}",
            )


def script_constants(script: Script | None, wanted: str | None) -> list[str]:
    """The constant memory that a script fills."""
    call = None if script is None else script.call(wanted)
    return [] if call is None else list(_filled(call))


def script_place(script: Script | None, wanted: str | None) -> str:
    """FILE:LINE of the call that passes the arguments."""
    call = None if script is None else script.call(wanted)
    file = "" if script is None else script.file
    return file if call is None else f"{file}:{call.node.lineno}"


def _filled(call: TuningCall) -> Mapping[str, Any]:
    table = call.given.get("cmem_args")
    return table if isinstance(table, dict) else {}


def _first_values(array: Array, names: Mapping[int | float, str], sizes: Collection[int]) -> str:
    """The range of random numbers. An end that is a size is its name: indices are such numbers.

    Numbers from 0 to 1 are the values of no special kind: signed ones show more mistakes.
    """
    is_whole = "int" in array.dtype
    if is_whole and isinstance(array.values, range) and array.values == range(array.shape[0]):
        return "=iota"
    if array.ends is None or (not is_whole and tuple(array.ends) == (0, 1)):
        return ""
    ends: list[int | float] = [int(end) if end == int(end) else end for end in array.ends]
    if is_whole and not all(isinstance(end, int) for end in ends):
        return ""
    low, high = ends
    end = names.get(high, high) if isinstance(high, int) else high
    if isinstance(high, int) and high in sizes:
        end = size_text(high, names)
    return f"={'offsets' if is_whole and array.is_sorted else 'range'}({low},{end})"


def _require_named(entry: Entry, passed: int, named: Collection[str]) -> None:
    names = [each.name for each in entry.parameters]
    if passed and not set(names) <= set(named):
        raise UsageError(
            f"{entry.name} has {len(names)} parameters ({', '.join(names)}), and the script passes "
            f"{passed} arguments",
            code="bad_argument",
            mend="correct its list of arguments, or give --arg for each parameter",
        )


def _body(entry: Entry, text: str) -> str:
    """The kernel's own statements; other kernels of the text may use the same names."""
    bare = without_comments(text)
    kernels = list(ENTRY.finditer(bare))
    for kernel in kernels:
        if kernel["name"] == entry.name:
            return bare[kernel.end() : end_of_block(bare, kernel.end())]
    return bare


def _role(parameter: Declared, array: Array, text: str, body: str, is_answer: bool | None) -> str:
    """Whether the kernel reads or writes a tensor; `is_answer`: the script compares it.

    `body` is the kernel's part of the text, which matters where it passes on a pointer.
    """
    if parameter.is_const or is_answer is False:
        return "input"
    name = re.escape(parameter.name)
    text = body if re.search(rf"\b{name}\s*\[|\*\s*\(?\s*{name}\b", body) else text
    is_added = re.search(
        rf"\b{name}\s*\[[^;=]*\]\s*[-+*/|&^]=|\batomic\w+\s*\(\s*&?\s*{name}\b", text
    )
    is_set = re.search(rf"\b{name}\s*\[[^;=]*\]\s*=(?!=)|\*\s*{name}\s*=(?!=)", text)
    is_read = len(re.findall(rf"\b{name}\s*\[", text)) > len(
        re.findall(rf"\b{name}\s*\[[^;=]*\]\s*=(?!=)", text)
    )
    if is_added or (is_set and (is_read or not array.is_empty)):
        return "inout"
    if is_set or is_answer:
        return "output"
    return "output" if array.is_empty and not is_read else "input"
