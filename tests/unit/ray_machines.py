"""What runs on the machines of a test's Ray cluster, so that their processes can import it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from greenfast.search.executors import node
from greenfast.search.executors.cluster import replied
from greenfast.search.executors.parcel import unpacked

FOLDER = "GREENFAST_TEST_FOLDER"


def stays_on(parcel, *arrays):
    """A task that notes its machine, never ends on the one that it is given, and names others."""
    doomed = unpacked(parcel, {})
    own = node.machine_name()
    Path(os.environ[FOLDER], f"on-{own}").touch()
    while own == doomed:
        time.sleep(0.1)
    return replied(lambda: own)


def open_standin(cache, run_deadline_s):
    """A stand-in GPU, with a UUID of its own."""
    import pytest
    import standin_gpus

    from greenfast.search.targets.cuda.target import CudaTarget

    folder = Path(os.environ[FOLDER], str(os.getpid()))
    standin_gpus.install(pytest.MonkeyPatch(), folder, {0: {}})
    return CudaTarget("0", cache, run_deadline_s)
