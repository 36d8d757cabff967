"""Tables that several commands show."""

from __future__ import annotations

from rich.table import Table

from greenfast.app.cli.output import microseconds, table
from greenfast.app.views.confirmations import interval, ranked
from greenfast.app.views.schemas import PeerOut


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


def _why_not_timed(peer: PeerOut) -> str:
    return f"{peer.outcome.replace('_', ' ')}: {peer.why}"
