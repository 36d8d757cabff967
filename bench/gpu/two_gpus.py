"""The same search on one GPU and on several GPUs of a machine: rates, idle shares, a killed child.

    python -m bench.gpu.two_gpus OUT.json [--seconds 120] [--gpus 0,1] [--also all]
                                 [--strategy evolution]
                                 [--workload mission] [--long-workload VALUES] [--no-killed]
                                 [--switch-ms 5] [--evaluators N] [--window N]
                                 [--at-once N] [--singly] [--threads]

Each search has the same plan, seed and window, and compiles into a folder of its own. The search on
several GPUs runs before the one on a single GPU, so caches of the operating system favour the
latter. `--also` adds a search on other GPUs of the machine. In one more search SIGKILL ends the
measuring child of the last GPU half-way. The result's `long` holds searches of a workload that
keeps a GPU busy for so long that it is the limit and not the processors (`--long-workload ""`:
none). Preparing the emulator and the children takes up to a minute more than --seconds. The file
is written after each workload.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.command_line import require_gpu, script_parser
from bench.environment import target_environment
from bench.gpu.recorder import Recorder, opened_recorder, verdict_and_reason
from bench.results import Row, write_json
from bench.speed.thread_sampler import ThreadSampler
from greenfast.search.cores import usable_cores
from greenfast.search.gates.judges import judges_in_use
from greenfast.search.gates.safety import like
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.loop.plan import SearchPlan, SearchRequest, make_plan
from greenfast.search.loop.run import SearchRun
from greenfast.search.loop.sink import History
from greenfast.search.strategies.base import MODELLED_TIMES
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.targets.base import Runner, Target
from greenfast.search.targets.cuda import conversation, lanes
from greenfast.search.targets.cuda.several import SeveralGpus
from greenfast.search.targets.cuda.spans import UNASKED
from greenfast.search.targets.cuda.target import CudaTarget
from greenfast.search.toolchain import Toolchain
from greenfast.search.verdict import Stage, Trial, performance_of

SEED = 5
LONG_WORKLOAD = "B=1,H=1,S_q=16384,D=64,dtype=fp16"
SHARES = {"warm_up": 1.6, "several": 4.5, "one": 4.5, "killed": 2.5}  # of --seconds, in parts
MOST_TRIALS = 5000


@dataclass(frozen=True)
class Setting:
    """What all searches have in common."""

    catalogue: Catalogue
    request: dict[str, Any]  # fields of SearchRequest
    checker: Runner | None
    window: int
    evaluators: int | None = None  # processes that evaluate (default: as a search does)
    singly: bool = False  # each trial is begun and recorded in a transaction of its own
    samples_threads: bool = False


@dataclass(frozen=True)
class Searched:
    """One search: its row of the result, its trials, and the machine's versions."""

    row: Row
    trials: list[Trial]
    environment: Row


def main() -> None:
    options = _options()
    require_gpu()
    sys.setswitchinterval(options.switch_ms / 1e3)
    conversation.AT_ONCE, lanes.ROOM = options.at_once, options.at_once + 1
    catalogue = Catalogue([REPOSITORY_TEMPLATES])
    request = {
        "kernel": "attention",
        "workloads": (options.workload,),
        "target": f"cuda:{_first(options.gpus)}",
    }
    request |= {"strategy": options.strategy, "seed": SEED, "confirm": False}
    with tempfile.TemporaryDirectory(prefix="greenfast-two-gpus-") as folder:
        setting = replace(
            with_checker(catalogue, request, options.window, Path(folder)),
            evaluators=options.evaluators,
            singly=options.singly,
            samples_threads=options.threads,
        )
        part_s = options.seconds / _parts(options)
        try:
            result = measured(setting, options.gpus, options.also, part_s, killed=options.killed)
            write_json(options.out, result)
            if options.long_workload:
                long = replace(
                    setting, request={**setting.request, "workloads": (options.long_workload,)}
                )
                result["long"] = measured(long, options.gpus, options.also, part_s, killed=False)
                del result["long"]["environment"]
        finally:
            if setting.checker is not None:
                setting.checker.close()
    write_json(options.out, result)
    print(
        json.dumps(
            {name: value for name, value in result.items() if name != "environment"}, indent=1
        )
    )


