"""From what each process said of a peer to one Peer a workload, as pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from greenfast.search.loop.comparison import Comparison, Peer, ProcessTimes
from greenfast.search.timing import (
    Decision,
    across_processes,
    block_log_ratios,
    median,
    median_interval,
)
from greenfast.search.verdict import TimeKind, Timing

WORDS = {
    Decision.FASTER: "faster",
    Decision.SLOWER: "slower",
    Decision.SAME: "as fast",
    Decision.AMBIGUOUS: "neither faster nor slower for certain",
    Decision.TOO_NOISY: "too noisy to judge",
}


@dataclass(frozen=True)
class Round:
    """One peer on one workload in one process. `times`: the winner's samples and the peer's, us."""

    peer: str
    version: str
    workload: str
    outcome: str  # as Peer.outcome
    why: str
    seed: int
    mode: str = ""  # how the caches were found: hot or cold
    times: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    detail: tuple[tuple[str, float], ...] = ()


def peers_of(winner: str, rounds: Sequence[Round]) -> tuple[Peer, ...]:
    """One Peer for each (workload, peer), in the order in which they came; a peer counts when every process timed it."""
    keys = dict.fromkeys((one.workload, one.peer) for one in rounds)
    return tuple(
        _peer(winner, [one for one in rounds if (one.workload, one.peer) == key]) for key in keys
    )


def _peer(winner: str, rounds: Sequence[Round]) -> Peer:
    first = next((one for one in rounds if one.outcome != "timed"), None)
    named = first or rounds[0]
    version = named.version or next((one.version for one in rounds if one.version), "")
    if first is not None:
        return Peer(
            first.peer, version, first.workload, first.outcome, f"{first.peer}: {first.why}"
        )
    comparison = _comparison(rounds)
    theirs = median([median(one.times[1]) for one in rounds])
    ours = median([median(one.times[0]) for one in rounds])
    decision = Decision(comparison.decision)
    sentence = (
        f"measured {rounds[0].mode}: {winner} takes {comparison.ratio:.3f} [{comparison.ratio_low:.3f}, "
        f"{comparison.ratio_high:.3f}] of {named.peer}'s time, {ours:.2f} us against {theirs:.2f} us, in "
        f"{len(rounds)} fresh process{'es' if len(rounds) > 1 else ''}: {WORDS[decision]}"
    )
    return Peer(named.peer, version, named.workload, "timed", sentence, theirs, comparison)


def _comparison(rounds: Sequence[Round]) -> Comparison:
    decision, whole = across_processes(
        [median_interval(block_log_ratios(*one.times)) for one in rounds]
    )
    low, ratio, high = whole.ratios
    return Comparison(
        rounds[0].peer,
        None,
        decision.value,
        ratio,
        low,
        high,
        tuple(ProcessTimes(one.seed, (_timing(one),)) for one in rounds),
    )


def _timing(one: Round) -> Timing:
    """The winner's time, with the peer's samples where the baseline's stand elsewhere."""
    samples, others = one.times
    return Timing(
        one.workload,
        median(samples),
        TimeKind.MEASURED,
        "",
        one.detail,
        f"{one.mode}, in turns with {one.peer}",
        samples=samples,
        baseline_samples=others,
    )
