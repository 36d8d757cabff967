"""What a search that measures does once its budget is spent: its winner is timed again, and beside its peers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from search.comparison import Confirmation, Peer
from search.confirmation import Contender, confirm, prepared, standing, unconfirmed
from search.errors import GreenfastError
from search.evaluate import Bench

WINNERS = 3                          # that may prove wrong, one after the other
T = TypeVar("T")


@dataclass(frozen=True)
class Closing:
    """`said` is for people: what the confirmations found, or why there are none."""

    confirmations: tuple[Confirmation, ...]      # the last one counts; those before it proved wrong on new inputs
    peers: tuple[Peer, ...]
    said: str


def closing(bench: Bench, baseline: Contender | None, contenders: Iterable[Contender]) -> Callable[[], Closing] | None:
    """What is left to do, None when nothing was measured. The doing raises nothing: what goes wrong here is ours, and
    the search is complete without it."""
    if baseline is None:
        return None
    ranked = tuple(contenders)
    return lambda: _close(bench, baseline, ranked)


def _close(bench: Bench, baseline: Contender, contenders: tuple[Contender, ...]) -> Closing:
    confirmations, best = _confirmed(bench, baseline, list(contenders))
    said = "; ".join(one.sentence for one in confirmations) or "no candidate was measured faster than the baseline"
    peers: tuple[Peer, ...] | None = ()
    if bench.compare_peers is not None and not bench.cancelled():
        peers, fault = _kept(lambda: bench.compare_peers(prepared(bench, best.candidate), cancelled=bench.cancelled))
        said += f"; peers were not compared: {fault}" if fault else ""
    return Closing(confirmations, peers or (), said)


def _confirmed(bench: Bench, baseline: Contender,
               contenders: list[Contender]) -> tuple[tuple[Confirmation, ...], Contender]:
    """The winner's confirmation, and the winner; where new inputs prove one wrong, the next one takes its place."""
    found: list[Confirmation] = []
    while len(found) < WINNERS and (who := standing(baseline, contenders)) is not None:
        confirmation, fault = _kept(lambda: confirm(bench, who))
        found.append(confirmation or unconfirmed(who.winner, fault))
        if fault or found[-1].comparisons:
            return tuple(found), who.winner
        contenders.remove(who.winner)
    return tuple(found), baseline


def _kept(work: Callable[[], T]) -> tuple[T | None, str]:
    """What `work` gives, or None and what went wrong."""
    try:
        return work(), ""
    except GreenfastError as error:
        return None, str(error)
    except Exception as error:                   # a bug of ours must not cost a search that is complete
        return None, f"a bug of greenfast: {type(error).__name__}: {error}"
