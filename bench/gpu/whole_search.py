"""A whole search on a GPU, with safety on the emulator and a confirmation: rate and costs.

    python -m bench.gpu.whole_search [--save] [--trials 200] [--workload mission]
                                     [--strategy tpe] [--seconds S]

Prints trials a minute, the time spent in safety checks, and the confirmation. --save keeps the
samples of every trial.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections import Counter
from dataclasses import asdict

from bench.command_line import add_save, script_parser
from bench.gpu.recorder import Recorder, trial_row, verdict_and_reason
from bench.results import Row, write_result
from bench.session import Session, open_session
from greenfast.search.cores import usable_cores
from greenfast.search.gates import Subject
from greenfast.search.gates.safety import SafetyGate, like
from greenfast.search.loop.plan import SearchPlan, SearchRequest, make_plan
from greenfast.search.loop.run import SearchRun
from greenfast.search.loop.sink import History, RunResult
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.verdict import GateResult, gate_result

SEED = 5


def main() -> None:
    options = _options()
    with open_session("cuda:0", prefix="search") as session:
        result, environment = searched(session, options)
    if options.save:
        write_result("h200/search", {"environment": environment, **result})
    print(json.dumps(result["found"], indent=1))


def _options() -> argparse.Namespace:
    parser = script_parser(__doc__)
    add_save(parser)
    parser.add_argument("--workload", default="mission")
    parser.add_argument("--strategy", default="tpe")
    parser.add_argument("--trials", type=int)
    parser.add_argument("--seconds", type=float)
    options = parser.parse_args()
    if options.trials is None and options.seconds is None:
        options.trials = 200
    return options


def searched(session: Session, options: argparse.Namespace) -> tuple[Row, Row]:
    """The search's summary with its trials and confirmations, and the environment."""
    cores = usable_cores()
    settings = TargetSettings(session.folder, session.catalogue.include_dirs, max(1, cores // 8))
    checker = open_target(f"emulator:{like(session.target.device).name}", settings)
    began = time.perf_counter()
    checker.prepare()
    emulator_built_s = time.perf_counter() - began
    request = SearchRequest(
        "attention",
        workloads=(options.workload,),
        target="cuda:0",
        strategy=options.strategy,
        trials=options.trials,
        seconds=options.seconds,
        seed=SEED,
    )
    plan = make_plan(request, session.catalogue, window=cores)
    kernel = session.catalogue.kernel("attention")
    workloads = [kernel.workload(name) for name in plan.workloads]
    context = session.context(
        kernel, *workloads, limits=plan.limits, seed=plan.seed, checker=checker
    )
    safety_s, recorder, started = _timed_safety(), Recorder(), time.perf_counter()
    run = SearchRun(plan, context, recorder, History()).run()
    ended = time.perf_counter()
    summary = {
        **_figures(plan, run, recorder, started, ended),
        "emulator_built_s": round(emulator_built_s, 2),
        **_safety_figures(recorder, safety_s),
    }
    rows = [
        {**trial_row(trial), "at_s": round(at_s - started, 3)}
        for trial, at_s in zip(recorder.trials, recorder.at_s, strict=True)
    ]
    confirmations = [asdict(confirmation) for confirmation in recorder.confirmations]
    environment = {**session.environment(), "checker": checker.name}
    return {"found": summary, "rows": rows, "confirmations": confirmations}, environment


def _figures(
    plan: SearchPlan, run: RunResult, recorder: Recorder, started: float, ended: float
) -> Row:
    search_s = recorder.at_s[-1] - started
    return {
        "workload": plan.workloads[0],
        "strategy": plan.strategy,
        "window": plan.window,
        "why": run.why,
        "ended": run.ended,
        "trials": len(recorder.trials),
        "search_s": round(search_s, 2),
        "trials_per_minute": round(len(recorder.trials) / search_s * 60, 1),
        "confirmation_s": round(ended - recorder.at_s[-1], 2),
        "said": dict(Counter(map(verdict_and_reason, recorder.trials))),
    }


def _safety_figures(recorder: Recorder, spans: list[float]) -> Row:
    results = [gate_result(trial.verdict, "safety") for trial in recorder.trials]
    return {
        "safety_checks": len(spans),
        "safety_thread_s": round(sum(spans), 2),
        "safety_median_s": round(sorted(spans)[len(spans) // 2], 3) if spans else None,
        "safety_said": dict(
            Counter(
                result.sentence[:60] for result in results if result and result.outcome != "skipped"
            )
        ),
    }


def _timed_safety() -> list[float]:
    """Seconds of each safety check from now on; wraps the class's method, as gates are shared."""
    spans: list[float] = []
    judge, lock = SafetyGate.judge, threading.Lock()

    def timed_judge(gate: SafetyGate, subject: Subject) -> GateResult:
        begin = time.perf_counter()
        try:
            return judge(gate, subject)
        finally:
            with lock:
                spans.append(time.perf_counter() - begin)

    SafetyGate.judge = timed_judge
    return spans


if __name__ == "__main__":
    main()
