"""A whole search on a GPU: safety of contenders on the emulator, a confirmation at the end.

    python -m bench.gpu.search [--save] [--trials 200] [--workload mission] [--strategy tpe] [--seconds S]

Prints trials a minute, what the safety checks cost, and the confirmation; the samples of every trial are kept.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

from greenfast.search.cores import usable_cores
from greenfast.search.gates.safety import SafetyGate, like
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.loop.run import Control, History, SearchRun
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.toolchain import Toolchain
from greenfast.search.verdict import gate_result, performance_of, verdict_name

OUT = ROOT / "bench" / "results" / "h200" / "search.json"


class Recorder:
    """A sink in memory that notes when each trial came."""

    def __init__(self) -> None:
        self.trials, self.at_s, self.confirmations = [], [], []

    def begin(self, number, proposal) -> None: ...

    def record(self, trial, source) -> None:
        self.trials.append(trial)
        self.at_s.append(time.perf_counter())

    def confirm(self, confirmation) -> None:
        self.confirmations.append(confirmation)

    def settle(self, number, result) -> None: ...
    def beside(self, peer) -> None: ...

    def control(self, spent_s) -> Control:
        return Control.RUN


def main() -> None:
    chosen = _arguments()
    folder, cores = Path(tempfile.mkdtemp(prefix="greenfast-search-")), usable_cores()
    catalogue = Catalogue([REPOSITORY_TEMPLATES])
    toolchain = Toolchain(folder, cores)
    target = open_target("cuda:0", TargetSettings(folder, catalogue.include_dirs, 1))
    target.prepare()
    checker = open_target(
        f"emulator:{like(target.device).name}",
        TargetSettings(folder, catalogue.include_dirs, max(1, cores // 8)),
    )
    prepared = time.perf_counter()
    checker.prepare()
    prepared = time.perf_counter() - prepared
    request = SearchRequest(
        "attention",
        workloads=(chosen.workload,),
        target="cuda:0",
        strategy=chosen.strategy,
        trials=chosen.trials,
        seconds=chosen.seconds,
        seed=5,
    )
    plan = make_plan(request, catalogue, window=cores)
    kernel = catalogue.kernel("attention")
    workloads = tuple(kernel.workload(name) for name in plan.workloads)
    context = EvaluationContext(
        kernel,
        workloads[0].compile_time(kernel),
        workloads,
        target,
        toolchain,
        catalogue.include_dirs,
        plan.limits,
        plan.seed,
        checker=checker,
    )
    spans, sink, started = _clocked(), Recorder(), time.perf_counter()
    try:
        result = SearchRun(plan, context, sink, History()).run()
        ended = time.perf_counter()
        environment = {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "cores": cores,
            "python": platform.python_version(),
            **dict(toolchain.identity),
            **dict(target.identity()),
            "checker": checker.name,
        }
    finally:
        target.close()
        toolchain.close()
    found = {
        "workload": chosen.workload,
        "strategy": chosen.strategy,
        "window": plan.window,
        "why": result.why,
        "ended": result.ended,
        "trials": len(sink.trials),
        "search_s": round(sink.at_s[-1] - started, 2),
        "trials_per_minute": round(len(sink.trials) / (sink.at_s[-1] - started) * 60, 1),
        "confirmation_s": round(ended - sink.at_s[-1], 2),
        "emulator_built_s": round(prepared, 2),
        "safety_checks": len(spans),
        "safety_thread_s": round(sum(spans), 2),
        "safety_median_s": round(sorted(spans)[len(spans) // 2], 3) if spans else None,
        "said": dict(
            Counter(
                f"{verdict_name(one.verdict)} {getattr(one.verdict, 'reason', None) or ''}".strip()
                for one in sink.trials
            )
        ),
        "safety_said": dict(
            Counter(
                one.sentence[:60]
                for trial in sink.trials
                if (one := gate_result(trial.verdict, "safety")) and one.outcome != "skipped"
            )
        ),
    }
    if chosen.save:
        rows = [_row(one, at - started) for one, at in zip(sink.trials, sink.at_s)]
        OUT.write_text(
            json.dumps(
                {
                    "environment": environment,
                    "found": found,
                    "rows": rows,
                    "confirmations": [asdict(confirmation) for confirmation in sink.confirmations],
                }
            )
            + "\n"
        )
    print(json.dumps(found, indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--workload", default="mission")
    parser.add_argument("--strategy", default="tpe")
    parser.add_argument("--trials", type=int)
    parser.add_argument("--seconds", type=float)
    found = parser.parse_args()
    if found.trials is None and found.seconds is None:
        found.trials = 200
    return found


def _clocked() -> list[float]:
    """Seconds of each safety check; the class's method is wrapped, since gates are shared."""
    spans, judge, lock = [], SafetyGate.judge, threading.Lock()

    def clocked(gate, subject):
        begin = time.perf_counter()
        try:
            return judge(gate, subject)
        finally:
            with lock:
                spans.append(time.perf_counter() - begin)

    SafetyGate.judge = clocked
    return spans


def _row(trial, at_s: float) -> dict:
    evidence = performance_of(trial.verdict)
    timing = evidence.timings[0] if evidence else None
    return {
        "number": trial.number,
        "at_s": round(at_s, 3),
        "duration_s": round(trial.duration_s, 3),
        "template": trial.candidate.template,
        "parameters": trial.candidate.values(),
        "verdict": verdict_name(trial.verdict),
        "reason": getattr(trial.verdict, "reason", None),
        "us": timing.time_median_us if timing else None,
        "ratio": evidence.ratio_to_baseline if evidence else None,
        "interval": evidence.ratio_interval if evidence else None,
        "samples": timing.samples if timing else (),
        "baseline_samples": timing.baseline_samples if timing else (),
    }


if __name__ == "__main__":
    main()
