"""The processor time of a search: of its own process by stage, and of all others by what they do.

    python -m bench.speed.search_cpu [--save] [--trials 100] [--gpus 1] [--cores 16]
                                     [--strategy evolution] [--workload mission] [--profile]
                                     [--templates mma wgmma]
                                     [--slow-down 1] [--warm] [--no-workers] [--evaluators N]
                                     [--switch-ms 5]

Python's lock lets one thread of a process work at a time, so its own time bounds the rate of a
search on any number of cores. `processes_cpu_ms` is what the other processes use for a trial.

Everything is real but the GPU's child: strategy, rendering, NVRTC, gates, safety on the emulator,
SQLite. The process behaves as on a machine with `--cores`. The times of candidates are invented,
and nothing here was measured on a GPU.

`--warm` repeats the search with the cubins of the first, and `--slow-down` makes the stand-in's
delays longer. Together they show on a small machine whether anything but the processors keeps
several GPUs from working at once.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.command_line import add_save, script_parser
from bench.environment import publish
from bench.gpu.recorder import verdict_and_reason
from bench.gpu.stage_spans import Period, Spans, stage_rows, watched
from bench.gpu.two_gpus import Setting, gpus_of, search_context, unasked_s, with_checker
from bench.results import ROOT, Row
from bench.speed.process_times import ProcessTimes
from greenfast.db.sink import StoreSink
from greenfast.db.store import Store
from greenfast.search.cpu_time import process_s
from greenfast.search.gates import judges
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.loop.run import SearchRun
from greenfast.search.loop.sink import History, RunResult
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.targets.base import Target
from greenfast.search.toolchain import Toolchain
from greenfast.search.verdict import Trial
from tests.unit import standin_attention, standin_gpus

SEED = 5
# Seconds of an H200 for a candidate's two requests (bench/results/h200/search_rate.json).
EXECUTE_S, MEASURE_S = 0.029, 0.035
LEASE_S = 3600.0
LISTED_FUNCTIONS = 60


def main() -> None:
    parser = script_parser(__doc__)
    add_save(parser)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--cores", type=int, default=16)
    parser.add_argument("--strategy", default="evolution")
    parser.add_argument("--workload", default="mission")
    parser.add_argument("--templates", nargs="*", help="of attention; default: all")
    parser.add_argument("--profile", action="store_true", help="functions, at twice the cost")
    parser.add_argument("--slow-down", type=float, default=1.0, help="of the stand-in GPU")
    parser.add_argument("--warm", action="store_true", help="measure a repeated search")
    parser.add_argument("--no-workers", action="store_true", help="judge outputs in the process")
    parser.add_argument("--evaluators", type=int, help="processes (default: as the search does)")
    parser.add_argument(
        "--switch-ms", type=float, default=1e3 * sys.getswitchinterval(), help="of Python's threads"
    )
    parser.add_argument("--version", default="")
    parser.add_argument("--emulator", type=Path, help="a folder in which its build is kept")
    options = parser.parse_args()
    sys.setswitchinterval(options.switch_ms / 1e3)
    with tempfile.TemporaryDirectory(prefix="greenfast-search-cpu-") as name, ExitStack() as stack:
        stack.enter_context(_patches(Path(name), options))
        if options.warm:
            measured(Path(name), options)
        row = measured(Path(name), options)
    print(json.dumps(row, indent=1), flush=True)
    publish("search_cpu", [row], save=options.save)


@contextmanager
def _patches(folder: Path, options: argparse.Namespace) -> Iterator[None]:
    """Stand-in GPUs, and as many cores as this machine has not."""
    import pytest

    from greenfast.search.targets.cuda.target import CudaTarget

    with pytest.MonkeyPatch.context() as monkey, ExitStack() as stack:
        standin_gpus.install(monkey, folder / "tmp", {number: {} for number in range(options.gpus)})
        monkey.setattr(CudaTarget, "measurer", "standin_attention")
        delays_s = (options.slow_down * EXECUTE_S, options.slow_down * MEASURE_S)
        kernel = Catalogue([REPOSITORY_TEMPLATES]).kernel("attention")
        compiled = dict(kernel.workload(options.workload).compile_time(kernel))
        standin_attention.settings(folder / "tmp", *delays_s, compiled)
        for module in list(sys.modules.values()):
            if module.__name__.startswith("greenfast.") and hasattr(module, "usable_cores"):
                stack.enter_context(patch.object(module, "usable_cores", lambda: options.cores))
        if options.no_workers:
            stack.enter_context(patch.object(judges, "workers_for", lambda cores: 0))
        yield


@dataclass(frozen=True)
class _Measurement:
    """One search and the time that it took."""

    result: RunResult
    trials: list[Trial]
    spans: Spans
    period: Period
    own_cpu_s: float
    loop_cpu_s: float  # of the thread that runs the loop
    workers_cpu_s: float  # of the processes that judge outputs, their start included
    processes_cpu_s: dict[str, float]  # of all other processes, by what they do
    functions: Row  # of the profile; empty without one


def measured(folder: Path, options: argparse.Namespace) -> Row:
    """One search from empty caches."""
    catalogue = Catalogue([REPOSITORY_TEMPLATES])
    request: dict[str, Any] = {
        "kernel": "attention",
        "workloads": (options.workload,),
        "target": f"cuda:{','.join(map(str, range(options.gpus)))}",
        "strategy": options.strategy,
        "seed": SEED,
        "confirm": False,
        "trials": options.trials,
        "templates": tuple(options.templates) if options.templates else None,
    }
    window = 2 * options.cores
    on_one_gpu = {**request, "target": "cuda:0"}
    checker = with_checker(catalogue, on_one_gpu, window, options.emulator or folder).checker
    setting = Setting(catalogue, request, checker, window)
    toolchain = Toolchain(folder / "cubins", options.cores)
    target = open_target(
        request["target"], TargetSettings(folder / "cache", catalogue.include_dirs, 1)
    )
    try:
        target.prepare()
        with _opened_store(folder) as store:
            measurement = _searched(
                setting,
                store,
                target,
                toolchain,
                profiled=options.profile,
                evaluators=options.evaluators,
            )
        busy_s = [
            sum(s for name, s in gpu.spans.items() if ":" not in name) for gpu in gpus_of(target)
        ]
        idle_s = [unasked_s(gpu) for gpu in gpus_of(target)]
    finally:
        target.close()
        toolchain.close()
        if checker is not None:
            checker.close()
    return _row(options, measurement, busy_s, idle_s)


@contextmanager
def _opened_store(folder: Path) -> Iterator[Store]:
    store = Store.open(f"sqlite:///{Path(tempfile.mkdtemp(dir=folder)) / 'bench.sqlite'}")
    try:
        yield store
    finally:
        store.close()


def _searched(
    setting: Setting,
    store: Store,
    target: Target,
    toolchain: Toolchain,
    *,
    profiled: bool,
    evaluators: int | None,
) -> _Measurement:
    plan = make_plan(SearchRequest(**setting.request), setting.catalogue, window=setting.window)
    claim = store.claim("bench", LEASE_S, store.submit(plan).id)
    assert claim is not None
    trials: list[Trial] = []
    context = search_context(setting, plan, target, toolchain)
    sink = StoreSink(store, claim, LEASE_S)
    search = SearchRun(
        plan, context, sink, History(), on_trials=trials.extend, evaluators=evaluators
    )
    profiler = _Profiler() if profiled else None
    processes = ProcessTimes()
    processes.start()
    with watched() as spans:
        begin_s, cpu_s, loop_s = time.perf_counter(), time.process_time(), time.thread_time()
        if profiler is not None:
            profiler.begin()
        result = search.run()
        own_cpu_s, end_s = time.process_time() - cpu_s, time.perf_counter()
        loop_cpu_s = time.thread_time() - loop_s
        if profiler is not None:
            profiler.end()
    processes_cpu_s = processes.result()
    own_cpu_s -= processes.own_s
    functions = profiler.rows(len(trials)) if profiler is not None else {}
    period, workers_cpu_s = Period(begin_s, end_s), _workers_cpu_s()
    return _Measurement(
        result,
        trials,
        spans,
        period,
        own_cpu_s,
        loop_cpu_s,
        workers_cpu_s,
        processes_cpu_s,
        functions,
    )


def _workers_cpu_s() -> float:
    used = judges.judges_in_use()
    return sum(process_s(worker.process.pid) for worker in used.pool.all) if used else 0.0


def _row(
    options: argparse.Namespace,
    measurement: _Measurement,
    busy_s: list[float],
    idle_s: list[float],
) -> Row:
    """`busy_s` and `idle_s`: of each GPU, as the search's process and as its child saw it."""
    count, period = len(measurement.trials), measurement.period
    wall_s = period.end_s - period.begin_s
    return {
        "what": f"{options.strategy}, {options.gpus} stand-in GPUs"
        + (", warm" if options.warm else "")
        + (f", {options.slow_down:g} times as slow" if options.slow_down != 1 else ""),
        "version": options.version,
        "gpu": "a stand-in: no figure here was measured on a GPU",
        "strategy": options.strategy,
        "workload": options.workload,
        "templates": options.templates,
        "gpus": options.gpus,
        "evaluators": options.evaluators,
        "as_if_cores": options.cores,
        "switch_ms": round(1e3 * sys.getswitchinterval(), 3),
        "ended": f"{measurement.result.ended}: {measurement.result.why}",
        "trials": count,
        "own_cpu_ms": _ms(measurement.own_cpu_s, count),
        "loop_cpu_ms": _ms(measurement.loop_cpu_s, count),
        "workers_cpu_ms": _ms(measurement.workers_cpu_s, count),
        "processes_cpu_ms": {
            name: _ms(used_s, count) for name, used_s in measurement.processes_cpu_s.items()
        },
        "wall_ms": _ms(wall_s, count),
        "trials_per_minute": round(60 * count / wall_s, 1),
        "gpu_idle_share": [round(1 - each / wall_s, 3) for each in busy_s],
        "gpu_unasked_share": [round(each / wall_s, 3) for each in idle_s],
        "load_average": round(os.getloadavg()[0], 1),
        "verdicts": dict(Counter(map(verdict_and_reason, measurement.trials))),
        "stages_cpu_ms": _stage_cpu(measurement.spans, period, count),
        "functions_ms": measurement.functions,
    }


