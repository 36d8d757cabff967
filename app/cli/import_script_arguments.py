"""The arguments that a Kernel Tuner script passes, as --arg texts for `greenfast import`.

Known are arrays and numbers that NumPy makes of constants: zeros, ones, random numbers, `astype`,
`reshape`, `np.int32(n)`. Whatever else a script passes stays to be given by --arg.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from itertools import combinations_with_replacement

from greenfast.app.cli.import_parameters import Declared
from greenfast.app.cli.import_script import Script
from greenfast.app.cli.import_source import Entry
from greenfast.app.cli.script.values import Array, Scalar, items
from greenfast.search.errors import UsageError


def script_arguments(
    script: Script,
    entry: Entry,
    text: str,
    wanted: str | None = None,
    named: Collection[str] = (),
) -> dict[str, str]:
    """--arg texts by the entry's parameters, as far as the script has them.

    UsageError where it passes another number of them, and `named` are not all that there are.
    """
    call = script.call(wanted)
    if call is None:
        return {}
    passed = items(call.given.get("arguments")) or ()
    if len(passed) != len(entry.parameters):
        _require_named(entry, len(passed), named)
        return {}
    answers = items(call.given.get("answer")) or ()
    scalars = [value for value in passed if isinstance(value, Scalar)]
    names = {
        value.value: parameter.name
        for parameter, value in zip(entry.parameters, passed, strict=True)
        if isinstance(value, Scalar) and scalars.count(value) == 1 and "int" in value.dtype
    }
    texts: dict[str, str] = {}
    for number, (parameter, value) in enumerate(zip(entry.parameters, passed, strict=True)):
        if isinstance(value, Scalar) and not parameter.is_pointer:
            texts[parameter.name] = f"{parameter.name}:{value.dtype}={value.value}"
        elif isinstance(value, Array) and parameter.is_pointer:
            sizes = ",".join(_size(size, names) for size in value.shape)
            known = len(answers) == len(passed)
            role = _role(parameter, value, text, (answers[number] is not None) if known else None)
            first = _first_values(value, names) if role != "output" else ""
            texts[parameter.name] = f"{parameter.name}:{value.dtype}[{sizes}]{first}:{role}"
    return texts


def _size(size: int, names: Mapping[int | float, str]) -> str:
    """A size by the argument that has its value, or by those whose product it is."""
    if size in names:
        return names[size]
    numbers = [int(number) for number in names if number > 1]
    products = [
        each
        for count in (2, 3)
        for each in combinations_with_replacement(numbers, count)
        if math.prod(each) == size
    ]
    return "*".join(names[number] for number in products[0]) if len(products) == 1 else str(size)


def _first_values(array: Array, names: Mapping[int | float, str]) -> str:
    """The range of random numbers. An end that is a size is its name: indices are such numbers."""
    if array.ends is None:
        return ""
    ends: list[int | float] = [int(end) if end == int(end) else end for end in array.ends]
    if "int" in array.dtype and not all(isinstance(end, int) for end in ends):
        return ""
    low, high = ends
    return f"=range({low},{names.get(high, high) if isinstance(high, int) else high})"


def _require_named(entry: Entry, passed: int, named: Collection[str]) -> None:
    names = [each.name for each in entry.parameters]
    if passed and not set(names) <= set(named):
        raise UsageError(
            f"{entry.name} has {len(names)} parameters ({', '.join(names)}), and the script passes "
            f"{passed} arguments",
            code="bad_argument",
            mend="correct its list of arguments, or give --arg for each parameter",
        )


def _role(parameter: Declared, array: Array, text: str, is_answer: bool | None) -> str:
    """Whether the kernel reads or writes a tensor; `is_answer`: the script compares it."""
    if parameter.is_const or is_answer is False:
        return "input"
    name = re.escape(parameter.name)
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
