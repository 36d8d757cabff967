"""Searches for the results table of docs/attention.md, on a GPU, as many as the time allows; the next run goes on.

    python -m bench.gpu.attention_searches FOLDER [--minutes 8] [--trials 300] [--only WORKLOAD ...] [--again] [--threads]

Each workload is searched over both tensor-core templates, L2 hot, as `greenfast search` does it: gates, safety of
contenders, confirmation in fresh processes, peers in turns; a confirmed winner is promoted to champion. FOLDER/data is the
database and cache: what was cut short is paused there and resumed by the next run. FOLDER/attention_searches/WORKLOAD.json
holds a finished search with its trials, FOLDER/champions.json the champions, FOLDER/attention_winners.json the command that
runs each winner again. A workload is done when its file is there (in FOLDER or in bench/results/h200), with a champion, and was
made with the kernel's files as they are; those that were never searched go first. --threads notes what the threads do.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

from bench.gpu.attention_floors import floors, profiled
from bench.speed.thread_sampler import Sampler
from greenfast.app.service.worker import Left, Stop, run_claim, worker_name
from greenfast.app.settings import Settings
from greenfast.app.views.confirmations import champion_out
from greenfast.app.wiring import Services
from greenfast.db.rows import TrialRow
from greenfast.db.store import Store
from greenfast.search.cores import usable_cores
from greenfast.search.digest import digest
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.identity import kernel_identity
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.loop.comparison import Confirmation, Peer
from greenfast.search.loop.plan import SearchPlan, SearchRequest
from greenfast.search.loop.run import Ended
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, complete_parameters
from greenfast.search.timing import median

PUBLISHED = ROOT / "bench" / "results" / "h200"
# In the order in which they are wanted; each as it is in kernel.toml, in bfloat16.
SHAPES = ("mission", "mission_512", "small", "long", "d128_4096")
WORKLOADS = tuple(f"{shape}{mask}_bf16" for mask in ("", "_causal") for shape in SHAPES)
KERNEL, TEMPLATES = "attention", ("wmma", "mma")
TRIALS, MODE, SEED = 300, "hot", 5
# The default one is five times slower than the best where sequences are long: most of a trial would be its time.
LONG_BASELINE, LONG_WORK_FLOP = "mma:fa2", 1e11
LEAST_S = 45.0  # less is not worth a start
SAID_EVERY = 50  # trials
LIVE = ("queued", "running", "paused")
Row = dict[str, Any]


def main() -> None:
    chosen = _arguments()
    end = time.monotonic() + 60.0 * chosen.minutes
    services = Services(Settings.from_environment({"GREENFAST_DATA": str(chosen.out / "data")}))
    stop = Stop(services.settings.drain_s, services.interrupt)
    alarm = threading.Timer(60.0 * chosen.minutes, stop.ask)
    alarm.daemon = True
    alarm.start()
    (chosen.out / "attention_searches").mkdir(parents=True, exist_ok=True)
    try:
        for name in wanted(chosen, *digests_of(services.catalogue.kernel(KERNEL))):
            if end - time.monotonic() < LEAST_S:
                print(f"{name}: no time left", flush=True)
                break
            began = time.monotonic()
            row = searched(name, services, chosen, stop)
            if row is not None:
                save(row, _environment(services), chosen.out)
                save_champions(services.store, _environment(services), chosen.out)
            print(f"{name}: {said(row)} ({time.monotonic() - began:.0f} s)", flush=True)
    finally:
        alarm.cancel()
        services.close()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=WORKLOADS)
    parser.add_argument("--again", action="store_true", help="also what is done")
    parser.add_argument("--threads", action="store_true", help="store what the threads do")
    return parser.parse_args()


def digests_of(kernel: KernelSpec) -> tuple[str, str]:
    """Its identity, and what rows of earlier versions call it by."""
    return kernel_identity(kernel), digest(kernel)


def wanted(chosen: argparse.Namespace, *kernel_digests: str) -> list[str]:
    """Workloads that are not done: those never searched first, then those of other files than today's, or without a champion."""
    known = {row["workload"]: row for row in (*finished(PUBLISHED), *finished(chosen.out))}
    done = {
        name
        for name, row in known.items()
        if row["run"]["kernel_digest"] in kernel_digests and row.get("champion")
    }
    left = [name for name in chosen.only if chosen.again or name not in done]
    return sorted(left, key=lambda name: (name in known, WORKLOADS.index(name)))


class Counted:
    """A line for a person now and then."""

    def __init__(self, name: str) -> None:
        self.name, self.began, self.trials = name, time.monotonic(), 0

    def on_trial(self, trial) -> None:
        self.trials += 1
        if self.trials % SAID_EVERY == 0:
            print(
                f"{self.name}: {self.trials} trials, {self.trials / (time.monotonic() - self.began) * 60:.0f} a minute",
                flush=True,
            )


