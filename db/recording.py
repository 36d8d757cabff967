"""Beginning and recording trials: fenced, all or nothing, and the same when it is done twice."""

from __future__ import annotations

from typing import Any

from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.orm import Session

from greenfast.db import convert
from greenfast.db.base import Part
from greenfast.db.dialects import insert_once, now_s
from greenfast.db.figures import changes, figures
from greenfast.db.lease import hold
from greenfast.db.models import EvidenceRecord, SearchRecord, SourceRecord, TrialRecord
from greenfast.db.rows import Claim
from greenfast.search.digest import text_digest
from greenfast.search.errors import Fault
from greenfast.search.loop.evaluate import settled
from greenfast.search.loop.plan import NO_BASELINE
from greenfast.search.render import RenderedSource
from greenfast.search.strategies import Proposal
from greenfast.search.verdict import GateResult, Trial

BASELINE = 0  # the number of the baseline's trial, in a search that has one

_trials = TrialRecord.__table__
_searches = SearchRecord.__table__

# Made once: every trial of every search passes here, and making a statement costs more than running it.
_BEGUN = select(_trials.c.fence, _trials.c.attempts, _trials.c.verdict).where(
    _trials.c.search_key == bindparam("key"), _trials.c.number == bindparam("at")
)
_BASELINE = select(_trials.c.candidate).where(
    _trials.c.search_key == bindparam("key"), _trials.c.number == BASELINE, _trials.c.is_baseline
)
_BEGIN = insert(_trials).values(created_at=now_s(), attempts=1, sentence="")
_UPDATE = update(_trials).where(
    _trials.c.search_key == bindparam("key"), _trials.c.number == bindparam("at")
)
_RECORD = _UPDATE.values(recorded_at=now_s())
_COUNT = (
    update(_searches)
    .where(_searches.c.key == bindparam("at"))
    .values(trials_done=_searches.c.trials_done + 1)
)


class Recording(Part):
    """The part of the store that a running search writes with."""

    def begin(self, claim: Claim, number: int, proposal: Proposal) -> None:
        """Note that a trial is in flight, before it is. One that another worker began counts one more."""
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
            found = session.execute(_BEGUN, {"key": key, "at": number}).first()
            if found is None:
                has_baseline = number == BASELINE and convert.plan_of(plan).baseline != NO_BASELINE
                session.execute(
                    _BEGIN,
                    {"search_key": key, "number": number, "is_baseline": has_baseline, **values},
                )
            elif found.verdict is not None:
                raise Fault(
                    f"trial {number} of search {claim.search_id} is recorded already",
                    code="trial_recorded",
                )
            elif found.fence != claim.fence:
                session.execute(
                    _UPDATE, {"key": key, "at": number, "attempts": found.attempts + 1, **values}
                )

    def record(self, claim: Claim, trial: Trial, source: RenderedSource | None) -> None:
        """Store what came of a trial, its evidence and its source in one transaction."""
        if source is not None and source.digest != trial.source_digest:
            raise Fault(
                f"trial {trial.number} names another source than its own", code="source_mismatch"
            )
        verdict, details = convert.verdict_json(trial.verdict)
        with self._database.writing() as session:
            key, plan, environment = hold(session, claim, ("key", "plan", "environment_digest"))
            at = {"key": key, "at": trial.number}
            found = session.execute(_BEGUN, at).first()
            if found is None or found.fence != claim.fence:
                raise Fault(
                    f"trial {trial.number} of search {claim.search_id} was not begun by this worker",
                    code="trial_not_begun",
                )
            if found.verdict is not None:
                return  # the same attempt again: its answer was lost on the way
            if source is not None:
                _store_source(session, trial, source)
            columns = _columns(session, key, convert.plan_of(plan).baseline, trial)
            session.execute(
                _RECORD,
                {
                    **at,
                    **columns,
                    "source_digest": trial.source_digest,
                    "environment_digest": environment,
                },
            )
            session.execute(
                insert(EvidenceRecord.__table__),
                {"search_key": key, "number": trial.number, "verdict": verdict, "details": details},
            )
            session.execute(_COUNT, {"at": key})

    def settle(self, claim: Claim, number: int, result: GateResult) -> None:
        """Store what a gate found of a recorded trial that was spared it, or that proved wrong on new inputs, and the verdict
        that follows. What was found wrong stays so."""
        with self._database.writing() as session:
            key, plan = hold(session, claim, ("key", "plan"))
            record = session.get(TrialRecord, (key, number))
            evidence = session.get(EvidenceRecord, (key, number))
            if record is None or evidence is None:
                raise Fault(
                    f"trial {number} of search {claim.search_id} is not recorded, so nothing of it can be "
                    "settled",
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
                record.duration_s,
            )
            columns = _columns(session, key, convert.plan_of(plan).baseline, trial)
            session.execute(_UPDATE, {"key": key, "at": number, **columns})
            evidence.verdict, evidence.details = convert.verdict_json(verdict)


def _columns(session: Session, key: int, baseline: str, trial: Trial) -> dict[str, Any]:
    found = session.scalar(_BASELINE, {"key": key})
    changed = changes(convert.candidate_of(found) if found else None, trial.candidate)
    rows = tuple((one.name, one.before, one.after) for one in changed)
    return {**figures(trial, changed, baseline), "changed": convert.pairs_json("changed", rows)}


def _store_source(session: Session, trial: Trial, source: RenderedSource) -> None:
    if text_digest(source.text) != source.digest:
        raise Fault(
            f"the source of trial {trial.number} is not what its digest names",
            code="source_mismatch",
        )
    insert_once(
        session,
        SourceRecord,
        {
            "digest": source.digest,
            "text": source.text,
            "kernel": trial.candidate.kernel,
            "template": trial.candidate.template,
            "created_at": now_s(),
        },
    )