def _options() -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--seconds", type=float, default=120.0, help="of all searches together")
    parser.add_argument("--gpus", default="0,1", help="numbers, or `all`")
    parser.add_argument("--also", metavar="GPUS", help="of one more search on each workload")
    parser.add_argument("--strategy", default="evolution")
    parser.add_argument("--workload", default="mission")
    parser.add_argument("--long-workload", default=LONG_WORKLOAD, metavar="VALUES")
    parser.add_argument(
        "--no-killed", dest="killed", action="store_false", help="leave the third search out"
    )
    parser.add_argument(
        "--at-once", type=int, default=conversation.AT_ONCE, help="requests that a GPU's child has"
    )
    parser.add_argument(
        "--window", type=int, default=2 * usable_cores(), help="candidates evaluated at a time"
    )
    parser.add_argument(
        "--singly", action="store_true", help="a transaction for each trial that begins or ends"
    )
    parser.add_argument(
        "--threads", action="store_true", help="sample what the search's threads do"
    )
    parser.add_argument("--evaluators", type=int, help="processes (default: as a search does)")
    parser.add_argument(
        "--switch-ms", type=float, default=1e3 * sys.getswitchinterval(), help="of Python's threads"
    )
    return parser.parse_args()


def _parts(options: argparse.Namespace) -> float:
    """Parts of --seconds that all searches take together."""
    whole = sum(SHARES.values()) + (SHARES["several"] if options.also else 0.0)
    return (
        whole
        - (0.0 if options.killed else SHARES["killed"])
        + (whole - SHARES["killed"] if options.long_workload else 0.0)
    )


def _first(gpus: str) -> str:
    return "0" if gpus == "all" else gpus.split(",")[0]