def searched(name: str, services: Services, chosen: argparse.Namespace, stop: Stop) -> Row | None:
    """The row of one workload; None when the time ran out, or the search failed, before it was closed."""
    store, plan = services.store, plan_of(name, services, chosen.trials)
    search_id = unfinished(store, plan) or store.submit(plan).id
    store.request_control(search_id, "resume")  # one that is queued stays so
    claim, counted, sampler = (
        store.claim(worker_name(), services.settings.lease_s, search_id),
        Counted(name),
        Sampler(),
    )
    if chosen.threads:
        sampler.start()
    report = run_claim(services, claim, stop, counted.on_trial)
    threads = sampler.result() if chosen.threads else None
    if report.left is Left.STOPPED:
        store.finish(claim, Ended.PAUSED, "interrupted")
    if report.ended is not Ended.COMPLETED:
        print(
            f"{name}: {report.left} {report.ended}, {counted.trials} trials: {report.why}",
            flush=True,
        )
        return None
    kernel = services.catalogue.kernel(KERNEL)
    workload = kernel.workload(name)
    row = row_of(store, search_id, workload)
    row["run"] |= {"why": report.why, **({"threads_in": threads} if threads else {})}
    template = kernel.template(row["winner"]["template"])
    candidate = Candidate(
        kernel.name,
        template.name,
        complete_parameters(template, row["winner"]["parameters"], plan.compiled),
        Origin(OriginKind.SEEDED),
    )
    row["floor"] = floors(kernel, candidate, workload)
    row["profile"] = profiled(services.context(plan), candidate, workload)
    return row


def plan_of(name: str, services: Services, trials: int) -> SearchPlan:
    kernel = services.catalogue.kernel(KERNEL)
    workload = kernel.workload(name)
    flop = kernel.work_flop(kernel.values_of(dict(workload.dims), dict(workload.options)))
    templates = tuple(
        template for template in TEMPLATES if serves(kernel.template(template), workload)
    )
    return services.plan(
        SearchRequest(
            KERNEL,
            name=name,
            workloads=(name,),
            templates=templates,
            target="cuda:0",
            strategy="tpe",
            trials=trials,
            seed=SEED,
            mode=MODE,
            baseline=LONG_BASELINE if flop > LONG_WORK_FLOP else kernel.baseline,
        )
    )


def unfinished(store: Store, plan: SearchPlan) -> str | None:
    """The search of this very plan that was cut short."""
    return next(
        (
            item.id
            for item in store.searches(limit=200).items
            if item.name == plan.name and item.status in LIVE and store.plan(item.id) == plan
        ),
        None,
    )


def serves(template, workload) -> bool:
    have = {**dict(workload.dims), **dict(workload.options)}
    return all(have[name] in values for name, values in template.supports)


def row_of(store: Store, search_id: str, workload) -> Row:
    """What the results table says of one search, and what it rests on; its confirmed winner becomes the champion."""
    plan, trials, last = (
        store.plan(search_id),
        all_trials(store, search_id),
        confirmation_of(store, search_id),
    )
    winner = (
        next(trial for trial in trials if trial.number == last.trial) if last else _fastest(trials)
    )
    peers = [peer.peer for peer in store.peers(search_id)]
    timed = [peer for peer in peers if peer.outcome == "timed"]
    best = min(timed, key=lambda one: one.time_median_us, default=None)
    against = (
        next(
            (comparison for comparison in last.comparisons if comparison.against == "baseline"),
            None,
        )
        if last
        else None
    )
    confirmed, options = bool(last and last.confirmed), dict(workload.options)
    return {
        "workload": workload.name,
        "dims": dict(workload.dims),
        "dtype": options["dtype"],
        "mask": options["mask"],
        "l2": plan.mode,
        "time_median_us": _time_us(winner, against),
        "peers": [_peer(peer) for peer in peers],
        "best_peer": best.name if best else None,
        "ratio_to_best_peer": best.comparison.ratio if best else None,
        "interval": [best.comparison.ratio_low, best.comparison.ratio_high] if best else None,
        "confirmed": confirmed,
        "champion": promoted(store, search_id, winner) if confirmed else None,
        "ratio_to_baseline": against.ratio if against else None,
        "ratio_to_baseline_interval": [against.ratio_low, against.ratio_high] if against else None,
        "baseline": plan.baseline,
        "winner": {
            "trial": winner.number,
            "template": winner.template,
            "preset": winner.preset,
            "parameters": winner.parameters,
            "source_digest": winner.source_digest,
            "verdict": winner.verdict,
        },
        "verdicts": dict(Counter(_said_of(trial) for trial in trials)),
        "run": {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "strategy": plan.strategy,
            "seed": plan.seed,
            "trials": len(trials),
            "templates": list(plan.templates),
            "kernel_digest": plan.kernel_digest,
            **pace(trials),
        },
        "confirmations": [_finite(asdict(last))] if last else [],
        "trials": [_trial(trial) for trial in trials],
    }


def promoted(store: Store, search_id: str, winner: TrialRow) -> str | None:
    """The scope whose champion the confirmed winner is from now on; None where safety could not be judged."""
    return (
        store.promote(search_id, winner.number, replace=True).scope_digest
        if winner.verdict == "accepted"
        else None
    )


