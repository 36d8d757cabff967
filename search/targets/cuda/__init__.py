"""Real GPUs, through CuPy in a child process of their own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from greenfast.search.errors import UsageError
from greenfast.search.targets.base import Target
from greenfast.search.targets.cuda.driver import device_of, gpu_count, start_code, why_not

__all__ = ["gpu_count", "open_device"]

OLDEST_SM = 75  # that NVRTC of CUDA 13 compiles for (its release notes)


def open_device(
    which: str,
    cache_folder: Path | None = None,
    run_deadline_s: float = 30.0,
    turn: Callable[[str], AbstractContextManager[None]] = lambda uuid: nullcontext(),
) -> Target:
    """The GPU number `which`; `turn(uuid)` is held while it is used.

    Cheap: no child is started before `prepare`. UsageError when the GPU cannot be used.
    """
    from greenfast.search.targets.cuda.target import CudaTarget

    missing = why_not(int(which), start_code(), gpu_count())
    if missing:
        raise UsageError(
            f"cuda:{which} cannot be used on this machine: {missing}",
            code="no_gpu",
            mend="use emulator:h200, or install the NVIDIA driver and the extra `cuda13`",
        )
    facts = device_of(int(which))
    if facts.sm < OLDEST_SM:
        raise UsageError(
            f"cuda:{which} is {facts.arch}, and the compiler here serves sm_{OLDEST_SM} and later",
            code="gpu_too_old",
            mend="use another GPU, or emulator:h200",
        )
    return CudaTarget(
        which, cache_folder or Path(tempfile.gettempdir()) / "greenfast", run_deadline_s, turn
    )
