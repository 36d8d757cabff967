"""`const T* __restrict__` parameters whose buffer another argument of the launch reaches as well.

The compiler may load through such a parameter by the read-only path (CUDA C++ Programming Guide,
"Read-Only Data Cache Load Function"), and then nobody may write these bytes during the launch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from greenfast.search.devices.tensor_map import TensorMap
from greenfast.search.oracle.problem import GivenArgument, LaunchPlan, Packed, Problem, Tensor

_RESTRICTED = re.compile(r"\*\s*(?:const\s+)?(?:__restrict__|__restrict|restrict)\b")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def with_read_only_parameters(problem: Problem, parameters: Mapping[str, Sequence[str]]) -> Problem:
    """The problem with each launch's `read_only`; `parameters` are the entries', as written."""
    launches = tuple(
        replace(launch, read_only=_shared(launch, problem, parameters.get(launch.entry, ())))
        for launch in problem.launches
    )
    return replace(problem, launches=launches)


def parameters_in(text: str, entries: Iterable[str]) -> dict[str, list[str]]:
    """The parameters of kernels in a text that is not preprocessed."""
    text, listed = _COMMENT.sub(" ", text), {}
    for entry in entries:
        definition = re.search(rf"\b{re.escape(entry)}\s*\(([^(){{}};]*)\)\s*{{", text)
        if definition:
            listed[entry] = definition[1].split(",")
    return listed


def promises_no_write(parameter: str) -> bool:
    """Whether a parameter points to `const` and is `__restrict__`."""
    star = _RESTRICTED.search(parameter)
    return star is not None and "const" in parameter[: star.start()].split()


def _shared(launch: LaunchPlan, problem: Problem, parameters: Sequence[str]) -> tuple[int, ...]:
    arguments = problem.arguments if launch.arguments is None else launch.arguments
    promised = [
        number
        for number, (argument, parameter) in enumerate(zip(arguments, parameters, strict=False))
        if isinstance(argument, Tensor)
        and argument.role != "input"
        and promises_no_write(parameter)
    ]
    others = {
        name
        for number, argument in enumerate(arguments)
        if number not in promised
        for name in _buffers(argument)
    }
    return tuple(number for number in promised if set(_buffers(arguments[number])) & others)


def _buffers(argument: GivenArgument) -> tuple[str, ...]:
    match argument:
        case Tensor():
            return (argument.name,)
        case TensorMap():
            return (argument.buffer,)
        case Packed():
            mapped = (tensor_map.buffer for _, tensor_map in argument.maps)
            return (*(name for _, name in argument.pointers), *mapped)
    return ()
