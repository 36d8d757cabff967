"""Candidates of a search with the same machine code: the first one runs, the others repeat it.

Twins have different texts of which the compiler makes the same program, and they are launched
alike. Their outputs and times are those of the first, so no GPU runs the others. Each text is still
judged for safety, unless the first one passed: no twin is faster, so none needs the check then.

Only targets that measure have twins. The emulator does not run this machine code: it compiles each
text by itself, and its counts and findings belong to the text.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from greenfast.search.devices.facts import Device
from greenfast.search.gates.promises import is_broken_promise
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.workloads import Items
from greenfast.search.loop.memory import NEVER_REPEATED, Recalled, Repeats
from greenfast.search.loop.work import Work, launches_of
from greenfast.search.space.candidate import Candidate
from greenfast.search.space.space import resolve
from greenfast.search.verdict import (
    Faulted,
    GateResult,
    PtxasEvidence,
    Rejected,
    Stage,
    Trial,
    Verdict,
    evidence_of,
    gate_result,
)

Hear = Callable[[Verdict], None]
VerdictOf = Callable[[int], "Verdict | None"]
RecallWork = Callable[[Work], "Recalled | None"]


@dataclass(frozen=True)
class Twin:
    """The trial that ran some work first."""

    number: int
    verdict: Verdict
    search_id: str = ""  # another search; empty: this one

    def result(self, stage: str) -> GateResult | None:
        return gate_result(self.verdict, stage)

    def repeated_by(self, verdict: Verdict) -> Repeats | None:
        """The trial's name if a verdict rests on its outputs."""
        result = self.result(Stage.CORRECTNESS)
        if isinstance(verdict, Faulted) or not any(gate is result for gate in verdict.gates):
            return None
        return Repeats(self.number, self.search_id)


# Asks for the trial that a candidate repeats.
Find = Callable[[Work], "Future[Twin | None]"]
# The trial that a candidate repeats, which may have to be waited for; None: it has to run.
FindTwin = Callable[[Work], "Twin | None"]


def no_twin(work: Work) -> Twin | None:
    """Every candidate runs."""
    return None


def twin_of(recalled: Recalled) -> Twin:
    return Twin(recalled.number, recalled.verdict, recalled.search_id)


def always(twin: Twin, work: Work) -> Future[Twin | None]:
    """The answer of a candidate whose twin is known."""
    future: Future[Twin | None] = Future()
    future.set_result(twin)
    return future


def may_be_repeated(verdict: Verdict) -> bool:
    """Whether what the trial's runs have shown holds for the same machine code.

    It does not where the machine may be the reason, or a promise about the candidate's parameters.
    """
    if isinstance(verdict, Faulted) or gate_result(verdict, Stage.CORRECTNESS) is None:
        return False
    if not isinstance(verdict, Rejected) or verdict.stage is Stage.SAFETY:
        return True
    if verdict.stage not in (Stage.CORRECTNESS, Stage.PERFORMANCE):
        return False
    return verdict.reason not in NEVER_REPEATED and not is_broken_promise(verdict)


@dataclass(frozen=True)
class _Waiting:
    """A trial that waits for the end of its twin."""

    number: int
    hear: Hear
    future: Future[Twin | None]


@dataclass(eq=False)
class _Run:
    """The first trial with some work, and those that wait for it."""

    number: int
    is_baseline: bool = False  # its times are compared with nothing
    has_ended: bool = False
    verdict: Verdict | None = None  # of an ended one that is not stored
    timed: Verdict | None = None  # before its safety check
    waiting: list[_Waiting] = field(default_factory=list)


