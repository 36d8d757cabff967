"""The loop of one search: ask -> evaluate -> record -> tell, until the budget is spent.

`window` candidates are evaluated at a time. They are recorded and told in the order in which they
were asked, so a search with the same plan makes the same choices however fast each candidate is.
The baseline is the first. The others are compiled and checked beside it, and wait for its times
only when they are compared with them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Sized
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from typing import Any

from greenfast.search.dispatch.times import is_correct
from greenfast.search.gates.judges import use_judges
from greenfast.search.gates.promises import Siblings
from greenfast.search.kernels.identity import passed_checks
from greenfast.search.loop.ahead import Ahead
from greenfast.search.loop.assignment import Order
from greenfast.search.loop.check_order import CheckOrder
from greenfast.search.loop.closing import Closing, closing
from greenfast.search.loop.evaluate import (
    Evaluated,
    EvaluationContext,
    evaluate,
    no_baseline,
)
from greenfast.search.loop.evaluators import Evaluators, evaluators_for
from greenfast.search.loop.executor import LocalExecutor
from greenfast.search.loop.fault_streak import FaultStreak
from greenfast.search.loop.feedback import told_of
from greenfast.search.loop.flights import (
    DEATHS,
    Asked,
    Flight,
    Flights,
    Heard,
    died,
    known,
    may_try_again,
    proposals_that_came,
    set_once,
)
from greenfast.search.loop.garbage import rare_collections
from greenfast.search.loop.learnt import Learnt
from greenfast.search.loop.memory import Memory, NoMemory, Repeats
from greenfast.search.loop.modelling import is_large, modelling
from greenfast.search.loop.older_checks import failures_today
from greenfast.search.loop.plan import NO_BASELINE, SearchPlan
from greenfast.search.loop.proposer import Proposed, Proposer
from greenfast.search.loop.recorder import Recorder, Written
from greenfast.search.loop.sink import Control, Ended, History, RunResult, Sink
from greenfast.search.loop.spending import BUDGET_SPENT, Meter, Spent, gpu_budget_spent
from greenfast.search.loop.start import baseline_candidate, make_strategy
from greenfast.search.loop.twins import Find, Twins, always, twin_of
from greenfast.search.oracle.judged_reference import weakness_sentence
from greenfast.search.oracle.reference import use_children
from greenfast.search.render import RenderedSource
from greenfast.search.space.candidate import Candidate
from greenfast.search.space.launching import Launch, launch_of
from greenfast.search.strategies.base import Past, Proposal
from greenfast.search.verdict import (
    Trial,
    Verdict,
)

CONTROL_INTERVAL_S = 0.25


class SearchRun:
    """One search being run by this process."""

    def __init__(
        self,
        plan: SearchPlan,
        context: EvaluationContext,
        sink: Sink,
        history: History,
        on_trials: Callable[[Sequence[Trial]], None] = lambda trials: None,
        on_closing: Callable[[], None] = lambda: None,
        memory: Memory | None = None,
        on_remark: Callable[[str], None] = lambda sentence: None,
        evaluators: int | None = None,
    ) -> None:
        """`evaluators`: processes that evaluate candidates (default: `evaluators_for`)."""
        self.memory: Memory = memory or NoMemory()
        self._on_remark, self._remarks = on_remark, len(context.target.remarks)
        self._heard = self._remarks
        self.stop = threading.Event()
        usual = evaluators_for(context.target, plan.trials)
        self.evaluator_count = usual if evaluators is None else evaluators
        self.running_evaluators: Evaluators | None = None  # while the search runs
        self.plan, self.sink, self.history = plan, sink, history
        self.on_trials, self.on_closing = on_trials, on_closing
        baseline = baseline_candidate(plan, context) if plan.baseline != NO_BASELINE else None
        self.siblings = Siblings(context.kernel, history.checks_of)
        self.twins = Twins(
            context.kernel,
            context.compiled,
            context.target.device,
            history.verdict_of,
            self.memory.recall_work,
        )
        self.context = replace(
            context,
            stop=self.stop,
            baseline=baseline,
            min_gain=plan.min_gain,
            mode=plan.mode,
            weights=dict(zip(plan.workloads, plan.weights, strict=False)),
            best_time_us=lambda: self.learnt.best_time_us,
            check_order=CheckOrder(),
            siblings=self.siblings,
        )
        self.strategy = make_strategy(plan, context)
        self.proposer = Proposer(
            self.strategy,
            context.render,
            self.launch_of,
            discourages=self.memory.discourages,
            may_move=context.target.measures,
        )
        self.next_number = 0
        large = is_large(context.kernel, context.workloads)
        gpus = max(1, context.target.gpu_count)
        self.ahead = Ahead(plan.window, gpus, large, lambda: context.target.gpu_seconds)
        self.learnt = Learnt(plan, self._tell_evaluators)
        self._older: list[Trial] = []  # correct by an earlier version of the checks
        self.faults = FaultStreak()
        self._budget_ended = ""  # the reason, once no trial begins any more
        self.redo = deque(sorted(history.pending, key=lambda pending: pending.number))
        self._restore(history)

    def launch_of(self, candidate: Candidate) -> Launch:
        """What distinguishes candidates with the same text."""
        return launch_of(self.context.kernel, candidate)

    def run(self) -> RunResult:
        """Run until the budget is spent, the space is exhausted, or control says otherwise."""
        before = Spent(self.history.spent_s, self.history.gpu_spent_s)
        self._meter = Meter(before, lambda: self.context.target.gpu_seconds)
        use_children()
        use_judges()
        target = self.context.target
        target.prepare()
        flights = Flights(
            self.plan.window,
            is_measured=target.measures,
            room=self.ahead.room if target.measures else None,
        )
        recorder = Recorder(self.sink, is_apart=target.measures)
        with (
            rare_collections(),
            LocalExecutor(flights.most) as executor,
            recorder,
            self.proposer,
        ):
            try:
                if self.evaluator_count:
                    self.running_evaluators = Evaluators(
                        self.context, flights.most, self.evaluator_count
                    )
                    self._tell_evaluators()
                with modelling(
                    self.plan,
                    self.context,
                    self.strategy,
                    self.proposer.hear_modelled,
                    self._on_remark,
                    self.ahead.cores_are_scarce,
                ):
                    result = self._loop(executor, flights, recorder)
                self._rest_evaluators()
                if result.ended is Ended.COMPLETED:
                    result = self._closed(executor, result)
                return replace(self._with_remarks(result), spent=self._meter.spent())
            finally:
                # Cancelled, interrupted or broken: their results are no longer needed.
                self._end_all(flights.futures)
                self._rest_evaluators()

    def _tell_evaluators(self) -> None:
        if self.running_evaluators is not None:
            self.running_evaluators.tell(self.learnt.news)

    def _rest_evaluators(self) -> None:
        evaluators, self.running_evaluators = self.running_evaluators, None
        if evaluators is not None:
            evaluators.rest()

    def _loop(self, executor: LocalExecutor, flights: Flights, recorder: Recorder) -> RunResult:
        asked: deque[Asked] = deque()  # proposals to come, each with room for it
        beginning: Written[tuple[Asked, Proposed]] = Written()
        ending: Written[tuple[Trial, Flight]] = Written()
        exhausted = False
        while True:
            control = self.sink.control(self._meter.spent())
            if control is Control.CANCEL:
                return RunResult(Ended.CANCELLED, "cancelled")
            is_open = control is Control.RUN and not exhausted
            while is_open and self._takes_another(flights, len(asked) + len(beginning), ending):
                asked.append(self._ask())
                flights.watch(asked[-1].future)
            if is_open:
                came, exhausted = proposals_that_came(asked)
                is_open = not exhausted
                if came:
                    begun = [(each.number, proposed.proposal) for each, proposed in came]
                    flights.watch(beginning.add(recorder.begin(begun), came))
            for ready in beginning.written():
                for flight in self._begin(executor, ready):
                    flights.add(flight)
            if not (flights or beginning or ending or (is_open and asked)):
                return self._ended(control, exhausted)
            flights.wait(CONTROL_INTERVAL_S)
            for flight in flights.news():
                self._tell(flight)
            if done := flights.done():
                flights.wake()  # the next one may be done as well
                ended = [(self._judged(flight), flight) for flight in done]
                records = [(trial, flight.source) for trial, flight in ended]
                flights.watch(ending.add(recorder.record(records), ended))
            for recorded in ending.written():
                self._report(recorded)
                self._hear_remarks()
                if self.faults.failure:
                    return RunResult(Ended.FAILED, self.faults.failure)

    def _hear_remarks(self) -> None:
        """Pass the target's new remarks on."""
        remarks = self.context.target.remarks
        for remark in remarks[self._heard :]:
            self._on_remark(remark)
        self._heard = len(remarks)

    def _with_remarks(self, result: RunResult) -> RunResult:
        self._hear_remarks()
        target = self.context.target
        slow = self.learnt.slow_baseline if target.measures else ""
        sentences = (result.closing, slow, *target.remarks[self._remarks :])
        return replace(result, closing="; ".join(filter(None, sentences)))

    def _closed(self, executor: LocalExecutor, result: RunResult) -> RunResult:
        """Confirm the winner of a complete search, unless it is paused or cancelled.

        A resumed search confirms again.
        """
        context = self.context
        if context.closing_checks is not None:
            context = replace(
                context, kernel=replace(context.kernel, checks=context.closing_checks)
            )
        if not self._older and not self.learnt.is_confirmed:
            return replace(result, closing=weakness_sentence(self.learnt.weak_tests))
        self._meter.end_trials()
        self.on_closing()
        future: Future[Closing] = executor.submit(self._close, context)
        try:
            while not future.done():
                match self.sink.control(self._meter.spent()):
                    case Control.CANCEL:
                        return RunResult(
                            Ended.CANCELLED, "cancelled while its winner was confirmed"
                        )
                    case Control.PAUSE:
                        return RunResult(Ended.PAUSED, "paused before its winner was confirmed")
                wait((future,), CONTROL_INTERVAL_S)
        finally:
            self._end_all((future,))
        done = future.result()
        for number, judged in done.settled:
            self.sink.settle(number, judged)
        for confirmation in done.confirmations:
            self.sink.confirm(replace(confirmation, checks=passed_checks(context.kernel)))
        for peer in done.peers:
            self.sink.beside(peer)
        sentences = (done.sentence, weakness_sentence(self.learnt.weak_tests))
        return replace(result, closing="; ".join(filter(None, sentences)))

    def _close(self, context: EvaluationContext) -> Closing:
        """Judge what an earlier version of the checks judged, then confirm the winner."""
        failures = failures_today(context, self._older)
        contenders, served = self.learnt.without({number for number, _ in failures})
        baseline = self.learnt.measured_baseline if self.learnt.is_confirmed else None
        work = closing(context, baseline, contenders, served)
        done = work() if work is not None else Closing((), (), (), "")
        numbers = ", ".join(str(number) for number, _ in failures)
        news = f"today's checks reject what earlier ones passed: {numbers}" if failures else ""
        sentence = "; ".join(filter(None, (news, done.sentence)))
        return replace(done, settled=(*failures, *done.settled), sentence=sentence)

    def _end_all(self, futures: Sequence[Future[Any]]) -> None:
        """Interrupt until none is at work: one that was between two children starts the next."""
        for future in futures:
            future.cancel()
        while not all(future.done() for future in futures):
            self._interrupt()
            wait(futures, CONTROL_INTERVAL_S)

    def _interrupt(self) -> None:
        self.stop.set()
        if self.running_evaluators is not None:
            self.running_evaluators.end()
        self.context.toolchain.interrupt()
        self.context.target.interrupt()
        if self.context.checker is not None:
            self.context.checker.interrupt()

    def _ended(self, control: Control, exhausted: bool) -> RunResult:
        if control is Control.PAUSE:
            return RunResult(Ended.PAUSED, "paused")
        return RunResult(
            Ended.COMPLETED,
            "every valid candidate was tried"
            if exhausted
            else self.learnt.stopping.why or self._budget_ended or BUDGET_SPENT,
        )

    def _takes_another(self, flights: Flights, asked: int, ending: Sized) -> bool:
        """Whether there is room and budget, and the trial would be over in time."""
        if not flights.has_room(asked, len(ending)) or not self._budget_left():
            return False
        if self.plan.seconds is None or self.redo:
            return True
        spent_s = self._meter.spent().seconds
        return flights.in_time(asked, spent_s - self.history.spent_s, self.plan.seconds - spent_s)

    def _budget_left(self) -> bool:
        if self.redo:
            return True
        if self.learnt.stopping.why:
            return False
        self._budget_ended = self._budget_ended or self._why_spent()
        return not self._budget_ended

    def _why_spent(self) -> str:
        """The budget that is spent first; empty while there is none."""
        plan, spent = self.plan, self._meter.spent()
        if plan.trials is not None and self.next_number >= plan.trials:
            return BUDGET_SPENT
        if plan.seconds is not None and spent.seconds >= plan.seconds:
            return BUDGET_SPENT
        if plan.gpu_seconds is not None and spent.gpu_seconds >= plan.gpu_seconds:
            return gpu_budget_spent(plan.gpu_seconds)
        return ""

    def _ask(self) -> Asked:
        """Ask for the next trial: one that a dead worker left, the baseline, or the strategy's
        choice."""
        if self.redo:
            pending = self.redo.popleft()
            proposal = Proposal(pending.candidate, pending.sampler)
            if pending.attempts >= DEATHS:
                return Asked(pending.number, known(Proposed(proposal, None)), pending.attempts)
            return Asked(pending.number, self.proposer.render(proposal), pending.attempts)
        number, self.next_number = self.next_number, self.next_number + 1
        if self.learnt.is_baseline(number):
            proposal = Proposal(baseline_candidate(self.plan, self.context))
            return Asked(number, self.proposer.render(proposal))
        return Asked(number, self.proposer.ask())

    def _begin(
        self, executor: LocalExecutor, ready: Sequence[tuple[Asked, Proposed]]
    ) -> Iterator[Flight]:
        """Begin trials whose proposals are stored."""
        for asked, proposed in ready:
            if asked.attempts >= DEATHS:
                evaluated = known(Evaluated(died(asked.attempts), None, 0.0))
                yield Flight(asked.number, proposed.proposal, None, evaluated)
            else:
                yield self._submit(executor, asked.number, proposed)

    def _submit(self, executor: LocalExecutor, number: int, proposed: Proposed) -> Flight:
        proposal, rendered = proposed.proposal, proposed.rendered
        source = rendered if isinstance(rendered, RenderedSource) else None
        context = self.context
        is_baseline = self.learnt.is_baseline(number)
        recalled = self.memory.recall(proposal.candidate, source, is_baseline=is_baseline)
        if recalled is not None and not recalled.lacks_safety:
            repeats = Repeats(recalled.number, recalled.search_id)
            evaluated = known(Evaluated(recalled.verdict, source, 0.0, repeats=repeats))
            return Flight(number, proposal, source, evaluated, recalled)
        if is_baseline:
            context = replace(context, on_result=self.learnt.hear_baseline)
        timed: Future[Verdict] = Future()
        hear = set_once(timed)
        ask: Find = partial(self.twins.find, number, hear, is_baseline)
        if recalled is not None:  # its own twin, but for its safety
            ask = partial(always, twin_of(recalled))
        if self.running_evaluators is not None and not is_baseline:
            sibling = self.siblings.first(proposal.candidate)
            order = Order(number, proposal.candidate, rendered, proposed.render_s, sibling)
            future = self.running_evaluators.submit(order, hear, ask)
        else:
            future = executor.submit(
                evaluate,
                proposal.candidate,
                context,
                no_baseline if is_baseline else partial(self.learnt.timed_baseline, self.stop),
                rendered,
                hear,
                proposed.render_s,
                lambda work: ask(work).result(),
            )
        timed.add_done_callback(lambda _: self.ahead.hear_timed())
        future.add_done_callback(lambda ended: self.ahead.hear(ended, was_timed=timed.done()))
        self.twins.follow(number, future, timed)
        return Flight(number, proposal, source, future, recalled, timed)

    def _tell(self, flight: Flight) -> None:
        """Report a trial to the strategy before it is recorded."""
        assert flight.outcome is not None, "there is news of the trial"
        candidate, sampler = flight.proposal.candidate, flight.proposal.sampler
        digest = flight.source.digest if flight.source else None
        trial = Trial(flight.number, candidate, flight.outcome, digest, 0.0, sampler)
        flight.heard = Heard(told_of(trial, self.plan))
        self.proposer.tell(flight.proposal, digest, flight.heard.told)

    def _report(self, recorded: Sequence[tuple[Trial, Flight]]) -> None:
        """Report trials that are stored."""
        for trial, flight in recorded:
            told = told_of(trial, self.plan)
            if flight.heard is None:
                self.proposer.tell(flight.proposal, trial.source_digest, told)
            elif flight.heard.told != told:
                self.proposer.correct(flight.proposal, trial.source_digest, told)
            self.twins.stored(trial.number)
        self.on_trials([trial for trial, _ in recorded])

    def _judged(self, flight: Flight) -> Trial:
        """The trial of a flight that has ended, of which the search has learnt."""
        done = flight.future.result()
        trial = self.siblings.held(
            Trial(
                flight.number,
                flight.proposal.candidate,
                done.verdict,
                flight.source.digest if flight.source else None,
                done.duration_s,
                flight.proposal.sampler,
                done.stage_seconds,
            )
        )
        self._note_repeats(flight, trial)
        self._learn(trial)
        return trial

    def _note_repeats(self, flight: Flight, trial: Trial) -> None:
        """Store which trial this one repeats, if any."""
        done = flight.future.result()
        repeats = done.repeats
        if repeats is None or trial.verdict is not done.verdict:  # it breaks a promise to a sibling
            return
        self.memory.used(trial.number, repeats)
        if repeats.search_id or repeats.number in self.learnt.timed_elsewhere:
            self.learnt.timed_elsewhere.add(trial.number)
        if flight.recalled is not None:
            self.twins.learn(trial)

    def _learn(self, trial: Trial) -> None:
        self.learnt.learn(trial)
        self.siblings.learn(trial)
        self.faults.learn(trial.verdict)

    def _is_asked(self, number: int, candidate: Candidate) -> bool:
        """Whether the strategy proposed a trial: not a baseline, unless it is a seed."""
        return not self.learnt.is_baseline(number) or self.strategy.is_seed(candidate)

    def _restore(self, history: History) -> None:
        past: list[Past] = []
        if history.trials:
            self.learnt.timed_elsewhere |= self.memory.timed_elsewhere()
        for trial in sorted(history.trials, key=lambda trial: trial.number):
            self._learn(trial)
            if trial.number not in history.older:
                self.twins.learn(trial)
            elif is_correct(trial.verdict):
                self._older.append(trial)
            told, is_open = told_of(trial, self.plan), may_try_again(trial.verdict)
            if trial.source_digest is not None and not is_open:
                self.proposer.remember(trial.candidate, trial.source_digest, told)
            if self._is_asked(trial.number, trial.candidate):
                past.append(Past(trial.candidate, trial.sampler, told, is_open))
            elif told is not None:
                self.strategy.tell(Proposal(trial.candidate, trial.sampler), told)
        self.faults = FaultStreak()
        self.learnt.stopping.go_on()
        self.strategy.restore(
            [
                *past,
                *(
                    Past(pending.candidate, pending.sampler, None)
                    for pending in history.pending
                    if self._is_asked(pending.number, pending.candidate)
                ),
            ]
        )
        numbers = [trial.number for trial in history.trials]
        numbers += [pending.number for pending in history.pending]
        self.next_number = max(numbers, default=-1) + 1
