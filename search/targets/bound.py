"""The least time that a problem can take on a device, however it is computed."""

from __future__ import annotations

from greenfast.search.devices.facts import Device
from greenfast.search.oracle.problem import Problem
from greenfast.search.timing import default_mode, floor_us

BYTE_FORMATS = ("e4m3", "e5m2", "int8")  # of tensor cores, for inputs of one byte


def data_bytes_of(problem: Problem) -> int:
    """Inputs and outputs, as they lie in memory."""
    return sum(tensor.image.size for tensor in problem.tensors)


def mode_of(problem: Problem, device: Device) -> str:
    """How its timed launches find the caches: as it was asked for, or as its data fit."""
    return (
        problem.mode
        if problem.mode != "auto"
        else default_mode(data_bytes_of(problem), device.l2_bytes)
    )


def bound_us(device: Device, problem: Problem) -> float:
    """Compulsory work at the device's peaks and maximum clock; 0: the peaks are not known.

    Data that stay in L2 need not come from DRAM, so bytes bound a cold time only.
    """
    flop_per_us = tensor_peak(device, problem) * device.clock_max_mhz * device.multiprocessors
    cold_bytes = problem.work_bytes if mode_of(problem, device) == "cold" else 0.0
    return floor_us(problem.work_flop, cold_bytes, flop_per_us, device.dram_bytes_per_us)


def tensor_peak(device: Device, problem: Problem) -> int:
    """FLOP a cycle and SM of the fastest products that its inputs allow."""
    has_bytes = any(
        tensor.dtype.itemsize == 1 for tensor in problem.tensors if tensor.role == "input"
    )
    formats = ("fp16", *BYTE_FORMATS) if has_bytes else ("fp16",)
    return max(map(device.tensor_flop_per_cycle_per_sm, formats))
