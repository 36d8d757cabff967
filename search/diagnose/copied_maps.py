"""Tensor maps that a kernel takes by value without `__grid_constant__`.

The address of such a parameter is that of a copy in local memory, where TMA reads no map (CUDA C++
Programming Guide, "Using TMA to transfer multi-dimensional arrays").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from greenfast.search.devices.tensor_map import TensorMap
from greenfast.search.diagnose.entries import Entry
from greenfast.search.oracle.problem import GivenArgument, LaunchPlan, Packed, Problem


def with_copied_maps(problem: Problem, entries: Sequence[Entry]) -> Problem:
    """The problem, whose maps know where a copy that uses them finds them."""
    by_alias = {entry.alias: entry for entry in entries}
    launches = tuple(_launch(launch, by_alias[launch.entry]) for launch in problem.launches)
    return replace(problem, launches=launches)


def _launch(launch: LaunchPlan, entry: Entry) -> LaunchPlan:
    constant = entry.kernel.grid_constants
    arguments = tuple(
        argument if number in constant else _copied(argument)
        for number, argument in enumerate(launch.arguments or ())
    )
    return replace(launch, arguments=arguments) if launch.arguments else launch


def _copied(argument: GivenArgument) -> GivenArgument:
    match argument:
        case TensorMap():
            return replace(argument, in_local_memory=True)
        case Packed():
            maps = [(at, replace(each, in_local_memory=True)) for at, each in argument.maps]
            return replace(argument, maps=tuple(maps))
    return argument
