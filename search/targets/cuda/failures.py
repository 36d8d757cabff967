"""From CUDA's errors to a candidate's failure or a fault of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from greenfast.search.errors import Fault
from greenfast.search.oracle.problem import Problem
from greenfast.search.targets.base import Failure
from greenfast.search.targets.cuda import driver
from greenfast.search.text import last_line
from greenfast.search.verdict import Reason

OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation
LAUNCH_TIMEOUT = 702  # cudaErrorLaunchTimeout, also when the child itself gave up waiting
WRONG_ARCH = (200, 209)  # invalid image, no kernel image for this device
# cudaError_t, CUDA Runtime API: errors that a kernel can cause. All others are faults of ours.
REASONS = {
    1: Reason.LAUNCH_ERROR,
    9: Reason.LAUNCH_ERROR,
    98: Reason.LAUNCH_ERROR,
    701: Reason.LAUNCH_ERROR,
    720: Reason.LAUNCH_ERROR,
    LAUNCH_TIMEOUT: Reason.TIMEOUT,
    700: Reason.DEVICE_FAULT,
    710: Reason.DEVICE_FAULT,
    714: Reason.DEVICE_FAULT,
    715: Reason.DEVICE_FAULT,
    716: Reason.MISALIGNED,
    717: Reason.DEVICE_FAULT,
    718: Reason.DEVICE_FAULT,
    719: Reason.DEVICE_FAULT,
}
# Why a child cannot start: (words of its last line, code, sentence after the target's name, mend).
CANNOT_START = (
    (
        "No module named 'cupy",
        "cupy_missing",
        "needs CuPy, which is not installed",
        "install the extra that suits your driver, `cuda13` or `cuda12`",
    ),
    (
        "InsufficientDriver",
        "driver_too_old",
        "has a driver that is older than the CUDA of this CuPy",
        (
            "update the NVIDIA driver, or install greenfast with the extra `cuda12` "
            "in a fresh environment"
        ),
    ),
    (
        "MemoryAllocation",
        "gpu_memory",
        "has not enough free memory for a context",
        "end other processes that use it",
    ),
    (
        "out of memory",
        "gpu_memory",
        "has not enough free memory for a context",
        "end other processes that use it",
    ),
    (
        "DevicesUnavailable",
        "gpu_busy",
        "is held by another process alone (exclusive compute mode)",
        "end that process, or choose another target",
    ),
    (
        "SystemDriverMismatch",
        "driver_mismatch",
        "has a driver whose parts have different versions",
        "restart the machine after an update of the driver",
    ),
)


def cannot_start(target: str, tail: str) -> Fault:
    """Why no child can use the GPU, from the end of the child's stderr."""
    line = last_line(tail)
    for words, code, sentence, mend in CANNOT_START:
        if words in line:
            return Fault(f"{target} {sentence}", code=code, mend=mend)
    return Fault(
        f"{target} cannot be used: {line or 'its child ended without a message'}",
        code="gpu_not_ready",
        mend="see `nvidia-smi` for its state",
    )


def failure_of(target: str, arch: str, problem: Problem, reply: Mapping[str, Any]) -> Failure:
    """The candidate's failure that an error of the child shows.

    Fault when the machine is at fault: too little memory, a wrong architecture, an unknown error.
    """
    code, message = reply["code"], reply["error"]
    if code == OUT_OF_MEMORY:
        workspaces = sum(workspace.bytes for workspace in problem.workspaces)
        if workspaces > reply.get("free_bytes", 0) // 2:
            return Failure(
                Reason.OUT_OF_MEMORY,
                f"its workspaces need {workspaces} bytes, which {target} does not have",
            )
        raise Fault(
            f"{target} has too little free memory: {message}",
            code="gpu_memory",
            mend="end other processes that use it",
        )
    if code in REASONS:
        return Failure(REASONS[code], message)
    if code in WRONG_ARCH:
        raise Fault(
            f"{target} cannot run this cubin: it was compiled for another GPU than {arch}, or by "
            f"a newer CUDA than the driver's, {driver.driver_version()}",
            code="wrong_arch",
            mend="compile it for this target; `greenfast doctor` compares NVRTC and driver",
        )
    raise Fault(f"{target}: {message}", code="gpu_error")
