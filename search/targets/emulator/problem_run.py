"""A laid-out problem as a run of the emulator: buffers, launches and arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from greenfast.search.devices.facts import Device
from greenfast.search.devices.occupancy import occupancy
from greenfast.search.devices.tensor_map import TensorMap
from greenfast.search.oracle.problem import (
    GivenArgument,
    LaunchPlan,
    Packed,
    Problem,
    Scalar,
    Tensor,
)
from greenfast.search.targets.base import Failure
from greenfast.search.targets.emulator.far_buffers import ALIGNMENT, tensor_buffers
from greenfast.search.targets.emulator.findings import HEAP_NAME
from greenfast.search.targets.emulator.runs import (
    Argument,
    Buffer,
    Launch,
    NullArgument,
    PackedArgument,
    PointerArgument,
    Run,
    ScalarArgument,
    TensorMapArgument,
)
from greenfast.search.targets.emulator.sample import SAMPLED_BLOCKS
from greenfast.search.targets.emulator.undefined_lanes import UNDEFINED
from greenfast.search.targets.emulator.work import ends_of, sample_of
from greenfast.search.toolchain.ptxas import EntryFigures
from greenfast.search.verdict import Reason

HEAP_BYTES = 8 * 2**20  # the device's default
WORKSPACE_BYTES = 2**30  # of a run, at most: this process lays them out and keeps them, too


def no_room(problem: Problem) -> Failure | None:
    """The failure of a problem whose workspaces are too large for the emulator; None: they fit."""
    needed = sum(workspace.bytes for workspace in problem.workspaces)
    if needed <= WORKSPACE_BYTES:
        return None
    return Failure(
        Reason.OUT_OF_MEMORY,
        f"its workspaces need {needed:,} bytes; a run on the emulator has "
        f"{WORKSPACE_BYTES:,} for them",
    )


def with_heap(run: Run) -> Run:
    """The run with the memory that `new` and `malloc` give out, for a library that calls them."""
    heap = Buffer(HEAP_NAME, "workspace", np.zeros(HEAP_BYTES, np.uint8))
    return replace(run, buffers=(*run.buffers, heap))


def _workspace_buffers(problem: Problem) -> list[Buffer]:
    return [
        Buffer(
            workspace.name,
            "workspace",
            np.zeros(workspace.bytes, np.uint8),
            "zero" if workspace.zero_fill else "poison",
        )
        for workspace in problem.workspaces
    ]


def emulated_run(
    problem: Problem,
    order: str,
    name: str,
    *,
    device: Device,
    figures: Sequence[EntryFigures] = (),
    count: bool = False,
    check: bool = False,
) -> Run:
    """A problem as a run of the emulator. A counted run executes a sample of the blocks only.

    `figures` are the entries' of the compiled source, if it was compiled for the device.
    """
    # Usual addresses, also for times; in other orders, addresses aligned as promised and no more.
    alignment = ALIGNMENT if count or order == "forward" else problem.pointer_bytes
    buffers = [
        buffer for tensor in problem.tensors for buffer in tensor_buffers(tensor, check, alignment)
    ]
    buffers += _workspace_buffers(problem)
    copied = {
        argument.name
        for launch in problem.launches
        for argument in _read_only(problem, launch)
        if check
    }
    buffers += [
        replace(buffer, name=_copy(buffer.name), role="workspace", copy_of=buffer.name)
        for buffer in buffers
        if buffer.name in copied
    ]
    launches = tuple(
        Launch(
            launch.entry,
            launch.grid,
            launch.block,
            launch.smem_dynamic_bytes,
            launch.cluster,
            arguments=_arguments(problem, launch, check),
            sample=_executed(problem, launch, count),
            resident_blocks=resident_blocks(device, launch, figures),
        )
        for launch in problem.launches
    )
    return Run(
        name,
        launches,
        tuple(buffers),
        tuple(_argument(argument) for argument in problem.arguments),
        order=order,
        count=count,
        check=check,
        undefined=UNDEFINED[order.partition(":")[0]],
    )


def resident_blocks(device: Device, launch: LaunchPlan, figures: Sequence[EntryFigures]) -> int:
    """The blocks that the device holds at once; unknown registers limit nothing."""
    own = next((each for each in figures if each.entry == launch.entry), None)
    registers, static = (own.registers, own.smem_static_bytes) if own is not None else (0, 0)
    smem_bytes = static + launch.smem_dynamic_bytes
    fit = occupancy(device, registers, math.prod(launch.block), smem_bytes)
    return device.multiprocessors * max(1, fit.blocks_per_sm)


def _executed(problem: Problem, launch: LaunchPlan, count: bool) -> tuple[int, ...]:
    """The clusters that run; empty: all."""
    if count:
        return sample_of(launch, SAMPLED_BLOCKS)
    return ends_of(launch) if problem.ends_only else ()


def _read_only(problem: Problem, launch: LaunchPlan) -> list[Tensor]:
    """The tensors that the launch reads through parameters that are `const` and `__restrict__`."""
    arguments = problem.arguments if launch.arguments is None else launch.arguments
    passed = [arguments[number] for number in launch.read_only]
    return [argument for argument in passed if isinstance(argument, Tensor)]


def _copy(name: str) -> str:
    return f"{name}.read-only"


def _arguments(problem: Problem, launch: LaunchPlan, check: bool) -> tuple[Argument, ...] | None:
    """The launch's arguments; None: the run's."""
    read_only = launch.read_only if check else ()
    if launch.arguments is None and not read_only:
        return None
    arguments = list(
        map(_argument, problem.arguments if launch.arguments is None else launch.arguments)
    )
    for number in read_only:
        argument = arguments[number]
        if isinstance(argument, PointerArgument):
            arguments[number] = replace(argument, buffer=_copy(argument.buffer))
    return tuple(arguments)


def _argument(argument: GivenArgument) -> Argument:
    match argument:
        case None:
            return NullArgument()
        case TensorMap():
            return TensorMapArgument(argument)
        case Scalar():
            return ScalarArgument(argument.dtype, argument.value)
        case Packed():
            return PackedArgument(argument.data, argument.pointers, argument.maps)
    return PointerArgument(argument.name, 0)
