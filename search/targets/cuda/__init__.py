"""Real GPUs, through CuPy in a child process for each."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from greenfast.search.errors import UsageError
from greenfast.search.targets.cuda.driver import device_of, gpu_count, start_code, why_not
from greenfast.search.targets.gpu_names import numbers_of, require_one_model

if TYPE_CHECKING:  # the children of a GPU, which need a part of this package, import it sooner
    from greenfast.search.targets.base import Target

__all__ = ["gpu_count", "open_device"]

OLDEST_SM = 75  # that NVRTC of CUDA 13 compiles for (its release notes)


def open_device(
    which: str,
    cache_folder: Path | None = None,
    run_deadline_s: float = 30.0,
    turn: Callable[[str], AbstractContextManager[None]] = lambda uuid: nullcontext(),
) -> Target:
    """The GPUs that `which` names: `0`, `0,1` or `all`; `turn(uuid)` is held while one is used.

    Cheap: no child is started before `prepare`. UsageError when a GPU cannot be used, and for GPUs
    of different models.
    """
    from greenfast.search.targets.cuda.several import SeveralGpus
    from greenfast.search.targets.cuda.target import CudaTarget

    numbers = numbers_of(which, gpu_count())
    missing = why_not(max(numbers, default=0), start_code(), gpu_count())
    if missing:
        raise UsageError(
            f"cuda:{which} cannot be used on this machine: {missing}",
            code="no_gpu",
            mend="use emulator:h200, or install the NVIDIA driver and the extra `cuda13`",
        )
    gpus = [(number, device_of(number)) for number in numbers]
    require_one_model(which, gpus)
    facts = gpus[0][1]
    if facts.sm < OLDEST_SM:
        raise UsageError(
            f"cuda:{which} is {facts.arch}, but the compiler needs sm_{OLDEST_SM} or later",
            code="gpu_too_old",
            mend="use another GPU, or emulator:h200",
        )
    folder = cache_folder or Path(tempfile.gettempdir()) / "greenfast"
    targets = [CudaTarget(str(number), folder, run_deadline_s, turn) for number in numbers]
    return targets[0] if len(targets) == 1 else SeveralGpus(targets)
