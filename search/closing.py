"""What a search that measures does once its budget is spent: its winner is timed again, and beside its peers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from search.comparison import Confirmation, Peer
from search.confirmation import Contender, Standing, confirm, prepared, standing, unconfirmed
from search.errors import GreenfastError
from search.evaluate import Bench

T = TypeVar("T")


@dataclass(frozen=True)
class Closing:
    """`said` is for people: what the confirmation found, or why there is none."""

    confirmation: Confirmation | None
    peers: tuple[Peer, ...]
    said: str


def closing(bench: Bench, baseline: Contender | None, contenders: Iterable[Contender]) -> Callable[[], Closing] | None:
    """What is left to do, None when nothing was measured. The doing raises nothing: what goes wrong here is ours, and
    the search is complete without it."""
    if baseline is None:
        return None
    who = standing(baseline, contenders)
    return lambda: _close(bench, baseline, who)


def _close(bench: Bench, baseline: Contender, who: Standing | None) -> Closing:
    confirmation, said = None, "no candidate was measured faster than the baseline"
    if who is not None:
        confirmation, fault = _kept(lambda: confirm(bench, who))
        confirmation = confirmation or unconfirmed(who.winner, fault)
        said = confirmation.sentence
    peers: tuple[Peer, ...] | None = ()
    if bench.compare_peers is not None and not bench.cancelled():
        best = who.winner if who is not None else baseline
        peers, fault = _kept(lambda: bench.compare_peers(prepared(bench, best.candidate), cancelled=bench.cancelled))
        said += f"; peers were not compared: {fault}" if fault else ""
    return Closing(confirmation, peers or (), said)


def _kept(work: Callable[[], T]) -> tuple[T | None, str]:
    """What `work` gives, or None and what went wrong."""
    try:
        return work(), ""
    except GreenfastError as error:
        return None, str(error)
    except Exception as error:                   # a bug of ours must not cost a search that is complete
        return None, f"a bug of greenfast: {type(error).__name__}: {error}"
