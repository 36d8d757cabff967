"""The loop of `greenfast evolve`: population, parents, budget and memory.

The store is the memory. The submissions of a run have its name, so an interrupted
run continues with them. The choice of parents follows from the seed and the number of the proposal.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from greenfast.app.cli.evolve_proposer import NotProposed, Proposed
from greenfast.app.views.submitting import JudgeRequest, submission_report, submission_texts
from greenfast.app.views.writers import best_source, device_brief, kernel_brief, negatives_brief
from greenfast.app.wiring import Services
from greenfast.db.ledger import NoteKind
from greenfast.search.errors import Fault, SpecError, UsageError
from greenfast.search.loop.plan import NO_BASELINE
from greenfast.search.loop.submitted import Submission
from greenfast.search.status import SearchStatus
from greenfast.search.verdict import CORRECT

JSON = dict[str, Any]
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,47}\Z", re.ASCII)
TOURNAMENT = 3
PARENTS = 2  # of a prompt: the tournament's winner first
RECENT = 3  # of a prompt: the latest attempts, also wrong ones
FAILURES_IN_A_ROW = 10  # proposals without a trial, after which the run ends
MODELLED = "On an emulator times are modelled: those within the band cannot be distinguished."


@dataclass(frozen=True)
class Order:
    """The request for a run."""

    kernel: str
    run: str
    trials: int
    workload: str
    target: str
    seed: int

    def __post_init__(self) -> None:
        if not RUN_NAME.match(self.run):
            raise UsageError(
                "the name of a run is 1 to 48 letters, digits, '_', '.' and '-'", code="bad_name"
            )


@dataclass(frozen=True)
class Individual:
    """A judged source of the run."""

    source: str
    launch: str
    report: JSON

    @property
    def is_correct(self) -> bool:
        return self.report["verdict"] in CORRECT

    @property
    def time_us(self) -> float:
        time_us: float | None = self.report["time_median_us"]
        return float("inf") if time_us is None else time_us

    def shown(self) -> JSON:
        names = ("verdict", "stage", "reason", "sentence", "time_median_us", "time_kind")
        return {
            "source": self.source,
            "launch": self.launch,
            "digest": self.report.get("source_digest"),
            **{name: self.report.get(name) for name in names},
            "ratio_to_baseline": self.report.get("ratio_to_baseline"),
            "hypothesis": self.report["hypothesis"],
            "feedback": self.report["feedback"],
        }


@dataclass(frozen=True)
class Event:
    """The outcome of a proposal: a judged trial, or the reason why there is none."""

    number: int  # of the trial, from 1; for a failure, of the next trial
    individual: Individual | None
    failure: str = ""


Judge = Callable[[JudgeRequest, str], JSON | None]


@dataclass
class Evolution:
    """One run. `judge` judges a request in this process; None: it was stopped."""

    services: Services
    order: Order
    propose: Callable[[JSON], Proposed | NotProposed]
    judge: Judge
    is_stopped: Callable[[], bool]
    individuals: list[Individual] = field(default_factory=list)

    def run(self) -> Iterator[Event]:
        """Judge until the budget is spent; yields each event as it happens."""
        self.individuals += self.stored()
        if not self.individuals and self.order.trials > 0:
            yield from self._begin()
        failures, attempt = 0, 0
        while len(self.individuals) < self.order.trials and not self.is_stopped():
            attempt += 1
            event = self._next(attempt)
            if event is None:
                return
            failures = failures + 1 if event.individual is None else 0
            yield event
            if failures >= FAILURES_IN_A_ROW:
                raise UsageError(
                    f"{failures} proposals in a row gave no trial; the last one: {event.failure}",
                    code="no_proposals",
                    mend=f"correct the proposer; --run {self.order.run} continues the run",
                )

    def stored(self) -> Iterator[Individual]:
        """The judged submissions of this run, oldest first."""
        store, cursor = self.services.store, None
        ids: dict[str, str] = {}
        while True:
            page = store.submissions(self.order.kernel, limit=500, cursor=cursor)
            mine = (row for row in page.items if row.name.startswith(self._prefix))
            ids |= {row.id: row.created_at for row in mine}
            cursor = page.next_cursor
            if cursor is None:
                break
        # What was judged before this run has the name of another one, or none.
        for note in store.noted(self.order.kernel, NoteKind.RUN, self.order.run):
            ids.setdefault(note.search_id, note.recorded_at)
        for row in map(store.search, sorted(ids, key=lambda search_id: ids[search_id])):
            same = (row.target, row.workloads) == (self.order.target, (self.order.workload,))
            if row.status == SearchStatus.COMPLETED and same:
                report = submission_report(self.services, row.id)
                if report["verdict"] not in (None, "faulted"):
                    yield Individual(*submission_texts(self.services, row.id), report)

    @property
    def _prefix(self) -> str:
        return f"evolve {self.order.run}: "

    def _begin(self) -> Iterator[Event]:
        """The first trial: the best source that is known, beside the baseline."""
        best = best_source(self.services, self.order.kernel, self.order.workload, self.order.target)
        submission = Submission(
            self.order.kernel,
            best["source"],
            best["launch"],
            author="greenfast evolve",
            parent=best["digest"] or "",
        )
        event = self._judged(submission)
        if event is not None:
            yield event

    def _next(self, attempt: int) -> Event | None:
        """Ask for a proposal and judge it; None when the run was stopped."""
        parents = self._parents(attempt)
        proposed = self.propose(self.prompt(parents, attempt))
        if self.is_stopped():
            return None
        if isinstance(proposed, NotProposed):
            return self._failed(proposed.reason)
        first = parents[0]
        submission = Submission(
            self.order.kernel,
            proposed.source,
            proposed.launch or first.launch,
            proposed.entry,
            author="greenfast evolve",
            model=proposed.model,
            parent=first.report.get("source_digest") or "",
            hypothesis=proposed.hypothesis,
        )
        return self._judged(submission)

    def _judged(self, submission: Submission) -> Event | None:
        """A trial, a refusal that is the proposer's to correct, or None when stopped."""
        # Modelled times do not change from run to run, so the first trial's baseline is enough.
        modelled = self.order.target.startswith("emulator:") and bool(self.individuals)
        request = JudgeRequest(
            submission,
            (self.order.workload,),
            self.order.target,
            NO_BASELINE if modelled else None,
        )
        try:
            report = self.judge(request, f"{self._prefix}{len(self.individuals) + 1}")
        except (UsageError, SpecError) as refusal:
            return self._failed(f"refused ({refusal.code}): {refusal}")
        if report is None:
            return None
        if report["verdict"] is None or report["verdict"] == "faulted":
            raise Fault(
                f"submission {report['id']} could not be judged: "
                f"{report['sentence'] if report['verdict'] else report['why']}",
                code="not_judged",
                mend=f"--run {self.order.run} continues the run",
            )
        if any(each.report["id"] == report["id"] for each in self.individuals):
            return self._failed("the same source as an earlier one")
        if report["repeated"]:
            self.services.store.note(
                report["id"], report["trial"], NoteKind.RUN, "{}", name=self.order.run
            )
        individual = Individual(submission.text, submission.launch_text, report)
        self.individuals.append(individual)
        return Event(len(self.individuals), individual)

    def _failed(self, reason: str) -> Event:
        return Event(len(self.individuals) + 1, None, reason)

    def _parents(self, attempt: int) -> list[Individual]:
        """Winners of tournaments among the correct ones by time; without any, the latest ones."""
        rng = random.Random(f"{self.order.seed}/{len(self.individuals)}/{attempt}")
        correct = [each for each in self.individuals if each.is_correct]
        if not correct:
            return self.individuals[-PARENTS:][::-1]
        parents: list[Individual] = []
        for _ in range(min(PARENTS, len(correct))):
            rivals = [each for each in correct if each not in parents]
            drawn = rng.sample(rivals, min(TOURNAMENT, len(rivals)))
            parents.append(min(drawn, key=lambda each: each.time_us))
        return parents

    def prompt(self, parents: list[Individual], attempt: int) -> JSON:
        """The input of a proposer."""
        services, order = self.services, self.order
        return {
            "format": 1,
            "kernel": kernel_brief(services, order.kernel),
            "workload": order.workload,
            "target": order.target,
            "device": device_brief(order.target),
            "times": MODELLED if order.target.startswith("emulator:") else "Times are measured.",
            "parents": [parent.shown() for parent in parents],
            "recent": [each.shown() for each in self.individuals[-RECENT:]],
            "negatives": negatives_brief(services, order.kernel),
            "trial": len(self.individuals) + 1,
            "trials": order.trials,
            "attempt": attempt,
            "seed": order.seed,
        }
