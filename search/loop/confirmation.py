"""Confirmation: the winner against the baseline and the runner-up, in fresh processes.

Each process draws a new secret seed, checks the programs on new inputs, then times them in turns
over all blocks. The process is the unit of judgement (greenfast.search.timing.across_processes).
The best of many candidates looks faster in its own search than it is, so published times come from
here.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from greenfast.search.acceptance import accept_processes, time_us_of
from greenfast.search.errors import Fault
from greenfast.search.gates import Subject
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.performance import left_wrong, timed_problems
from greenfast.search.gates.safety import SafetyGate
from greenfast.search.loop.comparison import Comparison, Confirmation, ProcessTimes
from greenfast.search.loop.evaluate import EvaluationContext, prepare
from greenfast.search.loop.other_gpus import as_beside
from greenfast.search.oracle.cases import LARGEST_SEED
from greenfast.search.space.candidate import Candidate
from greenfast.search.targets.base import Failure, Rival, runner
from greenfast.search.timing import Decision, Interval
from greenfast.search.verdict import (
    Accepted,
    Failed,
    GateResult,
    Green,
    Passed,
    Rejected,
    Skipped,
    Stage,
    TimeKind,
    Timing,
    Trial,
    gate_result,
    performance_of,
)

PROCESSES = 3
BASELINE, RUNNER_UP = "baseline", "runner-up"


@dataclass(frozen=True)
class Contender:
    """A correct candidate with a measured time."""

    number: int
    candidate: Candidate
    time_us: float  # geometric mean over the workloads
    spared: bool = False  # safety was skipped, because a faster candidate was already accepted
    source_digest: str | None = None  # of the text that was measured


@dataclass(frozen=True)
class Finalists:
    """The candidates that are timed again at a search's end."""

    baseline: Contender
    winner: Contender
    runner_up: Contender | None

    def by_role(self) -> dict[str, Contender]:
        """The opponents of the winner."""
        return {BASELINE: self.baseline} | ({RUNNER_UP: self.runner_up} if self.runner_up else {})


Settle = Callable[
    [int, GateResult], None
]  # called with a trial's number and the later result of a gate


class _Wrong(Exception):
    """The winner or its opponent failed on new inputs."""


def contender_of(
    trial: Trial,
    is_baseline: bool,
    baseline: tuple[Timing, ...] | None = None,
    *,
    of_another_search: bool = False,
) -> Contender | None:
    """The trial as a contender; None unless it is correct, measured and faster than the baseline.

    The baseline itself need not be faster. The contender's time is that on the baseline's GPU.
    `of_another_search`: its times come from there.
    """
    if not isinstance(trial.verdict, (Accepted, Green)):
        return None
    evidence, result = performance_of(trial.verdict), gate_result(trial.verdict, "performance")
    if evidence is None or not evidence.timings:
        return None
    if any(timing.time_kind is not TimeKind.MEASURED for timing in evidence.timings):
        return None
    if not is_baseline and not isinstance(result, Passed):
        return None
    safety = gate_result(trial.verdict, Stage.SAFETY)
    return Contender(
        trial.number,
        trial.candidate,
        time_us_of(as_beside(baseline, evidence.timings, of_another_search=of_another_search)),
        isinstance(safety, Skipped),
        trial.source_digest,
    )


def fastest(contenders: Iterable[Contender], count: int) -> list[Contender]:
    """The fastest contenders by their times in the search; the earlier wins a tie."""
    return sorted(contenders, key=lambda contender: (contender.time_us, contender.number))[:count]


def finalists_of(baseline: Contender, contenders: Iterable[Contender]) -> Finalists | None:
    """The fastest two; None when nothing was faster than the baseline."""
    ranked = fastest(contenders, 2)
    if not ranked:
        return None
    return Finalists(baseline, ranked[0], ranked[1] if len(ranked) > 1 else None)


def safety_of(context: EvaluationContext, contender: Contender) -> GateResult:
    """Judge the safety of a contender that the search spared."""
    return SafetyGate().judge(prepared(context, contender.candidate, contender.source_digest))


def is_beaten(confirmation: Confirmation) -> bool:
    """Whether fresh processes showed the runner-up to be faster."""
    return any(
        comparison.against == RUNNER_UP and comparison.decision == Decision.SLOWER
        for comparison in confirmation.comparisons
    )


def confirm(
    context: EvaluationContext,
    finalists: Finalists,
    processes: int = PROCESSES,
    new_seed: Callable[[], int] = lambda: secrets.randbelow(LARGEST_SEED),
    settle: Settle = lambda number, result: None,
) -> Confirmation:
    """Time the winner again. Fault for our own failures.

    `settle` is called with each candidate that fails on new inputs.
    """
    times_by_role: dict[str, list[ProcessTimes]] = {role: [] for role in finalists.by_role()}
    lost = ""  # why the winner is not compared with the runner-up
    try:
        for _ in range(processes):
            for role, times in _process_or_another(
                context, finalists, tuple(times_by_role), new_seed, settle
            ).items():
                if isinstance(times, ProcessTimes):
                    times_by_role[role].append(times)
                else:
                    del times_by_role[role]
                    lost = times
    except _Wrong as wrong:
        return Confirmation(
            finalists.winner.number,
            False,
            f"trial {finalists.winner.number} is not confirmed: on new inputs {wrong}",
            (),
        )
    comparisons = tuple(
        _comparison(role, finalists.by_role()[role].number, tuple(times))
        for role, times in times_by_role.items()
    )
    confirmed = comparisons[0].decision == Decision.FASTER
    return Confirmation(
        finalists.winner.number,
        confirmed,
        _sentence(finalists, comparisons, lost, confirmed, processes),
        comparisons,
    )


