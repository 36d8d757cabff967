"""Requests to run problems, and what the child's replies say of each: pure functions.

The target asks its own child. A process that judges outputs for it asks through its parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from greenfast.search.oracle.problem import Problem
from greenfast.search.targets.base import Execution, Failure
from greenfast.search.verdict import Reason

BATCH_BYTES = 2**28

# The reply to a request to run problems, and their outputs back to back (none with an error).
Ask = Callable[[Sequence[Problem]], tuple[Mapping[str, Any], np.ndarray]]


def executions(
    batch: Sequence[Problem], ask: Ask, failure: Callable[[Problem, Mapping[str, Any]], Failure]
) -> Iterator[Execution]:
    """An execution of each problem; `failure` turns an error of the GPU into a failure of one."""
    if not batch:
        return
    reply, images = ask(batch)
    if "error" not in reply:
        for problem, outputs, damage in zip(
            batch, outputs_of(batch, images), reply["damage"], strict=True
        ):
            damaged = Failure(Reason(damage[0]), damage[1]) if damage else None
            yield Execution(problem, "device", {} if damaged else outputs, damaged)
        return
    at = reply["at"]  # the child is lost, and with it the outputs of the runs before this one
    failed = failure(batch[at], reply)
    yield from executions(batch[:at], ask, failure)
    yield Execution(batch[at], "device", {}, failed)
    yield from executions(batch[at + 1 :], ask, failure)


def batches(problems: Sequence[Problem]) -> Iterator[list[Problem]]:
    """The problems in order, in lists of at most `BATCH_BYTES` (or of one problem)."""
    batch: list[Problem] = []
    held = 0
    for problem in problems:
        size = sum(tensor.image.size for tensor in problem.tensors) + sum(
            workspace.bytes for workspace in problem.workspaces
        )
        if batch and held + size > BATCH_BYTES:
            yield batch
            batch, held = [], 0
        batch.append(problem)
        held += size
    yield batch


def outputs_of(problems: Sequence[Problem], images: np.ndarray) -> list[dict[str, np.ndarray]]:
    """Each problem's outputs by name; `images` holds them all, back to back."""
    outputs: list[dict[str, np.ndarray]] = []
    position = 0
    for problem in problems:
        outputs.append({})
        for tensor in problem.tensors:
            if tensor.role != "input":
                outputs[-1][tensor.name] = images[position : position + tensor.image.size]
                position += tensor.image.size
    return outputs


def images_in(path: Path) -> np.ndarray:
    """The bytes of an output file; none where the child wrote none."""
    return np.fromfile(path, np.uint8) if path.exists() else np.empty(0, np.uint8)
