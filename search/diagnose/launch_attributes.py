"""A kernel's attributes about its launches: `__launch_bounds__` and `__cluster_dims__`.

A device refuses a launch that contradicts them. Their arguments are numbers, constants of the file,
template arguments and arithmetic on these; of anything else nothing is known, and nothing is said.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Sequence
from dataclasses import replace

from greenfast.search.devices.clusters import ALONE
from greenfast.search.devices.facts import Device
from greenfast.search.diagnose.device_extract import DeviceCode
from greenfast.search.diagnose.entries import Entry
from greenfast.search.diagnose.launch_file import launched_in
from greenfast.search.errors import SpecError
from greenfast.search.oracle.problem import LaunchPlan, Problem

_NAME = re.compile(r"[A-Za-z_]\w*")
_SUFFIX = re.compile(r"\b(\d+)[uUlL]+\b")
_DEEPEST = 8  # constants of constants
_OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def with_attributes(
    problem: Problem, entries: Sequence[Entry], code: DeviceCode, device: Device, where: str
) -> Problem:
    """Launch in the declared clusters.

    SpecError for a launch that its kernel's attributes or the device's shared memory do not allow.
    """
    by_alias = {entry.alias: entry for entry in entries}
    for launch in problem.launches:
        if launch.smem_dynamic_bytes > device.smem_per_block_bytes:
            raise SpecError(
                f"{where}: {by_alias[launch.entry].text} asks for {launch.smem_dynamic_bytes} "
                f"bytes of shared memory a block; {device.name} has {device.smem_per_block_bytes}",
                code="bad_launch",
            )
    launches = tuple(
        _with_attributes(launch, by_alias[launch.entry], code, where) for launch in problem.launches
    )
    return replace(problem, launches=launches)


def _with_attributes(launch: LaunchPlan, entry: Entry, code: DeviceCode, where: str) -> LaunchPlan:
    bounds = _numbers("launch_bounds", entry, code)
    threads = math.prod(launch.block)
    if bounds and bounds[0] is not None and threads > bounds[0]:
        raise SpecError(
            f"{where}: {entry.text} is launched with {threads} threads a block, and its "
            f"__launch_bounds__ allow {bounds[0]}: no device runs that",
            code="bad_launch",
        )
    x, y, z = (*_numbers("cluster_dims", entry, code), 1, 1, 1)[:3]
    if x is None or y is None or z is None or (x, y, z) == ALONE:
        return launch
    return launched_in((x, y, z), launch, entry.text, where)


def _numbers(attribute: str, entry: Entry, code: DeviceCode) -> list[int | None]:
    """The attribute's arguments; None for one that is no number here."""
    declaration = entry.kernel.declaration
    end = declaration.body[0] if declaration.body else declaration.end
    tokens = [token.text for token in code.source.tokens[declaration.first : end]]
    if attribute not in tokens:
        return []
    arguments, depth = [""], 0
    for text in tokens[tokens.index(attribute) + 1 :]:
        depth += (text == "(") - (text == ")")
        if depth == 0:
            break
        if text == "," and depth == 1:
            arguments.append("")
        elif text != "(" or depth > 1:
            arguments[-1] += f" {text}"
    return [_value(entry.bound(text), code) for text in arguments]


def _value(text: str, code: DeviceCode, depth: int = 0) -> int | None:
    for name in set(_NAME.findall(_SUFFIX.sub(r"\1", text))):
        value = _constant(name, code, depth)
        if value is None:
            return None
        text = re.sub(rf"\b{name}\b", str(value), text)
    try:
        tree = ast.parse(_SUFFIX.sub(r"\1", text).replace("/", "//").strip(), mode="eval")
        return _evaluated(tree.body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None


def _evaluated(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return int(_OPERATIONS[type(node.op)](_evaluated(node.left), _evaluated(node.right)))
    raise ValueError


def _constant(name: str, code: DeviceCode, depth: int) -> int | None:
    """The value of the file's only constant of this name."""
    if depth == _DEEPEST:
        return None
    text = " ".join(token.text for token in code.source.tokens)
    values = re.findall(rf"\bconst(?:expr)?\b[^;=(){{}}]*\b{name} = ([^;,{{}}]+) [;,]", text)
    return _value(values[0], code, depth + 1) if len(set(values)) == 1 else None
