"""Beginning and recording trials: fenced, atomic and idempotent."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update
from sqlalchemy.orm import Session

from greenfast.db import convert
from greenfast.db.base import Part
from greenfast.db.changes import changes
from greenfast.db.dialects import now_s, once
from greenfast.db.figures import figures, outcomes
from greenfast.db.lease import hold
from greenfast.db.models import (
    EvidenceRecord,
    SearchRecord,
    SourceRecord,
    TrialRecord,
    table_of,
)
from greenfast.db.rows import Claim
from greenfast.search.digest import text_digest
from greenfast.search.errors import Fault
from greenfast.search.loop.evaluate import settled
from greenfast.search.loop.plan import NO_BASELINE
from greenfast.search.render import RenderedSource
from greenfast.search.space.candidate import Candidate
from greenfast.search.strategies.base import Proposal
from greenfast.search.verdict import GateResult, Trial

SEARCHES_KEPT = 16
BASELINE = 0  # the number of the baseline's trial, in a search that has one

_trials = table_of(TrialRecord)
_searches = table_of(SearchRecord)

# Built once: every trial uses these statements, and building one costs more than running it.
_BEGUN = select(_trials.c.fence, _trials.c.attempts, _trials.c.verdict).where(
    _trials.c.search_key == bindparam("key"), _trials.c.number == bindparam("at")
)
_BASELINE = select(_trials.c.candidate).where(
    _trials.c.search_key == bindparam("key"), _trials.c.number == BASELINE, _trials.c.is_baseline
)
_UPDATE = update(_trials).where(
    _trials.c.search_key == bindparam("key"), _trials.c.number == bindparam("at")
)
_RECORD = _UPDATE.values(recorded_at=now_s())
_EVIDENCE = insert(table_of(EvidenceRecord))
_COUNT = (
    update(_searches)
    .where(_searches.c.key == bindparam("at"))
    .values(trials_done=_searches.c.trials_done + 1)
)


@cache
def _begin(dialect: str) -> Any:
    return once(dialect, _trials).values(created_at=now_s(), attempts=1, sentence="")


@cache
def _keep_source(dialect: str) -> Any:
    return once(dialect, table_of(SourceRecord)).values(created_at=now_s())


class Recording(Part):
    """The part of the store that a running search writes to."""

    def begin(self, claim: Claim, number: int, proposal: Proposal) -> None:
        """Note that a trial is about to start. `attempts` grows if another worker began it."""
        candidate = proposal.candidate
        values = {
            "kernel": candidate.kernel,
            "template": candidate.template,
            "preset": candidate.origin.preset,
            "candidate_digest": candidate.digest,
            "candidate": convert.candidate_json(candidate),
            "sampler": convert.sampler_json(proposal.sampler),
            "fence": claim.fence,
        }
        with self._database.writing() as session:
            key, plan = hold(session, claim, ("key", "plan"))
            connection = session.connection()
            has_baseline = number == BASELINE and _baseline_name(plan) != NO_BASELINE
            first = {"search_key": key, "number": number, "is_baseline": has_baseline, **values}
            if connection.execute(_begin(connection.dialect.name), first).rowcount:
                return
            begun = connection.execute(_BEGUN, {"key": key, "at": number}).one()
            if begun.verdict is not None:
                raise Fault(
                    f"trial {number} of search {claim.search_id} is already recorded",
                    code="trial_recorded",
                )
            if begun.fence != claim.fence:
                connection.execute(
                    _UPDATE, {"key": key, "at": number, "attempts": begun.attempts + 1, **values}
                )

    def record(self, claim: Claim, trial: Trial, source: RenderedSource | None) -> None:
        """Store a trial's figures, evidence and source in one transaction."""
        if source is not None and source.digest != trial.source_digest:
            raise Fault(
                f"trial {trial.number} names a source that is not its own", code="source_mismatch"
            )
        verdict, details = convert.verdict_json(trial.verdict)
        with self._database.writing() as session:
            key, plan, environment = hold(session, claim, ("key", "plan", "environment_digest"))
            at = {"key": key, "at": trial.number}
            connection = session.connection()
            begun = connection.execute(_BEGUN, at).first()
            if begun is None or begun.fence != claim.fence:
                raise Fault(
                    f"this worker has not begun trial {trial.number} of search {claim.search_id}",
                    code="trial_not_begun",
                )
            if begun.verdict is not None:
                return  # a retry after the first answer was lost
            if source is not None:
                _store_source(connection, trial, source)
            columns = _columns(session, key, _baseline_name(plan), trial)
            connection.execute(
                _RECORD,
                {
                    **at,
                    **columns,
                    "stage_seconds": _stage_seconds(trial),
                    "source_digest": trial.source_digest,
                    "environment_digest": environment,
                },
            )
            connection.execute(
                _EVIDENCE,
                {"search_key": key, "number": trial.number, "verdict": verdict, "details": details},
            )
            connection.execute(_COUNT, {"at": key})

    def settle(self, claim: Claim, number: int, result: GateResult) -> None:
        """Update a recorded trial when a deferred gate runs or a recheck fails.

        A failure is never reversed.
        """
        with self._database.writing() as session:
            key, plan = hold(session, claim, ("key", "plan"))
            record = session.get(TrialRecord, (key, number))
            evidence = session.get(EvidenceRecord, (key, number))
            if record is None or evidence is None:
                raise Fault(
                    f"trial {number} of search {claim.search_id} is not recorded, so it cannot be "
                    "updated",
                    code="trial_not_recorded",
                )
            before = convert.verdict_of(evidence.verdict, evidence.details)
            verdict = settled(before, result)
            if verdict == before:
                return
            trial = Trial(
                number,
                convert.candidate_of(record.candidate),
                verdict,
                record.source_digest,
                record.duration_s or 0.0,
            )
            columns = _columns(session, key, _baseline_name(plan), trial)
            session.execute(_UPDATE, {"key": key, "at": number, **columns})
            evidence.verdict, evidence.details = convert.verdict_json(verdict)


def _columns(session: Session, key: int, baseline: str, trial: Trial) -> dict[str, Any]:
    stored = session.scalar(_BASELINE, {"key": key})
    changed = changes(_baseline(stored) if stored else None, trial.candidate)
    rows = tuple((change.name, change.before, change.after) for change in changed)
    return {
        **vars(figures(trial, changed, baseline)),
        "outcomes": outcomes(trial.verdict),
        "changed": convert.pairs_json("changed", rows),
    }


@lru_cache(maxsize=SEARCHES_KEPT)
def _baseline_name(plan: str) -> str:
    """The name in a stored plan, kept because every trial of its search needs it."""
    return convert.plan_of(plan).baseline


@lru_cache(maxsize=SEARCHES_KEPT)
def _baseline(candidate: str) -> Candidate:
    """The baseline of a search, as it is stored."""
    return convert.candidate_of(candidate)


def _stage_seconds(trial: Trial) -> str | None:
    """To the microsecond. `settle` leaves them: they belong to `duration_s`."""
    if not trial.stage_seconds:
        return None
    rows = tuple((stage, round(seconds, 6)) for stage, seconds in trial.stage_seconds)
    return convert.pairs_json("stage_seconds", rows)


def _store_source(connection: Connection, trial: Trial, source: RenderedSource) -> None:
    if text_digest(source.text) != source.digest:
        raise Fault(
            f"the source of trial {trial.number} does not match its digest",
            code="source_mismatch",
        )
    connection.execute(
        _keep_source(connection.dialect.name),
        {
            "digest": source.digest,
            "text": source.text,
            "kernel": trial.candidate.kernel,
            "template": trial.candidate.template,
        },
    )
