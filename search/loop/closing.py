"""The end of a search that measures: its fastest candidates and its peers are timed again.

The fastest of many candidates looks faster in its own search than it is. If fresh processes show
the runner-up to be faster, the runner-up is confirmed in its place: fresh processes outrank the
search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from greenfast.search.errors import GreenfastError
from greenfast.search.loop.comparison import Confirmation, Peer
from greenfast.search.loop.confirmation import (
    Contender,
    Settle,
    confirm,
    fastest,
    finalists_of,
    is_beaten,
    prepared,
    safety_of,
    unconfirmed,
)
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.loop.evaluate import settled as settled_verdict
from greenfast.search.loop.serving import judge_served
from greenfast.search.targets.base import runner
from greenfast.search.verdict import Failed, GateResult, Trial

CONTENDERS = 3  # contenders considered, and so the most confirmations of one search
T = TypeVar("T")
# A trial's number, and the later result of a skipped gate or of a check on new inputs.
Settled = tuple[int, GateResult]


@dataclass(frozen=True)
class Closing:
    """`sentence` gives the user the results of the confirmations, or the reason for having none."""

    settled: tuple[Settled, ...]
    confirmations: tuple[Confirmation, ...]  # the last one counts
    peers: tuple[Peer, ...]
    sentence: str


@dataclass(frozen=True)
class Served:
    """For a tuning: the trials that its bundle may hold, and how close to the best they must be."""

    trials: tuple[Trial, ...]
    share: float


def closing(
    context: EvaluationContext,
    baseline: Contender | None,
    contenders: Iterable[Contender],
    served: Served | None = None,
) -> Callable[[], Closing] | None:
    """The work that remains; None when nothing was measured.

    The work raises nothing: failures here are ours, and the search is complete without it.
    """
    if baseline is None:
        return None
    ranked = fastest(contenders, CONTENDERS)
    return lambda: _close(context, baseline, ranked, served)


def _close(
    context: EvaluationContext,
    baseline: Contender,
    contenders: list[Contender],
    served: Served | None,
) -> Closing:
    settled: list[Settled] = []
    safe = [
        contender
        for contender in contenders
        if not contender.spared or _is_safe(context, contender, settled)
    ]
    confirmations, best = _confirmed(
        context, baseline, safe, lambda number, result: settled.append((number, result))
    )
    sentence = (
        "; ".join(confirmation.sentence for confirmation in confirmations)
        or "no candidate was measured faster than the baseline"
    )
    if served is not None:
        trials = _after(served.trials, settled)
        _, fault = _kept(
            lambda: judge_served(
                context,
                trials,
                served.share,
                lambda number, result: settled.append((number, result)),
            )
        )
        sentence += f"; kernels for single workloads were not all judged: {fault}" if fault else ""
    peers: tuple[Peer, ...] | None = ()
    compare_peers = context.compare_peers
    if compare_peers is not None and not context.stop.is_set():
        peers, fault = _kept(
            lambda: compare_peers(
                prepared(on_one_device(context), best.candidate), cancelled=context.stop.is_set
            )
        )
        sentence += f"; peers were not compared: {fault}" if fault else ""
    return Closing(tuple(settled), confirmations, peers or (), sentence)


def on_one_device(context: EvaluationContext) -> EvaluationContext:
    """The context with one GPU of a target that has several."""
    return replace(context, target=runner(context.target).lane())


def _after(trials: Iterable[Trial], results: Iterable[Settled]) -> list[Trial]:
    """The trials with later results of their gates."""
    known = {trial.number: trial for trial in trials}
    for number, result in results:
        if number in known:
            verdict = settled_verdict(known[number].verdict, result)
            known[number] = replace(known[number], verdict=verdict)
    return list(known.values())


def _is_safe(context: EvaluationContext, contender: Contender, settled: list[Settled]) -> bool:
    """Judge the contender's safety, which the search skipped.

    A contender that cannot be judged, through a fault of ours, drops out.
    """
    result, _ = _kept(lambda: safety_of(context, contender))
    if result is not None:
        settled.append((contender.number, result))
    return result is not None and not isinstance(result, Failed)


def _confirmed(
    context: EvaluationContext, baseline: Contender, contenders: list[Contender], settle: Settle
) -> tuple[tuple[Confirmation, ...], Contender]:
    """The confirmations, and the winner.

    The fastest of the search wins unless it proves wrong, or slower than the runner-up, which then
    has to be confirmed by itself.
    """
    finalists = finalists_of(baseline, contenders)
    if finalists is None:
        return (), baseline
    first, fault = _kept(lambda: confirm(context, finalists, settle=settle))
    first = first or unconfirmed(finalists.winner, fault)
    if fault or (first.comparisons and not is_beaten(first)):
        return (first,), finalists.winner
    others, winner = _confirmed(
        context,
        baseline,
        [contender for contender in contenders if contender is not finalists.winner],
        settle,
    )
    if first.confirmed and not others[-1].confirmed:
        return (*others, first), finalists.winner
    return (first, *others), winner


def _kept(work: Callable[[], T]) -> tuple[T | None, str]:
    """The result of `work`, or None and the reason for its failure."""
    try:
        return work(), ""
    except GreenfastError as error:
        return None, str(error)
    except Exception as error:  # a bug of ours must not cost a search that is complete
        return None, f"a bug of greenfast: {type(error).__name__}: {error}"
