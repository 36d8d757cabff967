"""Cores that this process may run on."""

from __future__ import annotations

import subprocess
import sys

ON_ONE_CORE = """
import os
from greenfast.search.cores import usable_cores
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
print(usable_cores())
"""


def test_usable_cores_are_those_that_the_process_is_bound_to_and_not_all_that_there_are():
    assert (
        subprocess.run(
            [sys.executable, "-c", ON_ONE_CORE], capture_output=True, text=True, check=True
        ).stdout
        == "1\n"
    )