class Twins:
    """The work of a search's trials. Safe for several threads."""

    def __init__(
        self,
        kernel: KernelSpec,
        compiled: Items,
        device: Device,
        verdict_of: VerdictOf | None = None,
        recall_work: RecallWork = lambda work: None,
    ) -> None:
        """`verdict_of`: that of a stored trial, with its checks; None: nothing is stored.

        `recall_work`: what another search recorded of the same work.
        """
        self._kernel, self._compiled, self._device = kernel, compiled, device
        self._verdict_of, self._recall_work = verdict_of, recall_work
        self._lock = threading.Lock()
        self._runs: dict[Work, _Run] = {}
        self._unstored: dict[int, tuple[Work, _Run]] = {}  # in flight, or ended a moment ago
        # Not evaluated here, by machine code.
        self._unread: dict[str, list[tuple[Candidate, _Run]]] = {}

    def launches_of(self, candidate: Candidate) -> str:
        """The part of a candidate's work beside its machine code."""
        template = self._kernel.template(candidate.template)
        point = resolve(template, candidate.parameters, self._compiled, self._device)
        return launches_of(template, point)

    def find(self, number: int, hear: Hear, is_baseline: bool, work: Work) -> Future[Twin | None]:
        """The twin of trial `number`, here or in another search. None: the trial has to run.

        `hear` gets the twin's verdict before its safety check. The baseline always runs.
        """
        future: Future[Twin | None] = Future()
        timed, run = None, self._claimed(number, is_baseline, work)
        while run is not None:
            with self._lock:
                if not run.has_ended:
                    run.waiting.append(_Waiting(number, hear, future))
                    timed = None if run.is_baseline else run.timed
                    break
            verdict = self._ended_verdict(run)
            if verdict is not None and may_be_repeated(verdict):
                future.set_result(Twin(run.number, verdict))
                return future
            run = self._claimed(number, is_baseline, work, instead_of=run)
        if run is None:
            recalled = None if is_baseline else self._recall_work(work)
            future.set_result(twin_of(recalled) if recalled is not None else None)
        elif timed is not None:
            hear(timed)
        return future

    def _claimed(
        self, number: int, is_baseline: bool, work: Work, instead_of: _Run | None = None
    ) -> _Run | None:
        """Another trial that has or does the work; None if it is this one's from now on."""
        with self._lock:
            self._read(work.machine_code)
            run = self._runs.get(work)
            if run is not None and run.number == number:
                return None  # it is evaluated once more, after a fault
            if run is not None and run is not instead_of and not is_baseline:
                return run
            self._runs[work] = run = _Run(number, is_baseline)
            self._unstored[number] = work, run
            return None

    def follow(self, number: int, future: Future[Any], timed: Future[Verdict]) -> None:
        """Learn the outcome of a trial that is evaluated. The result has a `verdict`."""
        timed.add_done_callback(lambda done: self._hear(number, done.result()))
        future.add_done_callback(lambda done: self._end(number, done))

    def learn(self, trial: Trial) -> None:
        """Note a trial that was evaluated before: by an earlier process, or in another search."""
        evidence = evidence_of(trial.verdict.gates, PtxasEvidence)
        if evidence is None or not evidence.machine_code:
            return
        # The checks of a verdict take 90 KB, so those that are stored are not kept here.
        kept = trial.verdict if self._verdict_of is None else None
        run = _Run(trial.number, has_ended=True, verdict=kept)
        with self._lock:
            self._unread.setdefault(evidence.machine_code, []).append((trial.candidate, run))

    def stored(self, number: int) -> None:
        """From now on `verdict_of` knows the trial."""
        with self._lock:
            if self._verdict_of is not None and number in self._unstored:
                _, run = self._unstored.pop(number)
                run.verdict = run.timed = None

    def _read(self, machine_code: str) -> None:
        """Find out what else the runs of earlier trials depended on. Called under the lock."""
        for candidate, run in self._unread.pop(machine_code, ()):
            self._runs.setdefault(Work(machine_code, self.launches_of(candidate)), run)

    def _ended_verdict(self, run: _Run) -> Verdict | None:
        # In this order: another thread may store it in between, and then drops `run.verdict`.
        verdict = run.verdict
        if verdict is None and self._verdict_of is not None:
            verdict = self._verdict_of(run.number)
        return verdict

    def _hear(self, number: int, verdict: Verdict) -> None:
        with self._lock:
            _, run = self._unstored.get(number, (None, None))
            if run is None or run.is_baseline:
                return
            run.timed, waiting = verdict, tuple(run.waiting)
        for each in waiting:
            each.hear(verdict)

    def _end(self, number: int, done: Future[Any]) -> None:
        """Let those go on that wait for the trial."""
        failed = done.cancelled() or done.exception() is not None
        verdict = None if failed else done.result().verdict
        with self._lock:
            work, run = self._unstored.get(number, (None, None))
            if work is None or run is None:
                return
            run.has_ended, run.verdict = True, verdict
            waiting, run.waiting = run.waiting, []
            if verdict is None or not may_be_repeated(verdict):
                answers = self._next(work, run, waiting)
            else:
                answers = [(each.future, Twin(number, verdict)) for each in waiting]
        for future, twin in answers:
            future.set_result(twin)

    def _next(
        self, work: Work, run: _Run, waiting: list[_Waiting]
    ) -> list[tuple[Future[Twin | None], Twin | None]]:
        """Let the first of those that wait run, and the others wait for it."""
        if not waiting:
            return []
        first = waiting[0].number
        following = _Run(first)
        following.waiting = [each for each in waiting if each.number != first]
        if self._runs.get(work) is run:
            self._runs[work] = following
        self._unstored[first] = work, following
        return [(each.future, None) for each in waiting if each.number == first]
