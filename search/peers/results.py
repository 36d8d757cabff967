"""From the rounds of several processes to one Peer per workload, as pure functions."""

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
Samples = tuple[float, ...]  # microseconds


@dataclass(frozen=True)
class Round:
    """One peer on one workload in one process."""

    peer: str
    version: str
    workload: str
    outcome: str  # as Peer.outcome
    why: str
    seed: int
    mode: str = ""  # cache state: hot or cold
    times: tuple[Samples, Samples] | None = None  # the winner's and the peer's; None: not timed
    detail: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class _TimedRound:
    """A round that has times."""

    round: Round
    samples: Samples
    peer_samples: Samples


def peers_of(winner: str, rounds: Sequence[Round]) -> tuple[Peer, ...]:
    """One Peer for each (workload, peer), in order of first appearance.

    A peer is `timed` only when every process timed it.
    """
    keys = dict.fromkeys((round_.workload, round_.peer) for round_ in rounds)
    return tuple(
        _peer(winner, [round_ for round_ in rounds if (round_.workload, round_.peer) == key])
        for key in keys
    )


def _peer(winner: str, rounds: Sequence[Round]) -> Peer:
    untimed = next((round_ for round_ in rounds if round_.outcome != "timed"), None)
    versions = [round_.version for round_ in (untimed or rounds[0], *rounds) if round_.version]
    version = versions[0] if versions else ""
    if untimed is not None:
        sentence = f"{untimed.peer}: {untimed.why}"
        return Peer(
            untimed.peer,
            version,
            untimed.workload,
            untimed.outcome,
            sentence,
            why=untimed.why,
        )
    timed = [_TimedRound(round_, *round_.times) for round_ in rounds if round_.times is not None]
    comparison = _comparison(timed)
    peer_us = median([median(process.peer_samples) for process in timed])
    winner_us = median([median(process.samples) for process in timed])
    name, mode = rounds[0].peer, rounds[0].mode
    sentence = (
        f"measured {mode}: {winner} takes {comparison.ratio:.3f} "
        f"[{comparison.ratio_low:.3f}, {comparison.ratio_high:.3f}] of {name}'s time, "
        f"{winner_us:.2f} us against {peer_us:.2f} us, in {len(rounds)} fresh "
        f"process{'es' if len(rounds) > 1 else ''}: {WORDS[Decision(comparison.decision)]}"
    )
    return Peer(name, version, rounds[0].workload, "timed", sentence, peer_us, comparison)


def _comparison(rounds: Sequence[_TimedRound]) -> Comparison:
    decision, whole = across_processes(
        [median_interval(block_log_ratios(timed.samples, timed.peer_samples)) for timed in rounds]
    )
    low, ratio, high = whole.ratios
    return Comparison(
        rounds[0].round.peer,
        None,
        decision.value,
        ratio,
        low,
        high,
        tuple(ProcessTimes(timed.round.seed, (_timing(timed),)) for timed in rounds),
    )


def _timing(timed: _TimedRound) -> Timing:
    """The winner's time, with the peer's samples in place of the baseline's."""
    round_ = timed.round
    return Timing(
        round_.workload,
        median(timed.samples),
        TimeKind.MEASURED,
        "",
        round_.detail,
        f"{round_.mode}, in turns with {round_.peer}",
        samples=timed.samples,
        baseline_samples=timed.peer_samples,
    )
