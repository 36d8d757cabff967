"""Searches for the results table of docs/attention.md, on a GPU, as many as the time allows; the next run goes on.

    python bench/attention_searches.py FOLDER [--minutes 8] [--trials 300] [--only WORKLOAD ...] [--again]

Each workload is searched over both tensor-core templates, L2 hot, by the product's own loop: gates, safety of contenders,
confirmation in fresh processes, peers in turns. FOLDER/attention_searches/WORKLOAD.json holds a finished one, with its
trials; FOLDER/journal/ what was cut short, which goes on where it was if nothing changed. A workload is done when its
file is there (in FOLDER or in bench/results/h200) and was made with the kernel's files as they are; those that were
never searched go first. FOLDER/attention_winners.json lists the winners with the command that runs each again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.attention_floors import floors, profiled
from bench.attention_journal import JournalSink
from search.candidate import Candidate, Origin, OriginKind, complete_parameters
from search.catalogue import REPOSITORY_TEMPLATES, Catalogue
from search.comparison import Confirmation, Peer
from search.digest import digest
from search.evaluate import Bench
from search.gates import GateLimits
from search.gates.safety import like
from search.peers import compare_peers
from search.plan import SearchPlan, SearchRequest, make_plan
from search.run import Ended, SearchRun
from search.targets import TargetSettings, open_target
from search.targets.cuda.timing import median
from search.toolchain import Toolchain
from search.verdict import Trial, performance_of, verdict_name

PUBLISHED = ROOT / "bench" / "results" / "h200"
# In the order in which they are wanted; each as it is in kernel.toml, in bfloat16.
SHAPES = ("mission", "mission_512", "small", "long", "d128_4096")
WORKLOADS = tuple(f"{shape}{mask}_bf16" for mask in ("", "_causal") for shape in SHAPES)
TEMPLATES = ("wmma", "mma")
TRIALS, MODE, SEED = 300, "hot", 5
CLOSING_S, LEAST_S = 25.0, 45.0      # what follows the trials; less than the second is not worth a start
Row = dict[str, Any]


def main() -> None:
    chosen = _arguments()
    end = time.monotonic() + 60.0 * chosen.minutes
    catalogue, folder = Catalogue([REPOSITORY_TEMPLATES]), Path(tempfile.mkdtemp(prefix="greenfast-searches-"))
    kernel, cores = catalogue.kernel("attention"), os.cpu_count() or 1
    toolchain = Toolchain(folder, cores)
    target = open_target("cuda:0", TargetSettings(folder, catalogue.include_dirs, 1))
    checker = open_target(f"emulator:{like(target.device).name}",
                          TargetSettings(folder, catalogue.include_dirs, max(1, cores // 8)))
    (chosen.out / "attention_searches").mkdir(parents=True, exist_ok=True)
    remember_spaces(target)
    try:
        for one in (target, checker):
            one.prepare()
        for row in unprofiled([*finished(PUBLISHED), *finished(chosen.out)], digest(kernel)):
            row["profile"] = profiled_again(row, catalogue, toolchain, target)
            save(row, row.pop("environment"), chosen.out)
            print(f"{row['workload']}: profiled again: {row['profile']}", flush=True)
        for name in wanted(chosen, digest(kernel)):
            if end - time.monotonic() < LEAST_S:
                print(f"{name}: no time left", flush=True)
                break
            began = time.monotonic()
            row = searched(name, catalogue, toolchain, target, checker, chosen, end - CLOSING_S)
            if row is not None:
                save(row, _environment(toolchain, target, cores), chosen.out)
            print(f"{name}: {said(row)} ({time.monotonic() - began:.0f} s)", flush=True)
    finally:
        for one in (target, checker, toolchain):
            one.close()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=WORKLOADS)
    parser.add_argument("--again", action="store_true", help="also what is done")
    return parser.parse_args()


def remember_spaces(target) -> None:
    """Walk each space once: workloads of the same compile-time values share it. An instance attribute shadows the method."""
    walked, space = {}, target.space

    def remembered(template, compiled):
        key = template.name, compiled
        if key not in walked:
            walked[key] = space(template, compiled)
        return walked[key]
    target.space = remembered


def wanted(chosen: argparse.Namespace, kernel_digest: str) -> list[str]:
    """Workloads that are not done: those never searched first, then those of other files than today's."""
    of = {row["workload"]: row["run"]["kernel_digest"] for row in (*finished(PUBLISHED), *finished(chosen.out))
          if row["run"].get("closed", True)}           # else its trials are there, but not what follows them
    left = [name for name in chosen.only if chosen.again or of.get(name) != kernel_digest]
    return sorted(left, key=lambda name: (name in of, WORKLOADS.index(name)))


