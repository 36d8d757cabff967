"""Coordination: one worker at a time holds a search, and only that worker can write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import and_, func, or_, select, update
from sqlalchemy.orm import Session

from greenfast.db import convert
from greenfast.db.base import Part
from greenfast.db.dialects import insert_once, now_s
from greenfast.db.ids import SEARCH_ID
from greenfast.db.lease import claimed, hold, is_claimable, is_held, lease_lost
from greenfast.db.models import EnvironmentRecord, EvidenceRecord, SearchRecord, TrialRecord
from greenfast.db.rows import Claim, Silence
from greenfast.db.searches import insert_search
from greenfast.db.trials import environment_of
from greenfast.search.digest import digest
from greenfast.search.gates.version import is_of_today
from greenfast.search.kernels.frozen import KernelFiles
from greenfast.search.loop.plan import SearchPlan
from greenfast.search.loop.sink import Control, Ended, History, Pending
from greenfast.search.loop.spending import Spent
from greenfast.search.status import ENDED, SearchStatus
from greenfast.search.verdict import (
    CheckEvidence,
    CorrectnessEvidence,
    Stage,
    Trial,
    Verdict,
    gate_result,
)

_CONTROLS = {
    None: Control.RUN,
    "resume": Control.RUN,
    "pause": Control.PAUSE,
    "cancel": Control.CANCEL,
}


def _leased(worker: str, lease_s: float) -> dict[str, Any]:
    """The columns of a search that `worker` holds from now on."""
    return {
        "status": SearchStatus.RUNNING,
        "worker": convert.storable(worker),
        "renewed_at": now_s(),
        "lease_s": lease_s,
    }


class Claims(Part):
    """The part of the store with which workers claim, renew and release searches."""

    def claim(self, worker: str, lease_s: float, search_id: str | None = None) -> Claim | None:
        """Take the oldest search that is queued or whose lease ran out; None if there is none."""
        waiting = select(SearchRecord.key).where(
            SearchRecord.status.in_((SearchStatus.QUEUED, SearchStatus.RUNNING)), is_claimable()
        )
        if search_id is not None:
            waiting = waiting.where(
                SearchRecord.id == (search_id if SEARCH_ID.fullmatch(search_id) else "")
            )
        waiting = waiting.order_by(SearchRecord.key).limit(1)
        # Idle workers ask often, so they look without holding up any writer.
        with self._database.reading() as session:
            if session.scalar(waiting) is None:
                return None
        oldest = waiting.with_for_update(skip_locked=True).scalar_subquery()
        statement = (
            update(SearchRecord)
            .where(SearchRecord.key == oldest, is_claimable())
            .values(
                **_leased(worker, lease_s),
                fence=SearchRecord.fence + 1,
                started_at=func.coalesce(SearchRecord.started_at, now_s()),
                finished_at=None,
                why="",
                closing="",
                environment_digest=None,
            )
        )
        with self._database.writing() as session:
            row = session.execute(
                statement.returning(SearchRecord.id, SearchRecord.fence),
                execution_options={"synchronize_session": False},
            ).first()
        return Claim(row.id, worker, row.fence) if row else None

    def submit_held(
        self, plan: SearchPlan, files: KernelFiles | None, worker: str, lease_s: float
    ) -> Claim:
        """Store a search that `worker` holds from the start, so that no other takes it first."""
        with self._database.writing() as session:
            record = session.get_one(SearchRecord, insert_search(session, plan, files))
            session.execute(
                update(SearchRecord)
                .where(SearchRecord.key == record.key)
                .values(**_leased(worker, lease_s), fence=1, started_at=now_s())
            )
            return Claim(record.id, worker, 1)

    def renew(
        self, claim: Claim, lease_s: float, spent_s: float, gpu_spent_s: float = 0.0
    ) -> Control:
        """Renew the lease; returns the request to the worker. LeaseLost when it lost the search."""
        with self._database.writing() as session:
            (request,) = hold(
                session,
                claim,
                ("wanted",),
                lease_s=lease_s,
                spent_s=spent_s,
                gpu_spent_s=gpu_spent_s,
            )
            if request == "resume":
                hold(session, claim, wanted=None)
        return _CONTROLS[request]

    def renew_lease(self, claim: Claim, lease_s: float) -> None:
        """Renew the lease only: requests to pause or resume stay for the run to read."""
        with self._database.writing() as session:
            hold(session, claim, lease_s=lease_s)

    def silence(self, search_id: str) -> Silence | None:
        """How long the worker that holds the search has been silent; None when none holds it."""
        quiet_s = func.abs(now_s() - SearchRecord.renewed_at)
        query = select(SearchRecord.worker, quiet_s.label("quiet_s"), SearchRecord.lease_s).where(
            SearchRecord.id == (search_id if SEARCH_ID.fullmatch(search_id) else ""),
            SearchRecord.status == SearchStatus.RUNNING,
        )
        with self._database.reading() as session:
            row = session.execute(query).first()
        if row is None:
            return None
        return Silence(row.worker, row.quiet_s, max(0.0, row.lease_s - row.quiet_s))

    def describe(self, claim: Claim, environment: Mapping[str, str]) -> None:
        """Store the environment of this claim's trials. Lists show its `device` and `toolchain`."""
        pairs = tuple(sorted((str(name), str(value)) for name, value in environment.items()))
        name = digest(pairs)
        with self._database.writing() as session:
            hold(session, claim, environment_digest=name)
            document = convert.pairs_json("environment", pairs)
            insert_once(
                session,
                EnvironmentRecord,
                {"digest": name, "environment": document, "created_at": now_s()},
            )

    def finish(
        self,
        claim: Claim,
        ended: Ended,
        why: str,
        closing: str = "",
        spent: Spent | None = None,
    ) -> None:
        """End or pause the search. A cancel or resume that arrived during a pause is obeyed.

        `closing`: the findings of the confirmation. `spent`: more exact than the last renewal.
        """
        with self._database.writing() as session:
            status = SearchStatus(ended)
            figures = {}
            if spent is not None:
                figures = {"spent_s": spent.seconds, "gpu_spent_s": spent.gpu_seconds}
            (request,) = hold(session, claim, ("wanted",), **figures)
            if ended is Ended.PAUSED and request == "cancel":
                status = SearchStatus.CANCELLED
            if ended is Ended.PAUSED and request == "resume":
                status = SearchStatus.QUEUED
            _leave(session, claim, status, why, closing)

    def release(self, claim: Claim) -> None:
        """Give the search back after a clean stop. A pause or cancel that arrived is obeyed."""
        with self._database.writing() as session:
            (request,) = hold(session, claim, ("wanted",))
            requested = {"pause": SearchStatus.PAUSED, "cancel": SearchStatus.CANCELLED}
            status = requested.get(request, SearchStatus.QUEUED)
            _leave(session, claim, status, "" if status == SearchStatus.QUEUED else status)

    def history(self, claim: Claim) -> History:
        """The stored part of the search, for resuming it: verdicts without checks and logs."""
        with self._database.reading() as session:
            held = session.execute(
                select(SearchRecord.key, SearchRecord.spent_s, SearchRecord.gpu_spent_s).where(
                    is_held()
                ),
                claimed(claim),
            ).first()
            if held is None:
                raise lease_lost(claim)
            key = held.key
            return History(
                recorded_trials(session, key),
                _pending(session, key),
                held.spent_s,
                held.gpu_spent_s or 0.0,
                lambda number: self._checks(key, number),
                _older(session, key),
                lambda number: self._verdict(key, number),
            )

    def _verdict(self, key: int, number: int) -> Verdict | None:
        """The verdict of a trial with complete evidence; None while it is in flight."""
        with self._database.reading() as session:
            record = session.get(EvidenceRecord, (key, number))
            return convert.verdict_of(record.verdict, record.details) if record else None

    def _checks(self, key: int, number: int) -> tuple[CheckEvidence, ...]:
        """The single checks of a recorded trial."""
        verdict = self._verdict(key, number)
        result = gate_result(verdict, Stage.CORRECTNESS) if verdict is not None else None
        evidence = result.evidence if result is not None else None
        return evidence.checks if isinstance(evidence, CorrectnessEvidence) else ()


