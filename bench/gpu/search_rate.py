"""The rate of a process's first search, and where its time goes.

    python -m bench.gpu.search_rate OUT.json [--seconds 60] [--trials 300] [--target cuda:0]
                                    [--strategy evolution] [--window N] [--workload mission]
                                    [--switch-ms 5] [--then-switch-ms 1] [--total-seconds 110]
                                    [--evaluators N]

All gates run, safety on the emulator; the caches are empty. The emulator is built before the clock
starts. Prints trials a minute, the idle share of each GPU, and by stage what threads did, also
while a GPU was idle. With --then-switch-ms a second search follows from empty caches, with that
switch interval of Python's threads, as far as --total-seconds of the whole command are left.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from bench.command_line import require_gpu, script_parser
from bench.environment import target_environment
from bench.gpu.recorder import opened_recorder
from bench.gpu.stage_spans import (
    Period,
    Spans,
    idle_periods,
    phase_rows,
    stage_rows,
    waited_for,
    watched,
)
from bench.gpu.two_gpus import Setting, gpus_of, run_row, search_context, with_checker
from bench.results import Row, write_json
from greenfast.search.cores import usable_cores
from greenfast.search.cpu_time import process_s
from greenfast.search.gates.judges import judges_in_use
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.toolchain import Toolchain

SEED = 5
PARTS = 6  # of a search, in the result
END_S = 8.0  # for trials in flight when the seconds are over, and for closing
SHORTEST_S = 10.0  # of a second search


def main() -> None:
    began_s = time.monotonic()
    options = _options()
    require_gpu()
    sys.setswitchinterval(options.switch_ms / 1e3)
    catalogue = Catalogue([REPOSITORY_TEMPLATES])
    request = {
        "kernel": "attention",
        "workloads": (options.workload,),
        "target": options.target,
        "strategy": options.strategy,
        "modelled": options.modelled,
        "seed": SEED,
        "confirm": False,
        "seconds": options.seconds,
        "trials": options.trials,
    }
    with tempfile.TemporaryDirectory(prefix="greenfast-rate-") as folder:
        setting = with_checker(catalogue, request, options.window, Path(folder))
        try:
            result = measured(setting, options.evaluators)
            left_s = options.total_seconds - (time.monotonic() - began_s) - END_S
            if options.then_switch_ms is not None and left_s >= SHORTEST_S:
                sys.setswitchinterval(options.then_switch_ms / 1e3)
                again = {**request, "seconds": min(left_s, options.seconds)}
                result["again"] = measured(replace(setting, request=again), options.evaluators)
        finally:
            if setting.checker is not None:
                setting.checker.close()
    write_json(options.out, result)
    print(json.dumps({name: result[name] for name in result if name != "environment"}, indent=1))


def _options() -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--target", default="cuda:0")
    parser.add_argument("--strategy", default="evolution")
    parser.add_argument("--modelled", type=int, help="points of each template [the default]")
    parser.add_argument("--window", type=int, default=2 * usable_cores())
    parser.add_argument("--workload", default="mission")
    parser.add_argument("--evaluators", type=int, help="processes [as many as a search starts]")
    parser.add_argument(
        "--switch-ms", type=float, default=1e3 * sys.getswitchinterval(), help="of Python's threads"
    )
    parser.add_argument("--then-switch-ms", type=float, help="of a second search")
    parser.add_argument("--total-seconds", type=float, default=110.0)
    return parser.parse_args()


def measured(setting: Setting, evaluators: int | None = None) -> Row:
    """One search from empty caches."""
    with tempfile.TemporaryDirectory(prefix="greenfast-rate-") as cache:
        folder = Path(cache)
        toolchain = Toolchain(folder, usable_cores())
        target = open_target(
            setting.request["target"], TargetSettings(folder, setting.catalogue.include_dirs, 1)
        )
        try:
            target.prepare()
            plan = make_plan(
                SearchRequest(**setting.request), setting.catalogue, window=setting.window
            )
            context = search_context(setting, plan, target, toolchain)
            begin_s, cpu_s, children_s = time.perf_counter(), _own_cpu_s(), _children_cpu_s()
            workers_s = _workers_cpu_s()
            with opened_recorder(folder, plan) as recorder, watched() as spans:
                row, _ = run_row(plan, context, recorder, evaluators=evaluators)
            period = Period(begin_s, recorder.at_s[-1])
            row |= {
                "workers_cpu_s": round(_workers_cpu_s() - workers_s, 2),
                "own_cpu_s": round(_own_cpu_s() - cpu_s, 2),
                "load_average": os.getloadavg()[0],
            }
            environment = target_environment(toolchain, target)
        finally:
            target.close()
            toolchain.close()
    row["ended_children_cpu_s"] = round(_children_cpu_s() - children_s, 2)
    names = [gpu.name for gpu in gpus_of(target)]
    return {
        "environment": {**environment, "cores": usable_cores()},
        "plan": {**setting.request, "window": setting.window},
        "switch_ms": round(1e3 * sys.getswitchinterval(), 3),
        **row,
        **_spent(spans, names, period),
    }


def _spent(spans: Spans, gpus: list[str], period: Period) -> Row:
    return {
        "stages": stage_rows(spans, period),
        "threads_while_idle": {
            name: waited_for(spans, idle_periods(spans, name, period)) for name in gpus
        },
        "phases": phase_rows(spans, gpus, period, PARTS),
    }


def _own_cpu_s() -> float:
    return time.process_time()


def _workers_cpu_s() -> float:
    """Of the processes that judge outputs."""
    judges = judges_in_use()
    workers = judges.pool.all if judges is not None else ()
    return sum(process_s(worker.process.pid) for worker in workers)


def _children_cpu_s() -> float:
    """Of the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