def compared(processes: tuple[ProcessTimes, ...]) -> tuple[Decision, Interval]:
    """The decision from the stored samples of several processes, which anyone can recompute."""
    return accept_processes(process.timings for process in processes)


def prepared(
    context: EvaluationContext, candidate: Candidate, source_digest: str | None = None
) -> Subject:
    """A candidate that passed before, compiled again and ready to be checked and timed.

    Fault if its template now gives another text than that of `source_digest`: what is judged
    here would be another kernel than the recorded one.
    """
    subject = prepare(candidate, context)
    if isinstance(subject, Rejected):
        raise Fault(
            f"a {candidate.template} candidate that was correct before can no longer be compiled",
            code="contender_lost",
        )
    if source_digest is not None and subject.source.digest != source_digest:
        raise Fault(
            f"template {candidate.template} gives another text than in the search for the same "
            "values",
            code="contender_lost",
        )
    return subject


def _process_or_another(
    context: EvaluationContext,
    finalists: Finalists,
    roles: tuple[str, ...],
    new_seed: Callable[[], int],
    settle: Settle,
) -> dict[str, ProcessTimes | str]:
    """Run a process; repeat it once when it ended in a fault of ours."""
    try:
        return _process(context, finalists, roles, new_seed(), settle)
    except Fault:
        if context.stop.is_set():
            raise
    return _process(context, finalists, roles, new_seed(), settle)


def _process(
    context: EvaluationContext,
    finalists: Finalists,
    roles: tuple[str, ...],
    seed: int,
    settle: Settle,
) -> dict[str, ProcessTimes | str]:
    """One fresh process: times by role, or why the runner-up has none.

    The order is random, so that memory is laid out differently in each process.
    """
    lane = runner(context.target).lane()
    lane.fresh()
    seeded = replace(context, target=lane, seed=seed, siblings=None)
    order = random.Random(seed)
    winner = prepared(seeded, finalists.winner.candidate, finalists.winner.source_digest)
    opponents = {role: finalists.by_role()[role] for role in roles}
    others = {
        role: prepared(seeded, each.candidate, each.source_digest)
        for role, each in opponents.items()
    }
    times_by_role: dict[str, ProcessTimes | str] = {}
    for role, subject in _shuffled(order, [("", winner), *others.items()]):
        _not_cancelled(context)
        result = CorrectnessGate().judge(subject)
        if isinstance(result, Failed) and role != BASELINE:
            settle((finalists.by_role()[role] if role else finalists.winner).number, result)
        if isinstance(result, Failed) and role != RUNNER_UP:
            raise _Wrong(f"{role and 'the baseline fails: '}{result.sentence}")
        if isinstance(result, Failed):
            times_by_role[role] = result.sentence
    for role, other in _shuffled(
        order, [item for item in others.items() if item[0] not in times_by_role]
    ):
        _not_cancelled(context)
        times = timed_in_turns(winner, other)
        if isinstance(times, Failure):
            raise _Wrong(times.sentence)
        times_by_role[role] = ProcessTimes(seed, times)
    return times_by_role


def timed_in_turns(winner: Subject, other: Subject) -> tuple[Timing, ...] | Failure:
    """Time all blocks of each workload, and check the outputs of the winner's timed launches."""
    rival = Rival(other.program, timed_problems(other), to_the_end=True)
    timings = winner.target.measure(
        winner.program,
        winner.machine_code,
        timed_problems(winner),
        rival,
        lambda execution: left_wrong(winner, execution),
    )
    return timings if isinstance(timings, Failure) else winner.conditions.weighted(timings)


def _comparison(role: str, number: int, processes: tuple[ProcessTimes, ...]) -> Comparison:
    decision, interval = compared(processes)
    low, ratio, high = interval.ratios
    return Comparison(role, number, decision.value, ratio, low, high, processes)


def _sentence(
    finalists: Finalists,
    comparisons: tuple[Comparison, ...],
    lost: str,
    confirmed: bool,
    processes: int,
) -> str:
    against = {comparison.against: comparison for comparison in comparisons}
    outcome = "confirmed" if confirmed else "not confirmed"
    first = (
        f"trial {finalists.winner.number} is {outcome} in {processes} fresh processes "
        "on new inputs: "
        f"{_ratio(against[BASELINE])} of the baseline's time"
    )
    if finalists.runner_up is None:
        return first
    name = f"trial {finalists.runner_up.number}, the runner-up"
    if lost:
        return f"{first}; {name}, fails on new inputs: {lost}"
    comparison = against[RUNNER_UP]
    words = {
        Decision.FASTER: "it is faster than",
        Decision.SLOWER: "it is slower than",
        Decision.TOO_NOISY: "it was too noisy to judge against",
    }
    result = words.get(Decision(comparison.decision), "it ties with")
    return f"{first}; {result} {name}: {_ratio(comparison)} of its time"


def _ratio(comparison: Comparison) -> str:
    low, high = comparison.ratio_low, comparison.ratio_high
    return f"{comparison.ratio:.4f} [{low:.4f}, {high:.4f}]"


def _shuffled(
    order: random.Random, all_of_them: list[tuple[str, Subject]]
) -> list[tuple[str, Subject]]:
    return order.sample(all_of_them, len(all_of_them))


def _not_cancelled(context: EvaluationContext) -> None:
    if context.stop.is_set():
        raise Fault("the confirmation was stopped", code="interrupted")


def unconfirmed(winner: Contender, fault: str) -> Confirmation:
    """The result after a fault of ours: the winner stays the winner and is not confirmed."""
    return Confirmation(
        winner.number,
        False,
        f"trial {winner.number} is not confirmed, through no fault of its own: {fault}",
        (),
    )
