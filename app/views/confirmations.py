"""What commands, REST and pages show of confirmations, peers and champions."""

from __future__ import annotations

import math

from greenfast.app.history import kernel_today, recheck_of
from greenfast.app.views.schemas import (
    ChampionOut,
    ComparisonOut,
    ConfirmationOut,
    PeerOut,
    ProcessOut,
    ScopeOut,
    TimesOut,
    TrialOut,
)
from greenfast.db.rows import ChampionRow, ConfirmationRow, PeerRow
from greenfast.search.acceptance import measured_decision
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.loop.comparison import Comparison, ProcessTimes
from greenfast.search.loop.scope import Scope
from greenfast.search.timing import median


def confirmation_out(row: ConfirmationRow, *, samples: bool = False) -> ConfirmationOut:
    """With `samples`, every time that was measured; without, what follows from them."""
    found = row.confirmation
    return ConfirmationOut(
        trial=found.trial,
        confirmed=found.confirmed,
        sentence=found.sentence,
        recorded_at=row.recorded_at,
        environment=row.environment,
        comparisons=[
            comparison_out(comparison, samples=samples) for comparison in found.comparisons
        ],
    )


def peer_out(row: PeerRow, *, samples: bool = False) -> PeerOut:
    found = row.peer
    return PeerOut(
        name=found.name,
        version=found.version,
        workload=found.workload,
        outcome=found.outcome,
        sentence=found.sentence,
        time_median_us=found.time_median_us,
        recorded_at=row.recorded_at,
        comparison=comparison_out(found.comparison, samples=samples) if found.comparison else None,
    )


def comparison_out(one: Comparison, *, samples: bool = False) -> ComparisonOut:
    return ComparisonOut(
        against=one.against,
        other_trial=one.other_trial,
        decision=one.decision,
        ratio=finite(one.ratio),
        ratio_low=finite(one.ratio_low),
        ratio_high=finite(one.ratio_high),
        processes=[_process_out(each, samples) for each in one.processes],
    )


def champion_out(row: ChampionRow, catalogue: Catalogue) -> ChampionOut:
    """With what `catalogue`, today's kernels, has in checks that the champion has not passed."""
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
    """The fastest peer of each workload, by its time relative to the winner's; peers that were not timed are none."""
    found: dict[str, PeerOut] = {}
    for peer in peers:
        if peer.outcome != "timed" or peer.comparison is None or peer.comparison.ratio is None:
            continue
        best = found.get(peer.workload)
        if best is None or peer.comparison.ratio > best.comparison.ratio:
            found[peer.workload] = peer
    return list(found.values())


def ranked(peers: list[PeerOut]) -> list[PeerOut]:
    """Those that were timed first, the fastest of a workload before the others."""

    def place(one: PeerOut) -> tuple[bool, str, float]:
        ratio = one.comparison.ratio if one.comparison else None
        return ratio is None, one.workload if ratio else "", -(ratio or 0.0)

    return sorted(peers, key=place)


def interval(one: ComparisonOut) -> str:
    """0.912 [0.905, 0.919]: the ratio with its interval."""
    if one.ratio is None:
        return "-"
    low, high = (
        f"{each:.3f}" if each is not None else "?" for each in (one.ratio_low, one.ratio_high)
    )
    return f"{one.ratio:.3f} [{low}, {high}]"


def finite(value: float | None) -> float | None:
    """An end of a ratio's interval; too few blocks leave it without one, which is 0 or infinity."""
    return value if value is not None and 0 < value < math.inf else None


def _process_out(one: ProcessTimes, samples: bool) -> ProcessOut:
    low, ratio, high = (None, None, None)
    if all(each.samples and each.baseline_samples for each in one.timings):
        low, ratio, high = map(finite, measured_decision(one.timings)[1].ratios)
    return ProcessOut(
        seed=one.seed,
        ratio=ratio,
        ratio_low=low,
        ratio_high=high,
        timings=[
            TimesOut(
                workload=each.workload,
                time_median_us=each.time_median_us,
                other_median_us=median(each.baseline_samples) if each.baseline_samples else None,
                samples=list(each.samples) if samples else None,
                other_samples=list(each.baseline_samples) if samples else None,
            )
            for each in one.timings
        ],
    )