def searched(name: str, catalogue: Catalogue, toolchain: Toolchain, target, checker, chosen: argparse.Namespace,
             stop_at: float) -> Row | None:
    """The row of one workload; None when the time ran out before its trials did."""
    kernel = catalogue.kernel("attention")
    workload = kernel.workload(name)
    templates = tuple(one for one in TEMPLATES if serves(kernel.template(one), workload))
    request = SearchRequest("attention", workloads=(name,), templates=templates, target="cuda:0", strategy="tpe",
                            trials=chosen.trials, seed=SEED, mode=MODE)
    plan = make_plan(request, catalogue, window=2 * (os.cpu_count() or 1))
    bench = Bench(kernel, plan.compiled, (workload,), target, toolchain, catalogue.include_dirs, plan.limits, plan.seed,
                  checker=checker, compare_peers=compare_peers)
    sink = JournalSink(chosen.out / "journal" / f"{name}.jsonl", plan, lambda: time.monotonic() > stop_at)
    run, began = SearchRun(plan, bench, sink, sink.history()), time.monotonic()
    before = len(sink.trials)
    result = run.run()
    if result.ended is not Ended.COMPLETED:
        print(f"{name}: {result.ended}, {len(sink.trials)} of {plan.trials} trials: {result.why}", flush=True)
        return None
    spent = sink.last_at - began
    row = row_of(plan, workload, sink.trials, sink.confirmations, sink.peers)
    row["run"] |= {"why": result.why, "trials_per_minute": round((len(sink.trials) - before) / spent * 60, 1),
                   "seconds": round(spent, 1), "closing_seconds": round(time.monotonic() - sink.last_at, 1)}
    winner = next(one for one in sink.trials if one.number == row["winner"]["trial"])
    row["floor"] = floors(kernel, winner.candidate, workload)
    row["profile"] = profiled(bench, winner.candidate, workload)
    sink.remove()
    return row


def unprofiled(rows: list[Row], kernel_digest: str) -> list[Row]:
    """The latest row of each workload, where it is of today's files and has no counters."""
    latest = {row["workload"]: row for row in rows}
    return [row for row in latest.values() if row["run"]["kernel_digest"] == kernel_digest and "error" in row["profile"]]


def profiled_again(row: Row, catalogue: Catalogue, toolchain: Toolchain, target) -> Any:
    kernel = catalogue.kernel("attention")
    workload, template = kernel.workload(row["workload"]), kernel.template(row["winner"]["template"])
    compiled = workload.compile_time(kernel)
    candidate = Candidate(kernel.name, template.name,
                          complete_parameters(template, row["winner"]["parameters"], compiled), Origin(OriginKind.SEEDED))
    return profiled(Bench(kernel, compiled, (workload,), target, toolchain, catalogue.include_dirs, GateLimits(), SEED),
                    candidate, workload)


def serves(template, workload) -> bool:
    have = {**dict(workload.dims), **dict(workload.options)}
    return all(have[name] in values for name, values in template.supports)


def row_of(plan: SearchPlan, workload, trials: list[Trial], confirmations: list[Confirmation], peers: list[Peer]) -> Row:
    """What the results table says of one search, and what it rests on."""
    last = confirmations[-1] if confirmations else None
    winner = next(one for one in trials if one.number == last.trial) if last else _fastest(trials)
    timed = [one for one in peers if one.outcome == "timed"]
    best = min(timed, key=lambda one: one.time_median_us, default=None)
    against = next((one for one in last.comparisons if one.against == "baseline"), None) if last else None
    options = dict(workload.options)
    return {
        "workload": workload.name, "dims": dict(workload.dims), "dtype": options["dtype"], "mask": options["mask"],
        "l2": plan.mode, "time_median_us": _time_us(winner, against),
        "peers": [_peer(one) for one in peers], "best_peer": best.name if best else None,
        "ratio_to_best_peer": best.comparison.ratio if best else None,
        "interval": [best.comparison.ratio_low, best.comparison.ratio_high] if best else None,
        "confirmed": bool(last and last.confirmed),
        "ratio_to_baseline": against.ratio if against else None,
        "ratio_to_baseline_interval": [against.ratio_low, against.ratio_high] if against else None,
        "baseline": plan.baseline,
        "winner": {"trial": winner.number, "template": winner.candidate.template,
                   "preset": winner.candidate.origin.preset, "parameters": winner.candidate.values(),
                   "source_digest": winner.source_digest, "verdict": verdict_name(winner.verdict)},
        "verdicts": dict(Counter(_said_of(one) for one in trials)),
        "run": {"date": time.strftime("%Y-%m-%d", time.gmtime()), "strategy": plan.strategy, "seed": plan.seed,
                "trials": len(trials), "templates": list(plan.templates), "kernel_digest": plan.kernel_digest},
        "confirmations": [_finite(asdict(one)) for one in confirmations],
        "trials": [_trial(one) for one in trials]}


