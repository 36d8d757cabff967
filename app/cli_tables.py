"""Tables that several commands show."""

from __future__ import annotations

from rich.table import Table

from app.cli_output import microseconds, table
from app.confirmations import interval
from app.schemas import PeerOut


def peers_table(peers: list[PeerOut]) -> Table:
    """Peers beside a winner, by workload."""
    return table(("peer", "workload", "measured", "the winner's ratio", ""),
                 [(f"{one.name} {one.version}".strip(), one.workload, microseconds(one.time_median_us),
                   interval(one.comparison) if one.comparison else "-",
                   one.comparison.decision if one.comparison else f"{one.outcome}: {one.sentence}") for one in peers])
