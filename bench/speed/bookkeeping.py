"""What a trial costs beside its evaluation: the loop's thread and the strategy, by trials.

    python -m bench.speed.bookkeeping [--save] [--trials N ...] [--strategy NAME ...]

Each search resumes with that many stored trials, in a space of 60 million points, on a target that
answers at once, with its results in SQLite. Milliseconds of CPU a trial, over the next 60 trials:
`loop` is the thread that records trials, `strategy` what asking and telling take, in whichever
thread they run. Python's garbage collection of all that was loaded is made before: it comes once,
takes 0.2 s at 10,000 trials, and would count 3 ms in each of the 60.
"""

from __future__ import annotations

import gc
import json
import math
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.command_line import add_save, script_parser
from bench.environment import publish
from bench.results import ROOT, Row
from greenfast.db.sink import StoreSink
from greenfast.db.store import Store
from greenfast.search.devices.facts import device
from greenfast.search.gates import GateLimits
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.loop.plan import SearchPlan
from greenfast.search.loop.run import SearchRun
from greenfast.search.loop.sink import History
from greenfast.search.strategies import STRATEGIES
from greenfast.search.targets.base import Answering, Question
from greenfast.search.verdict import Green, Passed, PerformanceEvidence, Trial, Verdict
from tests import store_values as values

MEASURED = 60  # trials
LEARNING = sorted(set(STRATEGIES) - {"exhaustive"})  # which lists its space, or is refused
PARAMETERS, SIZE = 10, 6
WINDOW = 16
CHECKS = 130  # outputs of a correct attention candidate that are compared
SEED = 7


class Immediate(Answering):
    """Answers at once; a candidate's time follows from its parameters."""

    name, device = "emulator:h200", device("h200")

    def prepare(self) -> None:
        """Nothing to build."""

    def identity(self) -> tuple[tuple[str, str], ...]:
        return (("target", "immediate"),)

    def answers(self, question: Question) -> Verdict:
        return verdict(question.candidate.values())


@dataclass
class Spent:
    """Seconds of CPU in some functions, of the threads that call them."""

    seconds: float = 0.0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            begin = time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                self.seconds += time.thread_time() - begin

        return call


def main() -> None:
    parser = script_parser(__doc__)
    add_save(parser)
    parser.add_argument("--trials", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--strategy", nargs="+", choices=LEARNING, default=LEARNING)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="greenfast-bookkeeping-") as folder:
        catalogue = wide_axpy(Path(folder) / "templates")
        for strategy in options.strategy:
            for trials in options.trials:
                rows.append(measured(catalogue, strategy, trials))
                print(json.dumps(rows[-1]), flush=True)
    publish("bookkeeping", rows, save=options.save)


def wide_axpy(folder: Path) -> Catalogue:
    """The album's axpy with ten more parameters, which its text shows."""
    shutil.copytree(
        ROOT / "tests" / "kernels" / "axpy",
        folder / "axpy",
        ignore=shutil.ignore_patterns("broken*", "__*"),
    )
    names = [f"p{number}" for number in range(PARAMETERS)]
    template, text = folder / "axpy" / "right.toml", folder / "axpy" / "right.cu.j2"
    choices = list(range(1, SIZE + 1))
    parameters = "".join(
        f'[parameters.{name}]\ntype = "int"\nvalues = {choices}\ndefault = 1\n\n' for name in names
    )
    before, mark, after = template.read_text().partition("[[constraints]]")
    template.write_text(before + parameters + mark + after)
    lines = "".join(f"constexpr int {name} = {{{{ {name} }}}};\n" for name in names)
    text.write_text(text.read_text().replace("extern", lines + "\nextern", 1))
    return Catalogue([folder])


def measured(catalogue: Catalogue, strategy: str, trials: int) -> Row:
    """Resume a search with so many trials and run some more."""
    plan = _plan(catalogue, strategy, trials + MEASURED)
    with _store() as store:
        row = store.submit(plan)
        claim = store.claim("bench", 3600.0, row.id)
        run = SearchRun(
            plan,
            _context(catalogue, plan),
            StoreSink(store, claim, 3600.0),
            _history(catalogue, plan, trials),
        )
        spent = Spent()
        for name in ("ask", "tell"):
            setattr(run.strategy, name, spent.timed(getattr(run.strategy, name)))
        gc.collect()
        begin, cpu = time.perf_counter(), time.thread_time()
        result = run.run()
        loop_s, wall_s = time.thread_time() - cpu, time.perf_counter() - begin
    assert result.ended == "completed", result
    return {
        "what": f"{strategy} after {trials} trials",
        "strategy": strategy,
        "trials": trials,
        "loop_ms": _each_ms(loop_s),
        "strategy_ms": _each_ms(spent.seconds),
        "wall_ms": _each_ms(wall_s),
    }


def _each_ms(seconds: float) -> float:
    return round(1e3 * seconds / MEASURED, 3)


def _plan(catalogue: Catalogue, strategy: str, trials: int) -> SearchPlan:
    kernel = catalogue.kernel("axpy")
    workload = kernel.workload("line")
    return replace(
        values.plan(),
        kernel="axpy",
        name="bookkeeping",
        workloads=("line",),
        templates=("right",),
        strategy=strategy,
        trials=trials,
        seed=SEED,
        baseline="right:plain",
        window=WINDOW,
        compiled=workload.compile_time(kernel),
        limits=GateLimits(),
        confirm=False,
    )


def _context(catalogue: Catalogue, plan: SearchPlan) -> EvaluationContext:
    kernel = catalogue.kernel("axpy")
    return EvaluationContext(
        kernel,
        plan.compiled,
        (kernel.workload("line"),),
        Immediate(),
        None,  # type: ignore[arg-type]  # nothing is compiled
        catalogue.include_dirs,
        plan.limits,
        plan.seed,
    )


def _history(catalogue: Catalogue, plan: SearchPlan, trials: int) -> History:
    """Trials of random points, as a database would return them."""
    context = _context(catalogue, plan)
    space = context.target.space(context.kernel.template("right"), context.compiled)
    rng, done = random.Random(SEED), []
    strategy = STRATEGIES["random"]("axpy", {"right": space}, (), SEED)
    for number in range(trials):
        candidate = strategy.random_unseen("right", rng)
        strategy.untried["right"].mark(candidate.parameters)
        done.append(Trial(number, candidate, verdict(candidate.values(), 0), f"{number:064x}", 0.1))
    return History(tuple(done))


def verdict(parameters: dict[str, Any], checks: int = CHECKS) -> Verdict:
    """Correct, with so many checks, and a time that depends on the parameters."""
    numbers = [float(value) for name, value in parameters.items() if name.startswith("p")]
    time_us = 10.0 + sum((number - 2.0) ** 2 for number in numbers)
    green = values.green(0, time_us, checks=checks)
    gates = tuple(
        replace(gate, evidence=replace(gate.evidence, ratio_to_baseline=time_us / 20.0))
        if isinstance(gate.evidence, PerformanceEvidence)
        else gate
        for gate in green.gates
    )
    assert math.isfinite(time_us) and isinstance(gates[0], Passed)
    return Green(gates)


@contextmanager
def _store() -> Iterator[Store]:
    folder = ROOT / "build"  # on the measured disk; the system's temporary folder is often memory
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        store = Store.open(f"sqlite:///{Path(name) / 'bench.sqlite'}")
        try:
            yield store
        finally:
            store.close()


if __name__ == "__main__":
    main()
