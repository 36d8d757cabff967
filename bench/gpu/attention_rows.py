"""The row of a finished search for docs/attention.md, its winner's command, and its files."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from bench.results import RESULTS, Row, find_result, finite, read_result, result_names, write_result
from greenfast.app.views.confirmations import champion_out
from greenfast.db.rows import TrialRow
from greenfast.db.store import Store
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.workloads import Workload
from greenfast.search.loop.comparison import Comparison, Confirmation, Peer
from greenfast.search.timing import median

KERNEL = "attention"
PUBLISHED = RESULTS / "h200"
SEARCHES, WINNERS, CHAMPIONS = "attention_searches", "attention_winners", "champions"
# In the order of their importance; each as kernel.toml defines it, in bfloat16.
SHAPES = ("mission", "mission_512", "small", "long", "d128_4096")
WORKLOADS = tuple(f"{shape}{mask}_bf16" for mask in ("", "_causal") for shape in SHAPES)
DIGITS = 6  # of stored times and ratios, more than their measurement resolves


def row_of(store: Store, search_id: str, workload: Workload) -> Row:
    """The results table's row of one search with the trials and samples behind it.

    A confirmed winner becomes the champion of its scope.
    """
    plan, trials = store.plan(search_id), all_trials(store, search_id)
    last = confirmation_of(store, search_id)
    winner = (
        next(trial for trial in trials if trial.number == last.trial) if last else _fastest(trials)
    )
    against = _against_baseline(last)
    confirmed, options = bool(last and last.confirmed), dict(workload.options)
    return {
        "workload": workload.name,
        "dims": dict(workload.dims),
        "dtype": options["dtype"],
        "mask": options["mask"],
        "l2": plan.mode,
        "time_median_us": _time_us(winner, against),
        **_beside_peers([stored.peer for stored in store.peers(search_id)]),
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
        "verdicts": dict(Counter(_verdict(trial) for trial in trials)),
        "run": {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "strategy": plan.strategy,
            "seed": plan.seed,
            "trials": len(trials),
            "templates": list(plan.templates),
            "kernel_digest": plan.kernel_digest,
            **pace(trials),
        },
        "confirmations": [finite(asdict(last), DIGITS)] if last else [],
        "trials": [_trial(trial) for trial in trials],
    }


def _beside_peers(peers: list[Peer]) -> Row:
    """The peers' part of a row; the fastest of those that were timed is the best."""
    timed = [peer for peer in peers if peer.outcome == "timed"]
    best = min(timed, key=lambda peer: peer.time_median_us, default=None)
    return {
        "peers": [_peer(peer) for peer in peers],
        "best_peer": best.name if best else None,
        "ratio_to_best_peer": best.comparison.ratio if best else None,
        "interval": [best.comparison.ratio_low, best.comparison.ratio_high] if best else None,
    }


def _against_baseline(confirmation: Confirmation | None) -> Comparison | None:
    comparisons = confirmation.comparisons if confirmation else ()
    return next((item for item in comparisons if item.against == "baseline"), None)


def promoted(store: Store, search_id: str, winner: TrialRow) -> str | None:
    """Make a confirmed winner champion and return its scope; None if safety was not judged."""
    if winner.verdict != "accepted":
        return None
    return store.promote(search_id, winner.number, replace=True).scope_digest


def pace(trials: list[TrialRow]) -> Row:
    """Seconds from the baseline's start to the last trial's record, with pauses, and the rate."""
    begun, done = (
        datetime.fromisoformat(text) for text in (trials[0].created_at, trials[-1].recorded_at)
    )
    seconds = (done - begun).total_seconds()
    return {"seconds": round(seconds, 1), "trials_per_minute": round(len(trials) / seconds * 60, 1)}


def all_trials(store: Store, search_id: str) -> list[TrialRow]:
    trials, cursor = [], None
    while True:
        page = store.trials(search_id, limit=200, cursor=cursor)
        trials += page.items
        cursor = page.next_cursor
        if cursor is None:
            return trials