def _fastest(trials: list[Trial]) -> Trial:
    """Of a search whose closing had no time: the best that passed every gate, else the baseline."""
    accepted = [one for one in trials if verdict_name(one.verdict) == "accepted"]
    return min(accepted, key=lambda one: performance_of(one.verdict).ratio_to_baseline, default=trials[0])


def _time_us(winner: Trial, against) -> float | None:
    """Of the fresh processes that confirmed it, else of the search."""
    if against is not None:
        return median([one.timings[0].time_median_us for one in against.processes])
    evidence = performance_of(winner.verdict)
    return evidence.timings[0].time_median_us if evidence and evidence.timings else None


def _peer(one: Peer) -> Row:
    found = {"name": one.name, "version": one.version, "outcome": one.outcome, "sentence": one.sentence,
             "time_median_us": one.time_median_us}
    if one.comparison is not None:
        found |= {"ratio": one.comparison.ratio, "interval": [one.comparison.ratio_low, one.comparison.ratio_high],
                  "decision": one.comparison.decision,
                  "samples": [{"seed": process.seed, "ours": process.timings[0].samples,
                               "theirs": process.timings[0].baseline_samples} for process in one.comparison.processes]}
    return _finite(found)


def _said_of(trial: Trial) -> str:
    return f"{verdict_name(trial.verdict)} {getattr(trial.verdict, 'reason', None) or ''}".strip()


def _trial(one: Trial) -> Row:
    evidence = performance_of(one.verdict)
    return _finite({"number": one.number, "template": one.candidate.template, "parameters": one.candidate.values(),
                    "said": _said_of(one), "source": one.source_digest and one.source_digest[:12],
                    "us": evidence.timings[0].time_median_us if evidence and evidence.timings else None,
                    "ratio": evidence.ratio_to_baseline if evidence else None})


def _finite(value: Any) -> Any:
    """Without infinities, for which JSON has no word, and with six digits, which is more than is known."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if abs(value) < float("inf") else None
    return value


def winners(rows: list[Row]) -> list[Row]:
    """One a workload, the latest, with the command that takes it through all gates again."""
    found = {row["workload"]: {"workload": row["workload"], **row["winner"], "time_median_us": row["time_median_us"],
                               "confirmed": row["confirmed"], "command": command(row)} for row in rows}
    return [found[name] for name in WORKLOADS if name in found]


def command(row: Row) -> str:
    settings = [word for name, value in row["winner"]["parameters"].items() for word in ("--set", f"{name}={value}")]
    return shlex.join(["greenfast", "trial", "attention", "--target", "cuda:0", "--workload", row["workload"],
                       "--template", row["winner"]["template"], *settings])


def said(row: Row | None) -> str:
    if row is None:
        return "goes on in the next run"
    ratio = row["ratio_to_best_peer"]
    beside = f"{ratio:.3f} {row['interval']} of {row['best_peer']}" if ratio else "no peer"
    return (f"{row['time_median_us']:.2f} us, {beside}, {'confirmed' if row['confirmed'] else 'NOT confirmed'}, "
            f"{row['winner']['template']} {row['winner']['parameters']}, {row['verdicts']}, "
            f"{row['run']['trials_per_minute']} trials/min, floor {row['floor']}")


def save(row: Row, environment: Row, out: Path) -> None:
    """The row of one workload, and the list of all winners."""
    _write(out / "attention_searches" / f"{row['workload']}.json", {"environment": environment, "rows": [row]})
    _write(out / "attention_winners.json", {"environment": environment, "rows": winners([*finished(PUBLISHED), *finished(out)])})


def finished(folder: Path) -> list[Row]:
    """Each finished search of a folder, with the environment that it ran in."""
    found = [json.loads(path.read_text()) for path in sorted((folder / "attention_searches").glob("*.json"))]
    return [{**one["rows"][0], "environment": one["environment"]} for one in found]


def _write(path: Path, value: Any) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(value, allow_nan=False) + "\n")
    beside.replace(path)


def _environment(toolchain: Toolchain, target, cores: int) -> Row:
    return {"date": time.strftime("%Y-%m-%d", time.gmtime()), "cores": cores, "python": platform.python_version(),
            **dict(toolchain.identity), **dict(target.identity())}


if __name__ == "__main__":
    main()
