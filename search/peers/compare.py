"""The parent's side of peers: a fresh process and secret seed each time, the GPU held alone, outputs judged here."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import greenfast
import greenfast.search
from greenfast.search.children import child_environment, kill_group
from greenfast.search.errors import Fault
from greenfast.search.gates.base import Subject
from greenfast.search.gates.correctness import compare
from greenfast.search.gates.performance import timed_problems
from greenfast.search.loop.comparison import Peer
from greenfast.search.oracle.problem import DTYPES, Problem, Scalar
from greenfast.search.peers.results import Round, peers_of
from greenfast.search.targets.base import Execution
from greenfast.search.targets.cuda.arena import describe
from greenfast.search.targets.cuda.target import CudaTarget
from greenfast.search.text import last_line
from greenfast.search.timing import LOOKS, default_mode

PYTHON_VARIABLE = "GREENFAST_PEERS_PYTHON"  # an interpreter with torch, cupy, numpy and ml_dtypes
BOOTSTRAP = Path(__file__).with_name("bootstrap.py")
CHILD_DEADLINE_S = 300.0  # of all peers in one process, imports included
WAIT_DEADLINE_S = 20.0  # of one wait on the GPU
LARGEST_SEED = 2**31 - 1
POLL_S = 0.05
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass
class Heard:
    """What a child wrote before it ended: rows by (peer, workload), and what it was at."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    at_work: tuple[str, str] | None = None


def compare_peers(
    winner: Subject, processes: int = 3, cancelled: Callable[[], bool] = lambda: False
) -> tuple[Peer, ...]:
    """One Peer for each of the kernel's peers and each workload; () where there are none, or times are not measured.

    Fault when no child can be run at all. A peer that is not installed, refuses or crashes is `unavailable`.
    """
    peers_file = winner.kernel.folder / "peers.py"
    if not isinstance(winner.target, CudaTarget) or not peers_file.is_file():
        return ()
    rounds: list[Round] = []
    for _ in range(processes):
        if cancelled():
            break
        rounds += _one_process(
            winner.with_seed(secrets.randbelow(LARGEST_SEED)), peers_file, cancelled
        )
        if not any(one.times for one in rounds):
            break  # nobody to time: other processes would say the same
    return () if cancelled() else peers_of(winner.template.name, rounds)


def _one_process(winner: Subject, peers_file: Path, cancelled: Callable[[], bool]) -> list[Round]:
    """All peers in a fresh process; after a crash the others in another one, on the same seed."""
    problems = timed_problems(winner)
    with tempfile.TemporaryDirectory(prefix="greenfast-peers-") as name:
        folder = Path(name)
        request = _request(winner, problems, peers_file, folder)
        rows: list[dict[str, Any]] = []
        while True:
            heard, ending = _child(
                request | {"skip": [(row["peer"], row["workload"]) for row in rows]},
                winner.target,
                cancelled,
            )
            rows += heard.rows
            if cancelled():
                return []
            if heard.at_work is None:
                if ending:
                    raise Fault(
                        f"the peers' process ended with {ending}",
                        code="peers_child",
                        mend=f"{PYTHON_VARIABLE} names a Python with torch, cupy, numpy and ml_dtypes",
                    )
                break
            peer, workload = heard.at_work
            rows.append(
                {
                    "peer": peer,
                    "workload": workload,
                    "outcome": "unavailable",
                    "version": "",
                    "why": f"its process ended with {ending}",
                }
            )
        by_name = {problem.case.name: problem for problem in problems}
        return [_round(winner, by_name[row["workload"]], row) for row in rows]


def _request(
    winner: Subject, problems: Iterable[Problem], peers_file: Path, folder: Path
) -> dict[str, Any]:
    cubin = folder / "winner.cubin"
    cubin.write_bytes(winner.machine_code.code)
    l2_bytes = winner.target.device.l2_bytes
    return {
        "peers": str(peers_file),
        "cubin": str(cubin),
        "gpu": winner.target.number,
        "l2_bytes": l2_bytes,
        "deadline_s": WAIT_DEADLINE_S,
        "seed": winner.seed,
        "blocks": LOOKS[-1],
        "folder": str(folder),
        "python": python(),
        "workloads": [_described(winner, problem, folder, l2_bytes) for problem in problems],
    }


