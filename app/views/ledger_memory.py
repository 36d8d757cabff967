"""The database's knowledge about a search's scope, so that nothing is evaluated twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from greenfast.app.views.base_schemas import Output
from greenfast.app.views.ledger_scope import kindred_plans
from greenfast.db import convert
from greenfast.db.ledger import KindredSearch, KnownTrial, NoteKind
from greenfast.search.loop.memory import (
    NEVER_REPEATED,
    Recalled,
    Repeats,
    may_repeat,
    needs_same_baseline,
)
from greenfast.search.loop.near_negatives import NearNegatives
from greenfast.search.loop.plan import SearchPlan
from greenfast.search.loop.twins import may_be_repeated
from greenfast.search.loop.work import Work
from greenfast.search.render import RenderedSource
from greenfast.search.space.candidate import Candidate
from greenfast.search.space.launching import Launch
from greenfast.search.verdict import Stage, VerdictName

if TYPE_CHECKING:
    from greenfast.db.store import Store

# Entries of an environment on which no verdict depends.
WITHOUT_EFFECT = ("python", "machine", "target")
SAME_IN_PLANS = (
    "kernel_digest",
    "workloads",
    "shapes",
    "compiled",
    "weights",
    "mode",
    "limits",
)


@dataclass(frozen=True)
class Reuse:
    """The trial whose verdict another one repeats."""

    search_id: str
    number: int


class ReusedOut(Output):
    """A trial that repeats another one."""

    number: int
    search_id: str = Field(description="of the repeated trial")
    trial: int = Field(description="the repeated trial")


@dataclass(frozen=True)
class _Known:
    trial: KnownTrial
    same_baseline: bool


class StoreMemory:
    """Verdicts of the searches that ran under the same conditions with the same files.

    Same: the kernel's frozen files and headers, target (any GPU of the model), device, driver,
    toolchain, version of greenfast, workloads, cache mode and limits. Seeds may differ.
    """

    def __init__(self, store: Store, search_id: str) -> None:
        self._store, self._id = store, search_id
        self._by_digest: dict[str, list[_Known]] = {}
        self._by_code: dict[str, list[_Known]] = {}  # where times are measured
        self._measures = False
        self._near = NearNegatives()
        self.postponed: set[str] = set()  # digests of candidates that others were tried before
        self.searches = self.trials = self.negatives = self.reused = self.twins = 0

    def open(
        self,
        launch_of: Callable[[Candidate], Launch],
        launches_of: Callable[[Candidate], str],
        *,
        measures: bool,
    ) -> None:
        """Read what is known. The search's environment is stored by now."""
        self._measures, self._launch_of, self._launches_of = measures, launch_of, launches_of
        (own, plan), *others = kindred_plans(self._store, self._id)
        if not plan.reuse or plan.target.startswith("replay:"):
            return
        same = {
            search.search_id: _same_baseline(plan, other)
            for search, other in others
            if _may_share(own, plan, search, other)
        }
        known = self._store.known_trials(list(same))
        self.searches = len({trial.search_id for trial in known})
        self.trials = len(known)
        self.negatives = sum(trial.verdict == VerdictName.REJECTED for trial in known)
        for trial in known:
            entry = _Known(trial, same[trial.search_id])
            for digest in {trial.candidate_digest, trial.source_digest} - {None}:
                self._by_digest.setdefault(str(digest), []).append(entry)
            self._learn(entry)
            if measures and trial.machine_code and entry.same_baseline and not trial.is_baseline:
                self._by_code.setdefault(trial.machine_code, []).append(entry)

    def _learn(self, known: _Known) -> None:
        """Count the trial as a neighbour of others, if its verdict holds here."""
        trial = known.trial
        negative = trial.verdict == VerdictName.REJECTED
        if trial.reason in NEVER_REPEATED:
            return
        if trial.stage == Stage.PERFORMANCE and not known.same_baseline:
            return
        candidate = convert.candidate_of(trial.candidate)
        self._near.add(candidate.template, candidate.parameters, negative=negative)

    def discourages(self, candidate: Candidate) -> bool:
        later = self._near.discourages(candidate)
        if later:
            self.postponed.add(candidate.digest)
        return later

    @property
    def opening(self) -> str:
        """A sentence about what is known, for the start of the search; empty for nothing."""
        if not self.trials:
            return ""
        searches = "1 search" if self.searches == 1 else f"{self.searches} searches"
        return (
            f"the ledger knows {self.trials} trials of {searches} of this scope, "
            f"{self.negatives} of them negative; a candidate that it knows is not evaluated "
            "again, and one next to negatives only comes later"
        )

    @property
    def closing(self) -> str:
        """A sentence about what that saved, for the end of the search; empty for nothing."""
        parts = []
        if self.reused:
            trials = "1 trial was" if self.reused == 1 else f"{self.reused} trials were"
            parts.append(f"{trials} known from earlier searches and not evaluated again")
        if self.twins:
            trials = "1 trial has" if self.twins == 1 else f"{self.twins} trials have"
            parts.append(
                f"{trials} the machine code of an earlier one of this search and did not run"
            )
        if self.postponed:
            count = len(self.postponed)
            candidates = "1 candidate" if count == 1 else f"{count} candidates"
            parts.append(f"{candidates} next to known negatives came after others")
        return "; ".join(parts)

    def recall(
        self, candidate: Candidate, source: RenderedSource | None, *, is_baseline: bool
    ) -> Recalled | None:
        digests = [candidate.digest, *([source.digest] if source is not None else [])]
        entries = [entry for digest in digests for entry in self._by_digest.get(digest, ())]
        for entry in entries:
            if entry.trial.reason in NEVER_REPEATED:
                continue
            recorded = self._store.recorded(entry.trial.search_id, entry.trial.number)
            if recorded is None or not may_repeat(
                recorded.verdict, measures=self._measures, is_baseline=is_baseline
            ):
                continue
            compared = needs_same_baseline(recorded.verdict)
            if compared and not (entry.same_baseline and entry.trial.is_baseline == is_baseline):
                continue
            source_digest = source.digest if source is not None else None
            if recorded.source_digest != source_digest:
                continue  # the headers or the renderer differ, whatever the parameters
            if self._launch_of(recorded.candidate) != self._launch_of(candidate):
                continue  # a kernel that reads blockDim has one text for all of its blocks
            return Recalled(entry.trial.search_id, entry.trial.number, recorded.verdict)
        return None

    def recall_work(self, work: Work) -> Recalled | None:
        """Of a search that measures, against the same baseline. That trial was no baseline."""
        for entry in self._by_code.get(work.machine_code, ()):
            trial = entry.trial
            if self._launches_of(convert.candidate_of(trial.candidate)) != work.launches:
                continue
            recorded = self._store.recorded(trial.search_id, trial.number)
            if recorded is None or not may_be_repeated(recorded.verdict):
                continue
            if may_repeat(recorded.verdict, measures=True):
                return Recalled(trial.search_id, trial.number, recorded.verdict)
        return None

    def used(self, number: int, repeats: Repeats) -> None:
        reuse = Reuse(repeats.search_id or self._id, repeats.number)
        self._store.note(self._id, number, NoteKind.REUSE, convert.value_json("reuse", reuse))
        if repeats.search_id:
            self.reused += 1
        else:
            self.twins += 1

    def timed_elsewhere(self) -> set[int]:
        reused = reused_trials(self._store, self._id)
        others = {number for number, reuse in reused.items() if reuse.search_id != self._id}
        return others | {number for number, reuse in reused.items() if reuse.number in others}