def confirmation_of(store: Store, search_id: str) -> Confirmation | None:
    stored = store.confirmation(search_id)
    return stored.confirmation if stored else None


def _fastest(trials: list[TrialRow]) -> TrialRow:
    """Where nothing was confirmed: the fastest accepted trial, else the baseline."""
    accepted = [trial for trial in trials if trial.verdict == "accepted"]
    return min(accepted, key=lambda trial: trial.ratio_to_baseline, default=trials[0])


def _time_us(winner: TrialRow, against: Comparison | None) -> float | None:
    """The median of the fresh processes that confirmed the winner, else of the search."""
    if against is not None:
        return median([process.timings[0].time_median_us for process in against.processes])
    return winner.time_median_us


def _peer(peer: Peer) -> Row:
    row = {
        "name": peer.name,
        "version": peer.version,
        "outcome": peer.outcome,
        "sentence": peer.sentence,
        "time_median_us": peer.time_median_us,
    }
    if peer.comparison is not None:
        row |= {
            "ratio": peer.comparison.ratio,
            "interval": [peer.comparison.ratio_low, peer.comparison.ratio_high],
            "decision": peer.comparison.decision,
            "samples": [
                {
                    "seed": process.seed,
                    "ours": process.timings[0].samples,
                    "theirs": process.timings[0].baseline_samples,
                }
                for process in peer.comparison.processes
            ],
        }
    return finite(row, DIGITS)


def _verdict(trial: TrialRow) -> str:
    return f"{trial.verdict} {trial.reason or ''}".strip()


def _trial(trial: TrialRow) -> Row:
    row = {
        "number": trial.number,
        "template": trial.template,
        "parameters": trial.parameters,
        "said": _verdict(trial),
        "source": trial.source_digest and trial.source_digest[:12],
        "us": trial.time_median_us,
        "ratio": trial.ratio_to_baseline,
    }
    return finite(row, DIGITS)


def winners(rows: list[Row]) -> list[Row]:
    """The latest winner of each workload with the command that takes it through all gates again."""
    latest = {
        row["workload"]: {
            "workload": row["workload"],
            **row["winner"],
            "time_median_us": row["time_median_us"],
            "confirmed": row["confirmed"],
            "command": command(row),
        }
        for row in rows
    }
    return [latest[name] for name in WORKLOADS if name in latest]


def command(row: Row) -> str:
    settings = [
        word
        for name, value in row["winner"]["parameters"].items()
        for word in ("--set", f"{name}={value}")
    ]
    words = ("greenfast", "trial", "attention", "--target", "cuda:0")
    return shlex.join(
        [
            *words,
            "--workload",
            row["workload"],
            "--template",
            row["winner"]["template"],
            *settings,
        ]
    )


def save(row: Row, environment: Row, folder: Path) -> None:
    """Write the row of one workload, and the list of all winners."""
    search = {"environment": environment, "rows": [row]}
    write_result(f"{SEARCHES}/{row['workload']}", finite(search), folder)
    rows = winners([*finished(PUBLISHED), *finished(folder)])
    write_result(WINNERS, {"environment": environment, "rows": rows}, folder)


def save_champions(store: Store, environment: Row, folder: Path) -> None:
    """Write the database's champions, and the published ones of other scopes."""
    champions = {
        row["scope_digest"]: row
        for known in (PUBLISHED, folder)
        for row in find_result(CHAMPIONS, known).get("rows", ())
    }
    champions |= {
        item.scope_digest: champion_out(item, Catalogue.from_environment()).model_dump(mode="json")
        for item in store.champions(kernel=KERNEL, limit=200).items
    }
    write_result(CHAMPIONS, {"environment": environment, "rows": list(champions.values())}, folder)


def finished(folder: Path) -> list[Row]:
    """The finished searches in a folder, each with the environment that it ran in."""
    results = [
        read_result(f"{SEARCHES}/{name}", folder) for name in result_names(folder / SEARCHES)
    ]
    return [{**result["rows"][0], "environment": result["environment"]} for result in results]