def _described(winner: Subject, problem: Problem, folder: Path, l2_bytes: int) -> dict[str, Any]:
    """A workload as the child needs it: the launch, and for the peers tensors and scalars by argument name."""
    scalars = [
        {"name": argument.name, "value": given.value}
        for argument, given in zip(winner.kernel.arguments, problem.arguments)
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


def python() -> str:
    return os.environ.get(PYTHON_VARIABLE) or sys.executable


def _child(
    request: Mapping[str, Any], target: CudaTarget, cancelled: Callable[[], bool]
) -> tuple[Heard, str]:
    """What the child said, and how it ended: empty when well."""
    folder = Path(request["folder"])
    (folder / "request.json").write_text(json.dumps(request))
    replies = folder / "replies.jsonl"
    replies.write_text("")
    with target.alone():
        ending = run_child(request["python"], folder / "request.json", replies, cancelled=cancelled)
    return heard(replies.read_text().splitlines()), ending


def run_child(
    interpreter: str,
    request: Path,
    replies: Path,
    deadline_s: float = CHILD_DEADLINE_S,
    cancelled: Callable[[], bool] = lambda: False,
) -> str:
    """Run the child to its end; one phrase on how it ended, empty when well. Fault when it cannot be started."""
    command = [interpreter, str(BOOTSTRAP), json.dumps(_packages()), str(request), str(replies)]
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=child_environment({"HOME": os.path.expanduser("~")}),
                cwd=request.parent,
                start_new_session=True,
            )
        except OSError as error:
            raise Fault(
                f"{interpreter} cannot be run: {error.strerror}",
                code="peers_child",
                mend=f"correct {PYTHON_VARIABLE}",
            ) from error
        end = time.monotonic() + deadline_s
        try:
            while process.poll() is None:
                if cancelled() or time.monotonic() > end:
                    return (
                        "it was cancelled" if cancelled() else f"no answer within {deadline_s:g} s"
                    )
                time.sleep(POLL_S)
            code = process.returncode
        finally:
            kill_group(process)
        errors.seek(0)
        tail = last_line(errors.read()[-4000:].decode(errors="replace"))
    return "" if code == 0 else f"exit code {code}" + (f": {tail}" if tail else "")


def _packages() -> dict[str, str]:
    """The packages that the child imports, and where they lie."""
    return {
        package.__name__: str(Path(next(iter(package.__path__))))
        for package in (greenfast, greenfast.search)
    }


def heard(lines: Iterable[str]) -> Heard:
    """The child's lines; a last one that was cut short says nothing."""
    found = Heard()
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if row.get("begin"):
            found.at_work = (row["peer"], row["workload"])
        elif "outcome" in row:
            found.rows.append(row)
            found.at_work = None
    return found


def _round(winner: Subject, problem: Problem, row: Mapping[str, Any]) -> Round:
    """A reply with its outputs judged by the bounds that our own kernels are held to."""
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
    theirs = {
        tensor.name: _image(tensor, row["outputs"][tensor.name])
        for tensor in problem.tensors
        if tensor.name in row["outputs"]
    }
    wrong = _wrong(winner, problem, theirs)
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


def _image(tensor, path: str) -> np.ndarray:
    """A peer's output, laid out as ours is."""
    image = tensor.image.copy()
    image.flags.writeable = True
    tensor.view(image)[...] = np.fromfile(path, np.uint8).view(tensor.dtype).reshape(tensor.shape)
    return image


def _wrong(winner: Subject, problem: Problem, images: Mapping[str, np.ndarray]) -> str:
    """Why outputs are wrong; empty when they are right."""
    checks, reason = compare(winner, Execution(problem, "device", images, None))
    return next((check.sentence for check in checks if not check.passed), "") if reason else ""