def recorded_trials(session: Session, key: int) -> tuple[Trial, ...]:
    """The recorded trials of the search with that key, in order; verdicts without details."""
    of_the_trial = and_(
        EvidenceRecord.search_key == TrialRecord.search_key,
        EvidenceRecord.number == TrialRecord.number,
    )
    query = select(
        TrialRecord.number,
        TrialRecord.candidate,
        TrialRecord.source_digest,
        TrialRecord.duration_s,
        TrialRecord.sampler,
        EvidenceRecord.verdict,
    )
    rows = session.execute(
        query.join(EvidenceRecord, of_the_trial)
        .where(TrialRecord.search_key == key)
        .order_by(TrialRecord.number)
    )
    return tuple(
        Trial(
            row.number,
            convert.candidate_of(row.candidate),
            convert.verdict_of(row.verdict),
            row.source_digest,
            row.duration_s,
            convert.sampler_of(row.sampler),
        )
        for row in rows
    )


def _older(session: Session, key: int) -> frozenset[int]:
    """The trials of a search that another version of the checks judged."""
    digest = TrialRecord.environment_digest
    recorded = (TrialRecord.search_key == key, TrialRecord.verdict.is_not(None))
    digests = session.scalars(select(digest).where(*recorded).distinct()).all()
    todays = [
        each
        for each in digests
        if each is not None and is_of_today(environment_of(session.get(EnvironmentRecord, each)))
    ]
    older = or_(digest.is_(None), digest.not_in(todays))
    return frozenset(session.scalars(select(TrialRecord.number).where(*recorded, older)))


def _pending(session: Session, key: int) -> tuple[Pending, ...]:
    query = select(
        TrialRecord.number, TrialRecord.candidate, TrialRecord.sampler, TrialRecord.attempts
    ).where(TrialRecord.search_key == key, TrialRecord.verdict.is_(None))
    return tuple(
        Pending(
            row.number,
            convert.candidate_of(row.candidate),
            convert.sampler_of(row.sampler),
            row.attempts,
        )
        for row in session.execute(query.order_by(TrialRecord.number))
    )


def _leave(
    session: Session, claim: Claim, status: SearchStatus, why: str, closing: str = ""
) -> None:
    """Let the search go. Its trials in flight do not count as attempts that a dead worker made."""
    (key,) = hold(
        session,
        claim,
        status=status,
        why=convert.storable(why),
        closing=convert.storable(closing),
        wanted=None,
        worker=None,
        finished_at=now_s() if status in ENDED else None,
    )
    session.execute(
        update(TrialRecord)
        .where(
            TrialRecord.search_key == key,
            TrialRecord.verdict.is_(None),
            TrialRecord.fence == claim.fence,
            TrialRecord.attempts > 0,
        )
        .values(attempts=TrialRecord.attempts - 1),
        execution_options={"synchronize_session": False},
    )
