"""Searches on drawn times that differ from process to process, so that a confirmation matters."""

from __future__ import annotations

import math
import random
import re

from contexts import plan_context
from drawn_gpu import DrawnGpu

from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.loop.run import SearchRun
from greenfast.search.loop.sink import History
from greenfast.search.targets.base import Execution
from greenfast.search.timing import LOOKS, race
from greenfast.search.verdict import TimeKind, Timing

NO_HISTORY = History()
TWO_FAST = {(64, 1): 8.0, (64, 2): 9.0}  # us, of (threads a block, elements a thread)
# An H200's ratio of a winner and its runner-up: 1.031 [1.011, 1.048] in three processes.
SEEN = {(64, 1): 8.0 * 1.031, (64, 2): 8.0}


class ScatteringGpu(DrawnGpu):
    """Times by a law of the source's text; each process adds its own scatter to each source.

    A search measures in several threads. What is drawn depends on the sources, the workload and the
    process, and not on the order of the threads.
    """

    def __init__(self, time_us, between=0.002, noise=0.003, seed=1):
        super().__init__()
        self.time_us, self.between, self.noise, self.seed = time_us, between, noise, seed
        self.processes = 0
        self.on_measure = lambda program: None
        self.wrong_when = lambda program: False

    def fresh(self):
        self.processes += 1

    def execute(self, program, problems):
        (self.wrong.add if self.wrong_when(program) else self.wrong.discard)(program.digest)
        yield from super().execute(program, problems)

    def measure(self, program, cubin, problems, against=None, inspect=None):
        self.on_measure(program)
        measurements = []
        for problem in problems:
            if inspect is not None and (
                failure := inspect(
                    Execution(problem, "timed", self._outputs(program, problem), None)
                )
            ):
                return failure
            rival = against.program.digest if against is not None else ""
            noise = self._drawn("noise", program.digest, rival, problem.case.name)
            law = self.law_at(problem)
            samples, others = self._times(law, noise, program, 20), ()
            if against is not None:
                samples, others = race(
                    lambda law=law, noise=noise: self._times(law, noise, program, 1)[0],
                    lambda law=law, noise=noise: self._times(law, noise, against.program, 1)[0],
                    noise.randrange(2**31),
                    looks=LOOKS[-1:] if against.to_the_end else LOOKS,
                    screen=not against.to_the_end,
                )
            median = sorted(samples)[len(samples) // 2]
            measurements.append(
                Timing(
                    problem.case.name,
                    median,
                    TimeKind.MEASURED,
                    "",
                    (("floor_us", 0.01),),
                    "drawn",
                    samples=samples,
                    baseline_samples=others,
                )
            )
        return tuple(measurements)

    def law_at(self, problem):
        """The law of the problem's times: source text to us."""
        return self.time_us

    def _drawn(self, *of):
        return random.Random(" ".join(map(str, (self.seed, self.processes, *of))))

    def _times(self, law, noise, program, count):
        scatter = self._drawn("process", program.digest).gauss(0, self.between / math.sqrt(2))
        middle = law(program.text) * math.exp(scatter)
        return tuple(middle * math.exp(noise.gauss(0, self.noise)) for _ in range(count))


def by_threads(fast):
    """10 us, and what `fast` says for a number of threads a block and elements a thread."""

    def time_us(text):
        threads, per_thread = (
            int(re.search(rf"constexpr int {name} = (\d+);", text).group(1))
            for name in ("threads", "per_thread")
        )
        return fast.get((threads, per_thread), 10.0)

    return time_us


class CursedGpu(ScatteringGpu):
    """The search ranks (64, 1) first; fresh processes measure each candidate's own time."""

    def __init__(self, fresh, lucky=None, **law):
        super().__init__(
            self.law_of_this_process,
            between=0.001,
            **law,
        )
        self.first_law = by_threads(lucky or {(64, 1): 8.0, (64, 2): 8.5})
        self.fresh_law = by_threads(fresh)

    def law_of_this_process(self, text):
        return (self.first_law if self.processes == 0 else self.fresh_law)(text)


def points(sink):
    """Trial number -> (threads, elements a thread)."""
    return {trial.number: tuple(trial.candidate.values().values()) for trial in sink.trials}


def starter(album, emulator, toolchain):
    """`start(gpu, sink)`: a search of axpy on `gpu`, run to its end."""

    def run(gpu, sink, history=NO_HISTORY, more=None, **request):
        plan = make_plan(
            SearchRequest(
                "axpy",
                **{
                    "templates": ("right",),
                    "seed": 3,
                    "strategy": "random",
                    "trials": 50,
                    **request,
                },
            ),
            album,
        )
        context = plan_context(album, plan, gpu, toolchain, checker=emulator, **(more or {}))
        search = SearchRun(plan, context, sink, history)
        return search, search.run()

    return run
