"""A GPU that does not exist: runs axpy in NumPy, and draws times from a law that its tests know."""

from __future__ import annotations

import random

import numpy as np

from greenfast.search.devices.facts import device
from greenfast.search.targets.base import Execution, Failure, Runner
from greenfast.search.verdict import Reason, TimeKind, Timing

NOISE = 0.003  # standard deviation of one time, relative


def law_us(source_digest: str) -> float:
    """Microseconds of a source: 10 to 13.5, in steps of 5 % of 10, by its first digits."""
    return 10.0 + 0.5 * (int(source_digest[:8], 16) % 8)


class DrawnGpu(Runner):
    """Sources in `wrong` give zeros, in `broken` an illegal address, in `lost` a fault."""

    name = "cuda:0"
    measures = True
    band = 1.0
    check_flop_limit = 1e9

    def __init__(self, *, wrong=(), broken=(), lost=(), seed: int = 1) -> None:
        self.device = device("h200")
        self.wrong, self.broken, self.lost = set(wrong), set(broken), set(lost)
        self.measured: list[str] = []
        self._noise = random.Random(seed)

    def prepare(self) -> None:
        """Nothing to build."""

    def load(self, source, cubin):
        return source

    def execute(self, program, problems):
        for problem in problems:
            if program.digest in self.broken:
                yield Execution(
                    problem, "device", {}, Failure(Reason.DEVICE_FAULT, "an illegal address")
                )
            else:
                yield Execution(problem, "device", self._outputs(program, problem), None)

    def measure(self, program, cubin, problems, against=None, inspect=None):
        if program.digest in self.lost:
            from greenfast.search.errors import Fault

            raise Fault("the measuring child was lost", code="child_lost")
        self.measured.append(program.digest)
        timings = []
        for problem in problems:
            slow = against is not None and law_us(program.digest) > 1.03 * law_us(
                against.program.digest
            )
            count = 16 if slow else 80
            others = self._draw(against.program, count) if against is not None else ()
            timings.append(
                Timing(
                    problem.case.name,
                    law_us(program.digest),
                    TimeKind.MEASURED,
                    "",
                    (("floor_us", 0.01), ("sm_clock_mhz", 1980.0)),
                    "drawn",
                    samples=self._draw(program, count),
                    baseline_samples=others,
                    mode="hot",
                )
            )
        return tuple(timings)

    def identity(self):
        return ("target", self.name), ("gpu", self.device.title), ("driver", "none")

    def _draw(self, program, count):
        return tuple(law_us(program.digest) * self._noise.gauss(1, NOISE) for _ in range(count))

    def _outputs(self, program, problem):
        x, y = problem.tensors
        values = np.float32(2.5) * x.view(x.image).astype(np.float32) - np.float32(0.75)
        image = y.image.copy()
        y.view(image)[...] = (values * (program.digest not in self.wrong)).astype(y.dtype)
        return {"y": image}