def with_checker(
    catalogue: Catalogue, request: dict[str, Any], window: int, folder: Path
) -> Setting:
    """With the emulator built, so that no search pays for it."""
    cores = usable_cores()
    settings = TargetSettings(folder / "emulator", catalogue.include_dirs, max(1, cores // 8))
    facts = open_target(request["target"], settings).device
    checker = open_target(f"emulator:{like(facts).name}", settings)
    _progress("building the emulator")
    checker.prepare()
    assert isinstance(checker, Runner)
    return Setting(catalogue, request, checker, window)


def measured(
    setting: Setting, gpus: str, also: str | None, part_s: float, *, killed: bool = True
) -> Row:
    """The result of all searches of a workload; `part_s`: of a part of SHARES."""
    one, several = f"cuda:{_first(gpus)}", f"cuda:{gpus}"
    share = {name: parts * part_s for name, parts in SHARES.items()}
    for name in (one, f"cuda:{also or gpus}"):  # their judges and evaluators stay
        searched(setting, name, share["warm_up"] / 2)
    with_several = searched(setting, several, share["several"])
    alone = searched(setting, one, share["one"])
    searches = {"several": with_several, "one": alone}
    if also:
        searches["also"] = searched(setting, f"cuda:{also}", share["several"])
    if killed:
        searches["killed"] = searched(setting, several, share["killed"], kills=True)

    def gain(search: Searched) -> float | None:
        alone_rate = alone.row["trials_per_minute"]
        return round(search.row["trials_per_minute"] / alone_rate, 3) if alone_rate else None

    return {
        "environment": {**with_several.environment, "cores": usable_cores()},
        "plan": {**setting.request, "window": setting.window},
        "switch_ms": round(1e3 * sys.getswitchinterval(), 3),
        "at_once": conversation.AT_ONCE,
        "singly": setting.singly,
        "gain": gain(with_several),
        "gains": {
            search.row["target"]: gain(search)
            for name, search in searches.items()
            if name != "killed"
        },
        "ratios": ratios_compared(with_several.trials, alone.trials),
        "rows": [{"search": name, **search.row} for name, search in searches.items()],
    }


def searched(setting: Setting, name: str, seconds: float, *, kills: bool = False) -> Searched:
    """Search for that long on the target of that name; `kills`: end one child half-way."""
    _progress(f"{name} for {seconds:.0f} s" + (", with a child killed" if kills else ""))
    with tempfile.TemporaryDirectory(prefix="greenfast-two-gpus-") as cache:
        folder = Path(cache)
        toolchain = Toolchain(folder, usable_cores())
        settings = TargetSettings(folder, setting.catalogue.include_dirs, 1)
        target = open_target(name, settings)
        try:
            target.prepare()
            plan = make_plan(
                SearchRequest(**setting.request, seconds=seconds, trials=MOST_TRIALS),
                setting.catalogue,
                window=setting.window,
            )
            context = search_context(setting, plan, target, toolchain)
            with opened_recorder(folder, plan, singly=setting.singly) as recorder:
                sampler = ThreadSampler() if setting.samples_threads else None
                if sampler is not None:
                    sampler.start()
                row, trials = run_row(
                    plan, context, recorder, kills=kills, evaluators=setting.evaluators
                )
                if sampler is not None:
                    row["threads"] = sampler.result()
            return Searched(row, trials, target_environment(toolchain, target))
        finally:
            target.close()
            toolchain.close()


def search_context(
    setting: Setting, plan: SearchPlan, target: Target, toolchain: Toolchain
) -> EvaluationContext:
    kernel = setting.catalogue.kernel(plan.kernel)
    workloads = tuple(kernel.workload(name) for name in plan.workloads)
    return EvaluationContext(
        kernel,
        workloads[0].compile_time(kernel),
        workloads,
        target,
        toolchain,
        setting.catalogue.include_dirs,
        plan.limits,
        plan.seed,
        checker=setting.checker,
        modeller=setting.checker if plan.modelled else None,
        sizes_secret=plan.seed,
    )


def run_row(
    plan: SearchPlan,
    context: EvaluationContext,
    recorder: Recorder,
    *,
    kills: bool = False,
    evaluators: int | None = None,
) -> tuple[Row, list[Trial]]:
    """The search's row of the result, and its trials."""
    gpus = gpus_of(context.target)
    assert plan.seconds is not None, "searches of this script have a budget of seconds"
    killed: list[int] = []
    killer = threading.Timer(plan.seconds / 2, lambda: killed.extend(_kill(gpus[-1])))
    run = SearchRun(plan, context, recorder, History(), on_remark=_progress, evaluators=evaluators)
    machine_before = _processor_ticks()
    started, cpu, own = time.perf_counter(), time.thread_time(), time.process_time()
    if kills:
        killer.start()
    ended = run.run()
    killer.cancel()
    search_s, loop_s = time.perf_counter() - started, time.thread_time() - cpu
    own_s = time.process_time() - own  # Python's lock makes it a bound of the rate
    busy, all_of = (
        now - then for now, then in zip(_processor_ticks(), machine_before, strict=True)
    )
    trials = recorder.trials
    return {
        "target": context.target.name,
        "ended": ended.ended,
        "why": ended.why,
        "remarks": ended.closing,
        "search_s": round(search_s, 2),
        "trials": len(trials),
        "modelled": sum(len(trial.sampler.get(MODELLED_TIMES, ())) for trial in trials),
        "trials_per_minute": round(60 * len(trials) / search_s, 1),
        "loop_cpu_share": round(loop_s / search_s, 3),
        "own_cpu_ms": round(1e3 * own_s / max(1, len(trials)), 2),
        "processors_busy_share": round(busy / max(1, all_of), 3),
        "recorded_in": recorder.place,
        "writes": recorder.writes,
        "writing_s": {name: round(each, 2) for name, each in recorder.writing_s.items()},
        "stages_ms": _stages_ms(trials),
        "evaluators": run.evaluator_count,
        "workers": worker_count(),
        "gpus": {gpu.name: _gpu_row(gpu, trials, search_s) for gpu in gpus},
        "verdicts": dict(Counter(map(verdict_and_reason, trials))),
        "templates": _templates(trials),
        "faults": sum(hasattr(trial.verdict, "code") for trial in trials),
        "each_number_once": [trial.number for trial in trials] == list(range(len(trials))),
        "children_killed": len(killed),
    }, trials


def _stages_ms(trials: Sequence[Trial]) -> Row:
    """Mean milliseconds of a trial in each stage, with the time that it waits there."""
    seconds: Counter[str] = Counter()
    for trial in trials:
        seconds.update(dict(trial.stage_seconds))
    return {stage: round(1e3 * each / len(trials), 1) for stage, each in seconds.items()}


def _templates(trials: Sequence[Trial]) -> Row:
    """The trials of each template, and the mean milliseconds that their compilation took.

    They include the wait for a core.
    """
    by_template: dict[str, list[float]] = {}
    for trial in trials:
        seconds = dict(trial.stage_seconds).get(Stage.COMPILE, 0.0)
        by_template.setdefault(trial.candidate.template, []).append(1e3 * seconds)
    return {
        name: {"trials": len(each), "compile_ms": round(statistics.mean(each), 1)}
        for name, each in sorted(by_template.items())
    }


def _processor_ticks() -> tuple[int, int]:
    """Of all processors of the machine so far: at work, and in all (proc(5), /proc/stat)."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def worker_count() -> int:
    """Processes that judged outputs for this one so far, and run."""
    judges = judges_in_use()
    return len(judges.pool.all) if judges is not None else 0


def gpus_of(target: Target) -> tuple[CudaTarget, ...]:
    if isinstance(target, SeveralGpus):
        return target.targets
    assert isinstance(target, CudaTarget)
    return (target,)


def _kill(gpu: CudaTarget) -> list[int]:
    """End the child of the GPU; the processes that were ended."""
    pid = gpu.child_pid
    if pid is None:
        return []
    _progress(f"SIGKILL to the child of {gpu.name}, process {pid}")
    os.kill(pid, signal.SIGKILL)
    return [pid]


def _gpu_row(gpu: CudaTarget, trials: Sequence[Trial], search_s: float) -> Row:
    """Idle: it had no request, as the search's process saw it. Unasked: as its child saw it."""
    busy_s = sum(seconds for name, seconds in gpu.spans.items() if ":" not in name)
    timings = [
        timing
        for trial in trials
        if (evidence := performance_of(trial.verdict)) is not None
        for timing in evidence.timings[:1]
    ]
    return {
        "trials_timed": sum(timing.device_index == gpu.number for timing in timings),
        "busy_s": round(busy_s, 2),
        "idle_share": round(1 - busy_s / search_s, 3),
        "unasked_share": round(unasked_s(gpu) / search_s, 3),
        "spans_s": {name: round(seconds, 2) for name, seconds in sorted(gpu.spans.items())},
    }


def unasked_s(gpu: CudaTarget) -> float:
    """Seconds between a reply of the GPU's child and its next request, as the child saw it."""
    return sum(seconds for name, seconds in gpu.spans.items() if name.endswith(f": {UNASKED}"))


def ratios_compared(several: Sequence[Trial], alone: Sequence[Trial]) -> Row:
    """How far a candidate's ratio to the baseline differs between two searches, by GPU."""
    known = {trial.candidate.digest: ratio for trial in alone if (ratio := _ratio(trial))}
    differences: dict[str, list[float]] = {}
    for trial in several:
        own, other = _ratio(trial), known.get(trial.candidate.digest)
        if own is not None and other is not None:
            log = abs(math.log(own[1] / other[1]))
            differences.setdefault(f"gpu {own[0]} against gpu {other[0]}", []).append(log)
    return {
        name: {
            "candidates": len(logs),
            "median_percent": round(100 * statistics.median(logs), 3),
            "largest_percent": round(100 * max(logs), 3),
        }
        for name, logs in sorted(differences.items())
    }


def _ratio(trial: Trial) -> tuple[int | None, float] | None:
    """The GPU that timed the trial, and the ratio; None for the baseline and untimed trials."""
    evidence = performance_of(trial.verdict)
    if evidence is None or evidence.ratio_to_baseline is None:
        return None
    return evidence.timings[0].device_index, evidence.ratio_to_baseline


def _progress(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
