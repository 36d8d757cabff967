"""Real GPUs, through CuPy. Opening one on a machine that has none says so in one sentence."""

from __future__ import annotations

import ctypes.util

from search.errors import UsageError
from search.targets.base import Target


def gpu_count() -> int:
    """How many CUDA devices the driver shows; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def open_device(which: str) -> Target:
    """The GPU number `which`."""
    count = gpu_count()
    if int(which) >= count:
        seen = "no CUDA device is visible" if not count else f"{count} CUDA devices are visible"
        raise UsageError(f"cuda:{which} cannot be used: {seen} on this machine", code="no_gpu",
                         mend="use emulator:h200, or install the NVIDIA driver and the extra `cuda13`")
    raise UsageError(f"cuda:{which} is there, but this version runs candidates on the emulator only",
                     code="target_not_built", mend="use emulator:h200")
