"""The device's memory between the runs of a recorded program, and a run's launches with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from greenfast.search.diagnose.brought_buffers import contiguous_tensor
from greenfast.search.diagnose.host_steps import (
    POINTER_BYTES,
    Allocation,
    Copy,
    LaunchRun,
    RecordedLaunch,
    Write,
)
from greenfast.search.diagnose.launch_file import LaunchFile
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.problem import GivenArgument, LaunchPlan, Packed, Problem, Tensor


class DeviceMemory:
    """The contents of the allocations between runs; one that was never written has none."""

    def __init__(self, allocations: Mapping[int, Allocation]) -> None:
        self._allocations = allocations
        self._contents: dict[int, np.ndarray] = {}  # uint8

    def write(self, step: Write) -> None:
        content = np.fromfile(step.file, np.uint8)
        if step.number not in self._contents:  # what the host has not written counts as written
            self._contents[step.number] = content
            return
        for begin, end in step.parts:
            self._contents[step.number][begin:end] = content[begin:end]

    def copy(self, step: Copy) -> None:
        source = self._contents.get(step.source)
        if source is None:
            return
        target = self._filled(step.number)
        part = source[step.source_offset : step.source_offset + step.bytes]
        target[step.offset : step.offset + len(part)] = part

    def leave_results(self, run: LaunchRun, outputs: Mapping[str, np.ndarray]) -> None:
        """What a run wrote; zeros for memory without a result that it may have written."""
        for number in run.written:
            result = outputs.get(self._allocations[number].name)
            if result is None:
                self._filled(number)
            else:
                self._contents[number] = result.copy()

    def _filled(self, number: int) -> np.ndarray:
        size = self._allocations[number].bytes
        return self._contents.setdefault(number, np.zeros(size, np.uint8))

    def launch_file(self, run: LaunchRun) -> LaunchFile:
        """The run with the memory as it is now."""
        tensors = {number: self._tensor(number) for number in sorted(run.used)}
        plans = tuple(_plan(launch, tensors) for launch in run.launches)
        case = Case("launch", (), (), "", "contiguous", 0, ())
        buffers = tuple(tensors.values())
        problem = Problem(case, buffers, (), plans[0].arguments or (), plans, 0.0, 0.0)
        return LaunchFile(replace(problem, ends_only=run.is_large), (), False, (), run.data)

    def _tensor(self, number: int) -> Tensor:
        it, content = self._allocations[number], self._contents.get(number)
        elements = max(1, it.bytes // it.dtype.itemsize)
        values = None if content is None or not it.bytes else content.view(it.dtype)
        return contiguous_tensor(it.name, "output", it.dtype, (elements,), values)


def _plan(launch: RecordedLaunch, tensors: Mapping[int, Tensor]) -> LaunchPlan:
    return LaunchPlan(
        launch.entry,
        launch.grid,
        launch.block,
        launch.smem_dynamic_bytes,
        tuple(_argument(argument, tensors) for argument in launch.arguments),
        launch.cluster,
    )


def _argument(argument: Mapping[str, Any], tensors: Mapping[int, Tensor]) -> GivenArgument:
    if "null" in argument:
        return None
    if "pointer" in argument:
        tensor, offset = tensors[argument["pointer"]], argument["offset"]
        if not offset:
            return tensor
        return Packed(offset.to_bytes(POINTER_BYTES, "little"), ((0, tensor.name),))
    data = bytearray.fromhex(argument["bytes"])
    pointers = []
    for each in argument["pointers"]:
        at = each["at"]
        data[at : at + POINTER_BYTES] = each["offset"].to_bytes(POINTER_BYTES, "little")
        pointers.append((at, tensors[each["pointer"]].name))
    return Packed(bytes(data), tuple(pointers))