def _may_share(
    own: KindredSearch, plan: SearchPlan, other: KindredSearch, other_plan: SearchPlan
) -> bool:
    return (
        own.manifest_digest is not None
        and own.manifest_digest == other.manifest_digest
        and all(getattr(plan, name) == getattr(other_plan, name) for name in SAME_IN_PLANS)
        and _same_kind(plan.target, other_plan.target)
        and bool(own.environment)
        and _effective(own.environment) == _effective(other.environment)
    )


def _same_kind(target: str, other: str) -> bool:
    """Whether the targets are equal, or both GPUs, which their environments tell apart."""
    return target == other or all(name.startswith("cuda:") for name in (target, other))


def _effective(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in WITHOUT_EFFECT}


def _same_baseline(plan: SearchPlan, other: SearchPlan) -> bool:
    return (plan.baseline, plan.champion, plan.min_gain) == (
        other.baseline,
        other.champion,
        other.min_gain,
    )


def reused_trials(store: Store, search_id: str) -> dict[int, Reuse]:
    """The trials of a search that repeat an earlier verdict, by number."""
    return {
        note.number: convert.value_of("reuse", Reuse, note.note)
        for note in store.notes(search_id, NoteKind.REUSE)
    }


def origin_of(store: Store, reuse: Reuse, seen: Iterable[Reuse] = ()) -> Reuse:
    """The trial that was evaluated, where the repeated one repeats another."""
    notes = store.notes(reuse.search_id, NoteKind.REUSE, reuse.number)
    if not notes or reuse in seen:
        return reuse
    return origin_of(store, convert.value_of("reuse", Reuse, notes[0].note), (*seen, reuse))
