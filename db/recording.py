"""Beginning and recording trials: fenced, atomic and idempotent."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

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
from greenfast.search.loop.sink import Begun, Record
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
    .values(trials_done=_searches.c.trials_done + bindparam("new"))
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
        """`begin_all` of one trial."""
        self.begin_all(claim, ((number, proposal),))

    def begin_all(self, claim: Claim, begun: Sequence[Begun]) -> None:
        """Note that trials are about to start. `attempts` grows if another worker began one."""
        rows = [
            {"number": number, **_proposed(proposal), "fence": claim.fence}
            for number, proposal in begun
        ]
        with self._database.writing_rows() as connection:
            key, plan = hold(connection, claim, ("key", "plan"))
            has_baseline = _baseline_name(plan) != NO_BASELINE
            for row in rows:
                _begin_row(connection, claim, key, has_baseline, row)

    def record(self, claim: Claim, trial: Trial, source: RenderedSource | None) -> None:
        """`record_all` of one trial."""
        self.record_all(claim, ((trial, source),))

    def record_all(self, claim: Claim, records: Sequence[Record]) -> None:
        """Store the figures, evidence and sources of trials in one transaction.

        Trials that are recorded already are left, as after a retry whose first answer was lost.
        """
        for trial, source in records:
            if source is not None and source.digest != trial.source_digest:
                raise Fault(
                    f"trial {trial.number} names a source that is not its own",
                    code="source_mismatch",
                )
        verdicts = [convert.verdict_json(trial.verdict) for trial, _ in records]
        with self._database.writing_rows() as connection:
            key, plan, environment = hold(connection, claim, ("key", "plan", "environment_digest"))
            baseline, new = _baseline_name(plan), 0
            for (trial, source), (verdict, details) in zip(records, verdicts, strict=True):
                at = {"key": key, "at": trial.number}
                if _is_recorded(connection, claim, at):
                    continue
                if source is not None:
                    _store_source(connection, trial, source)
                ended = {
                    "stage_seconds": _stage_seconds(trial),
                    "source_digest": trial.source_digest,
                    "environment_digest": environment,
                }
                columns = _columns(connection, key, baseline, trial)
                connection.execute(_RECORD, {**at, **columns, **ended})
                evidence = {"search_key": key, "number": trial.number}
                connection.execute(_EVIDENCE, {**evidence, "verdict": verdict, "details": details})
                new += 1
            if new:
                connection.execute(_COUNT, {"at": key, "new": new})

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
            columns = _columns(session.connection(), key, _baseline_name(plan), trial)
            session.execute(_UPDATE, {"key": key, "at": number, **columns})
            evidence.verdict, evidence.details = convert.verdict_json(verdict)


def _proposed(proposal: Proposal) -> dict[str, Any]:
    """The columns of a trial that its proposal gives."""
    candidate = proposal.candidate
    return {
        "kernel": candidate.kernel,
        "template": candidate.template,
        "preset": candidate.origin.preset,
        "candidate_digest": candidate.digest,
        "candidate": convert.candidate_json(candidate),
        "sampler": convert.sampler_json(proposal.sampler),
    }


def _begin_row(
    connection: Connection, claim: Claim, key: int, has_baseline: bool, row: dict[str, Any]
) -> None:
    number = row["number"]
    first = {"search_key": key, "is_baseline": has_baseline and number == BASELINE, **row}
    if connection.execute(_begin(connection.dialect.name), first).rowcount:
        return
    begun = connection.execute(_BEGUN, {"key": key, "at": number}).one()
    if begun.verdict is not None:
        raise Fault(
            f"trial {number} of search {claim.search_id} is already recorded",
            code="trial_recorded",
        )
    if begun.fence != claim.fence:
        again = {name: value for name, value in row.items() if name != "number"}
        again["attempts"] = begun.attempts + 1
        connection.execute(_UPDATE, {"key": key, "at": number, **again})


def _is_recorded(connection: Connection, claim: Claim, at: dict[str, int]) -> bool:
    """Fault `trial_not_begun` unless this worker began the trial."""
    begun = connection.execute(_BEGUN, at).first()
    if begun is None or begun.fence != claim.fence:
        raise Fault(
            f"this worker has not begun trial {at['at']} of search {claim.search_id}",
            code="trial_not_begun",
        )
    return begun.verdict is not None


def _columns(connection: Connection, key: int, baseline: str, trial: Trial) -> dict[str, Any]:
    stored = connection.scalar(_BASELINE, {"key": key})
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
