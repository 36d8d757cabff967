"""Repeats timed launches on new inputs, in the module that was timed.

Timed launches repeat the same inputs, so a candidate could return an answer that it has kept.
"""

from __future__ import annotations

from dataclasses import replace

from greenfast.search.gates.base import Subject
from greenfast.search.gates.performance import left_wrong, timed_problems
from greenfast.search.targets.base import Failure

OTHER_INPUTS = 104_729  # added to the seed, so that it differs from the seed of every check


def wrong_after_timing(subject: Subject) -> Failure | None:
    """The first thing that is wrong with repeated launches of each timed workload."""
    timed, fresh = timed_problems(subject), timed_problems(subject, subject.seed + OTHER_INPUTS)
    for pair in zip(timed, fresh, strict=True):
        for execution in subject.target.after_timing(subject.program, *pair):
            failure = execution.failure or left_wrong(subject, execution)
            if failure is not None:
                return replace(failure, sentence=f"after the timed launches: {failure.sentence}")
    return None
