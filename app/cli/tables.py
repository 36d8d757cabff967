"""Tables that several commands show."""

from __future__ import annotations

from rich.table import Table

from greenfast.app.cli.output import microseconds, table
from greenfast.app.views.confirmations import interval, ranked
from greenfast.app.views.schemas import PeerOut


def peers_table(peers: list[PeerOut]) -> Table:
    """Peers beside a winner, those that were timed first."""
    return table(
        ("peer", "workload", "measured", "the winner's ratio", "the winner is"),
        [
            (
                f"{one.name} {one.version}".strip(),
                one.workload,
                microseconds(one.time_median_us),
                interval(one.comparison) if one.comparison else "-",
                one.comparison.decision if one.comparison else _why_not(one),
            )
            for one in ranked(peers)
        ],
    )


def _why_not(one: PeerOut) -> str:
    return f"{one.outcome.replace('_', ' ')}: {one.sentence.removeprefix(f'{one.name}: ')}"
