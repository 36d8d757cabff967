"""The winner of a search on each of its workloads: time, ratio to the baseline, and peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from greenfast.app.views.confirmation_schemas import PeerOut
from greenfast.app.views.confirmations import finite, peer_out
from greenfast.app.views.schemas import WorkloadResultOut
from greenfast.db.rows import ConfirmationRow, SearchRow
from greenfast.search.loop.confirmation import BASELINE
from greenfast.search.timing import (
    Interval,
    across_processes,
    block_log_ratios,
    median_interval,
)

if TYPE_CHECKING:
    from greenfast.db.store import Store


def results_by_workload(store: Store, row: SearchRow, best: int | None) -> list[WorkloadResultOut]:
    """A row per workload; [] for a single workload, whose figures the search has."""
    if best is None or len(row.workloads) < 2:
        return []
    timings, baseline = _timings(store, row, best), _timings(store, row, 0)
    confirmed = _confirmed(store.confirmation(row.id), best)
    peers: dict[str, list[PeerOut]] = {}
    for peer in store.peers(row.id):
        peers.setdefault(peer.peer.workload, []).append(peer_out(peer))
    weights = row.weights or (1.0,) * len(row.workloads)
    return [
        _result(name, weight, timings[name], baseline.get(name), confirmed, peers.get(name, []))
        for name, weight in zip(row.workloads, weights, strict=True)
        if name in timings
    ]


def _timings(store: Store, row: SearchRow, number: int) -> dict[str, Mapping[str, Any]]:
    """The performance gate's timings of a trial, by workload."""
    gates = store.trial(row.id, number).gates
    timings: Sequence[Mapping[str, Any]] = gates.get("performance", {}).get("timings") or ()
    return {str(timing["workload"]): timing for timing in timings}


def _confirmed(row: ConfirmationRow | None, best: int) -> dict[str, Interval]:
    """The ratio to the baseline over fresh processes, by workload, of a confirmed winner."""
    if row is None or row.confirmation.trial != best:
        return {}
    intervals: dict[str, list[Interval]] = {}
    for comparison in row.confirmation.comparisons:
        for process in comparison.processes if comparison.against == BASELINE else ():
            for timing in process.timings:
                ratios = block_log_ratios(timing.samples, timing.baseline_samples)
                if ratios:
                    intervals.setdefault(timing.workload, []).append(median_interval(ratios))
    return {name: across_processes(each)[1] for name, each in intervals.items()}


def _result(
    name: str,
    weight: float,
    timing: Mapping[str, Any],
    baseline: Mapping[str, Any] | None,
    confirmed: Mapping[str, Interval],
    peers: list[PeerOut],
) -> WorkloadResultOut:
    baseline_us = float(baseline["time_median_us"]) if baseline else None
    time_us = float(timing["time_median_us"])
    ratio = time_us / baseline_us if baseline_us else None
    low: float | None = None
    high: float | None = None
    ratios = block_log_ratios(timing.get("samples") or (), timing.get("baseline_samples") or ())
    interval = confirmed.get(name) or (median_interval(ratios) if ratios else None)
    if interval is not None:
        low, ratio, high = map(finite, interval.ratios)
    return WorkloadResultOut(
        workload=name,
        weight=weight,
        time_median_us=time_us,
        time_kind=str(timing["time_kind"]),
        baseline_median_us=baseline_us,
        ratio=ratio,
        ratio_low=low,
        ratio_high=high,
        confirmed=name in confirmed,
        peers=peers,
    )
