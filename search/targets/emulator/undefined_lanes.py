"""Shuffles that read a lane which takes no part in them: CUDA leaves the value undefined.

A kernel may read such a value and not use it, as in `if (lane + step < lanes) sum += other`. Each
order of a run's threads therefore has another value, and a checked run that finds such a shuffle is
repeated with all of them: if it ends with the same outputs, nothing depends on the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from greenfast.search.targets.emulator.runs import RunResult
from greenfast.search.verdict import SafetyFinding

# NaN and -1; a large positive and a large negative number, of all types but the unsigned ones.
UNDEFINED = {
    "forward": 0xFFFFFFFFFFFFFFFF,
    "reverse": 0x7B7B7B7B7B7B7B7B,
    "seeded": 0xFBFBFBFBFBFBFBFB,
}
KIND = "undefined_shuffle"


def only_undefined_lanes(findings: Sequence[SafetyFinding]) -> bool:
    return bool(findings) and all(finding.kind == KIND for finding in findings)


def end_alike(results: Sequence[RunResult]) -> bool:
    """Whether all runs end, with the same outputs and no other findings."""
    first = results[0]
    return all(
        result.status == "finished"
        and all(finding.kind == KIND for finding in chain(result.findings, first.findings))
        and result.outputs.keys() == first.outputs.keys()
        and all(
            np.array_equal(first.outputs[name], image) for name, image in result.outputs.items()
        )
        for result in results
    )