def _ms(seconds: float, trials: int) -> float:
    return round(1e3 * seconds / max(1, trials), 2)


def _stage_cpu(spans: Spans, period: Period, trials: int) -> Row:
    """Milliseconds of processor time a trial, by stage."""
    rows = {name: _ms(row["cpu_s"], trials) for name, row in stage_rows(spans, period).items()}
    return dict(sorted(rows.items(), key=lambda item: -item[1]))


class _Profiler:
    """cProfile of every thread that starts meanwhile, by processor time."""

    def __init__(self) -> None:
        self._profiles: list[cProfile.Profile] = []

    def begin(self) -> None:
        threading.setprofile(lambda *_: self._start())
        self._start()

    def _start(self) -> None:
        sys.setprofile(None)
        profile = cProfile.Profile(time.thread_time)
        self._profiles.append(profile)
        profile.enable()

    def end(self) -> None:
        threading.setprofile(None)  # type: ignore[arg-type]
        self._profiles[0].disable()

    def rows(self, trials: int) -> Row:
        """By function: its own milliseconds a trial, with those below it, and calls a trial."""
        stats: pstats.Stats | None = None
        for profile in self._profiles:
            try:
                profile.create_stats()
                if stats is None:
                    stats = pstats.Stats(profile)
                else:
                    stats.add(profile)
            except (TypeError, ValueError):
                continue
        assert stats is not None
        rows: dict[str, list[float]] = {}
        for (file, line, name), (_, calls, own, whole, _) in stats.stats.items():  # type: ignore[attr-defined]
            place = f"{file.replace(str(ROOT) + '/', '')}:{line} {name}"
            rows[place] = [_ms(own, trials), _ms(whole, trials), round(calls / trials, 1)]
        ordered = sorted(rows.items(), key=lambda item: -item[1][0])[:LISTED_FUNCTIONS]
        return dict(ordered)


if __name__ == "__main__":
    main()
