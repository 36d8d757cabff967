"""The worker that judges outputs for a search, beside the loop and not in its process.

Started as `python -m greenfast.search.gates.judging_child READ_FD WRITE_FD FOLDER`. It runs
reference.py, which is trusted like the rest of the program, and sees only bytes of a candidate.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from greenfast.search.children import Parent
from greenfast.search.errors import Fault
from greenfast.search.gates.base import Conditions, Subject
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.judges import Commission
from greenfast.search.gates.promises import Siblings
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.oracle.cases import LARGE_FLOP, Case
from greenfast.search.oracle.expected import CaseData
from greenfast.search.oracle.known_outputs import KnownOutputs
from greenfast.search.oracle.problem import Problem
from greenfast.search.oracle.reference import case_data, keep_at_most, share_outputs
from greenfast.search.render import RenderedSource
from greenfast.search.space.candidate import Candidate
from greenfast.search.targets.base import Execution, Failure, GateLimits, Inspect, Rival, Runner
from greenfast.search.targets.cuda.arena import description
from greenfast.search.targets.cuda.execution import batches, executions, images_in
from greenfast.search.targets.cuda.failures import failure_of
from greenfast.search.targets.cuda.images import ImageFiles
from greenfast.search.toolchain import Cubin
from greenfast.search.verdict import Timing

KEPT_BYTES = 2**28  # of case data
KEPT_IMAGES_BYTES = 2**27  # in files
KEPT_OUTPUTS_BYTES = 2**27  # in files that all workers of a folder read
NO_SOURCE = RenderedSource("", "", (), "", (), False)


class AskingTarget(Runner):
    """The parent's target: it runs the problems of this process."""

    measures = True

    def __init__(self, parent: Parent, folder: Path) -> None:
        self._parent, self._problems = parent, folder / "problems.json"
        self._images = ImageFiles(folder, KEPT_IMAGES_BYTES)

    def describe(self, commission: Commission) -> None:
        self.name, self.device = commission.target, commission.device
        self.check_flop_limit = commission.check_flop_limit

    def prepare(self) -> None:
        """The parent has done that."""

    def identity(self) -> tuple[tuple[str, str], ...]:
        raise NotImplementedError

    def load(self, source: RenderedSource, cubin: Cubin | None) -> None:
        """The parent loads the program."""

    def measure(
        self,
        program: Any,
        cubin: Cubin,
        problems: Sequence[Problem],
        against: Rival | None = None,
        inspect: Inspect | None = None,
    ) -> tuple[Timing, ...] | Failure:
        raise NotImplementedError

    def case_data(self, kernel: KernelSpec, case: Case) -> CaseData:
        if case.flop(kernel) > LARGE_FLOP:
            raise Fault("a large reference is computed on the GPU", code="large_reference")
        return case_data(kernel, case)

    def execute(self, program: Any, problems: Sequence[Problem]) -> Iterator[Execution]:
        for batch in batches(problems):
            yield from executions(batch, self._asked, self._failure)

    def _asked(self, batch: Sequence[Problem]) -> tuple[Mapping[str, Any], np.ndarray]:
        with self._images.held(batch) as files:
            described = [
                description(problem, file) for problem, file in zip(batch, files, strict=True)
            ]
            self._problems.write_text(json.dumps(described))
            self._parent.reply({"problems_file": str(self._problems)})
            answer = self._parent.request()
        if answer is None:
            sys.exit()
        return answer["reply"], images_in(Path(answer["outputs"]))

    def _failure(self, problem: Problem, reply: Mapping[str, Any]) -> Failure:
        return failure_of(self.name, self.device.arch, problem, reply)


class FirstSibling(Siblings):
    """Knows the first correct sibling. The parent compares the outputs of the two."""

    def __init__(self, kernel: KernelSpec, first: Candidate | None) -> None:
        super().__init__(kernel)
        self._first = first

    def first(self, candidate: Candidate) -> Candidate | None:
        return self._first


@lru_cache(maxsize=8)
def _kernel(path: str) -> KernelSpec:
    kernel: KernelSpec = pickle.loads(Path(path).read_bytes())
    return kernel


def judged(request: Mapping[str, Any], target: AskingTarget) -> dict[str, Any]:
    """{"result"}: the gate's result, pickled; {"unknown"}: the parent has to judge."""
    try:
        commission: Commission = pickle.loads(base64.b64decode(request["commission"]))
        kernel = _kernel(request["kernel"])
        target.describe(commission)
        siblings = FirstSibling(kernel, commission.sibling) if commission.keeps_promises else None
        conditions = Conditions(
            kernel=kernel,
            compiled=commission.compiled,
            workloads=commission.workloads,
            target=target,
            limits=GateLimits(),
            seed=commission.seed,
            mode=commission.mode,
            siblings=siblings,
            sizes_secret=commission.sizes_secret,
        )
        subject = Subject(conditions, commission.candidate, NO_SOURCE, None)
        result = CorrectnessGate().judged_here(subject)
        return {"result": base64.b64encode(pickle.dumps(result)).decode()}
    except Exception as error:  # the parent judges the candidate again and reports the error
        return {"unknown": f"{type(error).__name__}: {error}"}


def main() -> None:
    parent = Parent(int(sys.argv[1]), int(sys.argv[2]))
    keep_at_most(KEPT_BYTES)
    shared = Path(sys.argv[3])
    known = shared / "outputs"
    known.mkdir(exist_ok=True)
    share_outputs(KnownOutputs(known, KEPT_OUTPUTS_BYTES))
    folder = Path(tempfile.mkdtemp(prefix=f"worker-{os.getpid()}-", dir=shared))
    target = AskingTarget(parent, folder)
    while (request := parent.request()) is not None:
        parent.reply(judged(request, target))


if __name__ == "__main__":
    main()
