"""Real GPUs, through CuPy in a child of their own. Opening one on a machine that has none says so in one sentence."""

from __future__ import annotations

import tempfile
from pathlib import Path

from search.errors import UsageError
from search.targets.base import Target
from search.targets.cuda.driver import gpu_count

__all__ = ["gpu_count", "open_device"]


def open_device(which: str, cache_folder: Path | None = None, run_deadline_s: float = 30.0) -> Target:
    """The GPU number `which`; cheap, since no child is started before `prepare`."""
    from search.targets.cuda.target import CudaTarget
    count = gpu_count()
    if int(which) >= count:
        seen = "no CUDA device is visible" if not count else f"{count} CUDA devices are visible"
        raise UsageError(f"cuda:{which} cannot be used: {seen} on this machine", code="no_gpu",
                         mend="use emulator:h200, or install the NVIDIA driver and the extra `cuda13`")
    return CudaTarget(which, cache_folder or Path(tempfile.gettempdir()) / "greenfast", run_deadline_s)
