"""The parent's side of peers: each process is fresh and has a secret seed; outputs are judged here.

The GPU is held for the child alone while it runs.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from greenfast.search.errors import Fault
from greenfast.search.gates.base import Subject
from greenfast.search.gates.correctness import compare
from greenfast.search.gates.performance import timed_problems
from greenfast.search.loop.comparison import Peer
from greenfast.search.oracle.cases import LARGEST_SEED
from greenfast.search.oracle.problem import Problem, Scalar, Tensor
from greenfast.search.oracle.storage import DTYPES
from greenfast.search.peers.offers import unavailable
from greenfast.search.peers.process import (
    PYTHON_VARIABLE,
    Replies,
    python,
    read_replies,
    run_child,
)
from greenfast.search.peers.results import Round, peers_of
from greenfast.search.scratch import scratch
from greenfast.search.targets.base import Execution
from greenfast.search.targets.cuda.arena import describe
from greenfast.search.targets.cuda.target import CudaTarget
from greenfast.search.timing import LOOKS, default_mode

WAIT_DEADLINE_S = 20.0  # of one wait on the GPU
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def compare_peers(
    winner: Subject, processes: int = 3, cancelled: Callable[[], bool] = lambda: False
) -> tuple[Peer, ...]:
    """One Peer for each of the kernel's peers and each workload.

    Returns () for a kernel without peers, on a target that does not measure, and when cancelled.
    A peer that is not installed, refuses or crashes is `unavailable`.
    Fault when the child cannot be run.
    """
    peers_file = winner.kernel.folder / "peers.py"
    target = winner.target
    if not isinstance(target, CudaTarget) or not peers_file.is_file():
        return ()
    rounds: list[Round] = []
    for _ in range(processes):
        if cancelled():
            break
        seeded = winner.with_seed(secrets.randbelow(LARGEST_SEED))
        rounds += _rounds(seeded, target, peers_file, cancelled)
        if not any(round_.times for round_ in rounds):
            break  # no peer runs here, and another process would not change that
    return () if cancelled() else peers_of(winner.template.name, rounds)


def _rounds(
    winner: Subject, target: CudaTarget, peers_file: Path, cancelled: Callable[[], bool]
) -> list[Round]:
    """All peers in a fresh process. After a crash the rest run in another one, on the same seed."""
    problems = timed_problems(winner)
    with scratch("peers") as folder:
        request = _request(winner, target, problems, peers_file, folder)
        rows: list[dict[str, Any]] = []
        while True:
            skip = [(row["peer"], row["workload"]) for row in rows]
            replies, failure = _replies(request | {"skip": skip}, target, cancelled)
            rows += replies.rows
            if cancelled():
                return []
            if replies.running is not None:
                peer, workload = replies.running
                rows.append(unavailable(peer, workload, f"its process ended with {failure}"))
                continue
            if failure:
                raise Fault(
                    f"the peers' process ended with {failure}",
                    code="peers_child",
                    mend=f"{PYTHON_VARIABLE} names a Python with torch, cupy, numpy and ml_dtypes",
                )
            break
        by_name = {problem.case.name: problem for problem in problems}
        return [_round(winner, by_name[row["workload"]], row) for row in rows]


def _request(
    winner: Subject,
    target: CudaTarget,
    problems: Iterable[Problem],
    peers_file: Path,
    folder: Path,
) -> dict[str, Any]:
    cubin = folder / "winner.cubin"
    cubin.write_bytes(winner.machine_code.code)
    l2_bytes = target.device.l2_bytes
    return {
        "peers": str(peers_file),
        "cubin": str(cubin),
        "gpu": target.number,
        "l2_bytes": l2_bytes,
        "deadline_s": WAIT_DEADLINE_S,
        "seed": winner.seed,
        "blocks": LOOKS[-1],
        "folder": str(folder),
        "python": python(),
        "workloads": [_described(winner, problem, folder, l2_bytes) for problem in problems],
    }


def _described(winner: Subject, problem: Problem, folder: Path, l2_bytes: int) -> dict[str, Any]:
    """A workload as JSON: the winner's launch, and for peers the tensors and scalars by name."""
    scalars = [
        {"name": argument.name, "value": given.value}
        for argument, given in zip(winner.kernel.arguments, problem.arguments, strict=False)
        if isinstance(given, Scalar)
    ]
    data_bytes = sum(tensor.image.size for tensor in problem.tensors)
    return {
        "name": problem.case.name,
        "dims": dict(problem.case.dims),
        "options": dict(problem.case.options),
        "mode": problem.mode if problem.mode != "auto" else default_mode(data_bytes, l2_bytes),
        "scalars": scalars,
        "tensors": [
            {
                "name": tensor.name,
                "role": tensor.role,
                "dtype": DTYPE_NAMES[tensor.dtype],
                "shape": list(tensor.shape),
                "strides": list(tensor.strides),
            }
            for tensor in problem.tensors
        ],
        "problem": describe(problem, folder / f"images-{problem.case.name}"),
    }


def _replies(
    request: Mapping[str, Any], target: CudaTarget, cancelled: Callable[[], bool]
) -> tuple[Replies, str]:
    """The child's replies, and how it failed: empty when it did not."""
    folder = Path(request["folder"])
    (folder / "request.json").write_text(json.dumps(request))
    reply_file = folder / "replies.jsonl"
    reply_file.write_text("")
    with target.alone():
        failure = run_child(
            request["python"], folder / "request.json", reply_file, cancelled=cancelled
        )
    return read_replies(reply_file.read_text().splitlines()), failure


def _round(winner: Subject, problem: Problem, row: Mapping[str, Any]) -> Round:
    """A row with its outputs judged by the same bounds as our kernels."""
    base = Round(
        row["peer"],
        row["version"],
        row["workload"],
        row["outcome"],
        row.get("why", ""),
        winner.seed,
    )
    if row["outcome"] != "ran":
        return base
    images = {name: np.fromfile(path, np.uint8) for name, path in row["winner_outputs"].items()}
    wrong = _wrong(winner, problem, images)
    if wrong:
        return replace(
            base, outcome="not_comparable", why=f"the winner itself is wrong on a new seed: {wrong}"
        )
    peer_images = {
        tensor.name: _image(tensor, row["outputs"][tensor.name])
        for tensor in problem.tensors
        if tensor.name in row["outputs"]
    }
    wrong = _wrong(winner, problem, peer_images)
    if wrong:
        return replace(base, outcome="wrong", why=wrong)
    detail = (
        ("sets", float(row["sets"])),
        ("nodes", float(row["nodes"])),
        ("peer_nodes", float(row["other_nodes"])),
        *sorted(row["health"].items()),
    )
    return replace(
        base,
        outcome="timed",
        mode=row["mode"],
        times=(tuple(row["samples"]), tuple(row["others"])),
        detail=detail,
    )


def _image(tensor: Tensor, path: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A peer's output as a byte image with the layout of ours."""
    image = tensor.image.copy()
    image.flags.writeable = True
    tensor.view(image)[...] = np.fromfile(path, np.uint8).view(tensor.dtype).reshape(tensor.shape)
    return image


def _wrong(winner: Subject, problem: Problem, images: Mapping[str, np.ndarray]) -> str:
    """Why outputs are wrong; empty when they are correct."""
    checks, reason = compare(winner, Execution(problem, "device", images, None))
    return next((check.sentence for check in checks if not check.passed), "") if reason else ""
