"""Confirmations, peers and champions as commands, REST and pages show them."""

from __future__ import annotations

import math

from greenfast.app.history import kernel_today, recheck_of
from greenfast.app.views.confirmation_schemas import (
    ComparisonOut,
    ConfirmationOut,
    PeerOut,
    ProcessOut,
    TimesOut,
)
from greenfast.app.views.schemas import ChampionOut, ScopeOut, TrialOut
from greenfast.db.rows import ChampionRow, ConfirmationRow, PeerRow
from greenfast.search.acceptance import measured_decision
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.loop.comparison import Comparison, ProcessTimes
from greenfast.search.loop.scope import Scope
from greenfast.search.timing import median


def confirmation_out(row: ConfirmationRow, *, samples: bool = False) -> ConfirmationOut:
    """A confirmation; with `samples`, also every measured time."""
    confirmation = row.confirmation
    return ConfirmationOut(
        trial=confirmation.trial,
        confirmed=confirmation.confirmed,
        sentence=confirmation.sentence,
        recorded_at=row.recorded_at,
        environment=row.environment,
        comparisons=[
            comparison_out(comparison, samples=samples) for comparison in confirmation.comparisons
        ],
    )


def peer_out(row: PeerRow, *, samples: bool = False) -> PeerOut:
    """A peer with its comparison; with `samples`, also every measured time."""
    peer = row.peer
    return PeerOut(
        name=peer.name,
        version=peer.version,
        workload=peer.workload,
        outcome=peer.outcome,
        sentence=peer.sentence,
        why="" if peer.outcome == "timed" else peer.why or peer.sentence,
        time_median_us=peer.time_median_us,
        recorded_at=row.recorded_at,
        comparison=comparison_out(peer.comparison, samples=samples) if peer.comparison else None,
    )


def comparison_out(comparison: Comparison, *, samples: bool = False) -> ComparisonOut:
    return ComparisonOut(
        against=comparison.against,
        other_trial=comparison.other_trial,
        decision=comparison.decision,
        ratio=finite(comparison.ratio),
        ratio_low=finite(comparison.ratio_low),
        ratio_high=finite(comparison.ratio_high),
        processes=[_process_out(process, samples) for process in comparison.processes],
    )


def champion_out(row: ChampionRow, catalogue: Catalogue) -> ChampionOut:
    """A champion, with the checks of today's kernels (`catalogue`) that it has not passed."""
    peers = [peer_out(peer) for peer in row.peers]
    return ChampionOut(
        scope=_scope_out(row.scope),
        scope_digest=row.scope_digest,
        trial=TrialOut.model_validate(row.trial),
        confirmation=confirmation_out(row.confirmation),
        peers=peers,
        best_peers=best_peers(peers),
        promoted_at=row.promoted_at,
        replaced_at=row.replaced_at,
        recheck=recheck_of(row, kernel_today(catalogue, row.scope.kernel)),
        recheck_failed=row.failed_recheck is not None,
    )


def _scope_out(scope: Scope) -> ScopeOut:
    return ScopeOut(
        kernel=scope.kernel,
        kernel_digest=scope.kernel_digest,
        workloads=list(scope.workloads),
        values=dict(scope.values),
        device=scope.device,
        toolchain=scope.toolchain,
        mode=scope.mode,
    )


def best_peers(peers: list[PeerOut]) -> list[PeerOut]:
    """The fastest timed peer of each workload, by its time relative to the winner's."""
    best: dict[str, tuple[float, PeerOut]] = {}
    for peer in peers:
        if peer.outcome != "timed" or peer.comparison is None or peer.comparison.ratio is None:
            continue
        ratio = peer.comparison.ratio
        if peer.workload not in best or ratio > best[peer.workload][0]:
            best[peer.workload] = ratio, peer
    return [peer for _, peer in best.values()]


def ranked(peers: list[PeerOut]) -> list[PeerOut]:
    """Timed peers first, by workload, the fastest first."""

    def place(peer: PeerOut) -> tuple[bool, str, float]:
        ratio = peer.comparison.ratio if peer.comparison else None
        return ratio is None, peer.workload if ratio else "", -(ratio or 0.0)

    return sorted(peers, key=place)


def interval(comparison: ComparisonOut) -> str:
    """The ratio with its interval: 0.912 [0.905, 0.919]."""
    if comparison.ratio is None:
        return "-"
    low, high = (
        f"{bound:.3f}" if bound is not None else "?"
        for bound in (comparison.ratio_low, comparison.ratio_high)
    )
    return f"{comparison.ratio:.3f} [{low}, {high}]"


def finite(value: float | None) -> float | None:
    """A bound of a ratio's interval; None for 0 and infinity, which mean too few blocks."""
    return value if value is not None and 0 < value < math.inf else None


def _process_out(process: ProcessTimes, samples: bool) -> ProcessOut:
    low: float | None = None
    ratio: float | None = None
    high: float | None = None
    if all(timing.samples and timing.baseline_samples for timing in process.timings):
        low, ratio, high = map(finite, measured_decision(process.timings)[1].ratios)
    return ProcessOut(
        seed=process.seed,
        ratio=ratio,
        ratio_low=low,
        ratio_high=high,
        timings=[
            TimesOut(
                workload=timing.workload,
                time_median_us=timing.time_median_us,
                other_median_us=median(timing.baseline_samples)
                if timing.baseline_samples
                else None,
                samples=list(timing.samples) if samples else None,
                other_samples=list(timing.baseline_samples) if samples else None,
            )
            for timing in process.timings
        ],
    )
