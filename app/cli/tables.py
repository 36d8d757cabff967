"""Tables that several commands show."""

from __future__ import annotations

from rich.table import Table

from greenfast.app.cli.output import microseconds, table
from greenfast.app.views.confirmation_schemas import PeerOut
from greenfast.app.views.confirmations import best_peers, interval, ranked
from greenfast.app.views.schemas import WorkloadResultOut


def peers_table(peers: list[PeerOut]) -> Table:
    """Peers (other people's kernels) beside the winner of a search, the timed ones first."""
    return table(
        ("peer", "workload", "measured", "winner / peer", "the winner is"),
        [
            (
                f"{peer.name} {peer.version}".strip(),
                peer.workload,
                microseconds(peer.time_median_us),
                interval(peer.comparison) if peer.comparison else "-",
                peer.comparison.decision if peer.comparison else _why_not_timed(peer),
            )
            for peer in ranked(peers)
        ],
    )


def workloads_table(rows: list[WorkloadResultOut]) -> Table:
    """The winner of a search on each of its workloads."""
    return table(
        ("workload", "weight", "time", "ratio to baseline", "best peer"),
        [
            (
                row.workload,
                f"{row.weight:g}",
                microseconds(row.time_median_us, row.time_kind),
                _ratio(row),
                _best_peer(row.peers),
            )
            for row in rows
        ],
    )


def _ratio(row: WorkloadResultOut) -> str:
    if row.ratio is None:
        return "-"
    if row.ratio_low is None or row.ratio_high is None:
        return f"{row.ratio:.3f}"
    fresh = ", fresh processes" if row.confirmed else ""
    return f"{row.ratio:.3f} [{row.ratio_low:.3f}, {row.ratio_high:.3f}]{fresh}"


def _best_peer(peers: list[PeerOut]) -> str:
    best = best_peers(peers)
    if not best or best[0].comparison is None:
        return "-"
    return f"{interval(best[0].comparison)} of {best[0].name}"


def _why_not_timed(peer: PeerOut) -> str:
    return f"{peer.outcome.replace('_', ' ')}: {peer.why}"