def pace(trials: list[TrialRow]) -> Row:
    """From when the baseline was begun to when the last trial was recorded; pauses count."""
    begun, done = (
        datetime.fromisoformat(text) for text in (trials[0].created_at, trials[-1].recorded_at)
    )
    seconds = (done - begun).total_seconds()
    return {"seconds": round(seconds, 1), "trials_per_minute": round(len(trials) / seconds * 60, 1)}


def all_trials(store: Store, search_id: str) -> list[TrialRow]:
    found, cursor = [], None
    while True:
        page = store.trials(search_id, limit=200, cursor=cursor)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


def confirmation_of(store: Store, search_id: str) -> Confirmation | None:
    found = store.confirmation(search_id)
    return found.confirmation if found else None


def _fastest(trials: list[TrialRow]) -> TrialRow:
    """Where nothing was confirmed: the best that passed every gate, else the baseline."""
    accepted = [trial for trial in trials if trial.verdict == "accepted"]
    return min(accepted, key=lambda one: one.ratio_to_baseline, default=trials[0])


def _time_us(winner: TrialRow, against) -> float | None:
    """Of the fresh processes that confirmed it, else of the search."""
    if against is not None:
        return median([process.timings[0].time_median_us for process in against.processes])
    return winner.time_median_us


def _peer(one: Peer) -> Row:
    found = {
        "name": one.name,
        "version": one.version,
        "outcome": one.outcome,
        "sentence": one.sentence,
        "time_median_us": one.time_median_us,
    }
    if one.comparison is not None:
        found |= {
            "ratio": one.comparison.ratio,
            "interval": [one.comparison.ratio_low, one.comparison.ratio_high],
            "decision": one.comparison.decision,
            "samples": [
                {
                    "seed": process.seed,
                    "ours": process.timings[0].samples,
                    "theirs": process.timings[0].baseline_samples,
                }
                for process in one.comparison.processes
            ],
        }
    return _finite(found)


def _said_of(trial: TrialRow) -> str:
    return f"{trial.verdict} {trial.reason or ''}".strip()


def _trial(one: TrialRow) -> Row:
    return _finite(
        {
            "number": one.number,
            "template": one.template,
            "parameters": one.parameters,
            "said": _said_of(one),
            "source": one.source_digest and one.source_digest[:12],
            "us": one.time_median_us,
            "ratio": one.ratio_to_baseline,
        }
    )


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
    found = {
        row["workload"]: {
            "workload": row["workload"],
            **row["winner"],
            "time_median_us": row["time_median_us"],
            "confirmed": row["confirmed"],
            "command": command(row),
        }
        for row in rows
    }
    return [found[name] for name in WORKLOADS if name in found]


def command(row: Row) -> str:
    settings = [
        word
        for name, value in row["winner"]["parameters"].items()
        for word in ("--set", f"{name}={value}")
    ]
    return shlex.join(
        [
            "greenfast",
            "trial",
            "attention",
            "--target",
            "cuda:0",
            "--workload",
            row["workload"],
            "--template",
            row["winner"]["template"],
            *settings,
        ]
    )


def said(row: Row | None) -> str:
    if row is None:
        return "goes on in the next run"
    ratio = row["ratio_to_best_peer"]
    beside = f"{ratio:.3f} {row['interval']} of {row['best_peer']}" if ratio else "no peer"
    return (
        f"{row['time_median_us']:.2f} us, {beside}, {'champion' if row['champion'] else 'NOT confirmed'}, "
        f"{row['winner']['template']} {row['winner']['parameters']}, {row['verdicts']}, "
        f"{row['run']['trials_per_minute']} trials/min, floor {row['floor']}"
    )


def save(row: Row, environment: Row, out: Path) -> None:
    """The row of one workload, and the list of all winners."""
    _write(
        out / "attention_searches" / f"{row['workload']}.json",
        {"environment": environment, "rows": [row]},
    )
    _write(
        out / "attention_winners.json",
        {"environment": environment, "rows": winners([*finished(PUBLISHED), *finished(out)])},
    )


def save_champions(store: Store, environment: Row, out: Path) -> None:
    """Those of the database, and those published before of other scopes."""
    path, known = out / "champions.json", {}
    for one in (PUBLISHED / "champions.json", path):
        known |= (
            {row["scope_digest"]: row for row in json.loads(one.read_text())["rows"]}
            if one.is_file()
            else {}
        )
    known |= {
        item.scope_digest: champion_out(item, Catalogue.from_environment()).model_dump(mode="json")
        for item in store.champions(kernel=KERNEL, limit=200).items
    }
    _write(path, {"environment": environment, "rows": list(known.values())})


def finished(folder: Path) -> list[Row]:
    """Each finished search of a folder, with the environment that it ran in."""
    found = [
        json.loads(path.read_text())
        for path in sorted((folder / "attention_searches").glob("*.json"))
    ]
    return [{**one["rows"][0], "environment": one["environment"]} for one in found]


def _write(path: Path, value: Any) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(value, allow_nan=False) + "\n")
    beside.replace(path)


def _environment(services: Services) -> Row:
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cores": usable_cores(),
        "python": platform.python_version(),
        **dict(services.toolchain.identity),
        **dict(services.target("cuda:0").identity()),
    }


if __name__ == "__main__":
    main()
