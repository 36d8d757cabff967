"""Reading trials: pages, single trials with evidence, the best, and counts."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import and_, func, or_, select
from sqlalchemy.orm import Session

from greenfast.db import convert
from greenfast.db.base import Part, check_name, search_key, search_record, utc, utc_or_none
from greenfast.db.changes import Change
from greenfast.db.figures import FIGURES, SORTABLE
from greenfast.db.funnel import counts_of
from greenfast.db.models import EnvironmentRecord, EvidenceRecord, SearchRecord, TrialRecord
from greenfast.db.paging import LARGEST_INTEGER, check_limit, page_of, sorted_rows, values_of
from greenfast.db.rows import Counts, Page, Point, TrialDetail, TrialRow
from greenfast.db.searches import IS_RIGHT, confirmed_number
from greenfast.db.trial_filters import ParameterFilter, conditions
from greenfast.search.errors import UsageError
from greenfast.search.space.candidate import Candidate
from greenfast.search.status import SearchStatus
from greenfast.search.verdict import Reason, Stage, Trial, VerdictName

SORTS = ("number", *SORTABLE)


class Trials(Part):
    """The part of the store that reads trials."""

    def trials(
        self,
        search_id: str,
        *,
        verdict: str | None = None,
        stage: str | None = None,
        reason: str | None = None,
        template: str | None = None,
        parameters: Sequence[ParameterFilter] = (),
        text: str | None = None,
        sort: str = "number",
        descending: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[TrialRow]:
        """A page of a search's trials. Trials without the figure that sorts them come last."""
        check_limit(limit)
        check_name("sort", sort, SORTS)
        filters = {
            "verdict": check_name("verdict", verdict, VerdictName),
            "stage": check_name("stage", stage, Stage),
            "reason": check_name("reason", reason, Reason),
            "template": convert.storable(template) if template is not None else None,
        }
        order = f"trials/{sort}/{'descending' if descending else 'ascending'}"
        behind = values_of(cursor, order, (float, int))
        column = getattr(TrialRecord, sort)
        with self._database.reading() as session:
            search = search_record(session, search_id)
            query = select(TrialRecord).where(TrialRecord.search_key == search.key)
            query = query.where(*conditions(parameters, text))
            for name, value in filters.items():
                if value is not None:
                    query = query.where(getattr(TrialRecord, name) == value)
            rows = sorted_rows(
                session, query, column, TrialRecord.number, descending, behind, limit + 1
            )
            return page_of(
                rows,
                limit,
                order,
                lambda row: (getattr(row[0], sort), row[0].number),
                lambda row: trial_row(row[0], search),
            )

    def trial(self, search_id: str, number: int) -> TrialDetail:
        """One trial with its gates, evidence and log; UsageError `unknown_trial`."""
        with self._database.reading() as session:
            record = trial_record(session, search_id, number)
            search = session.get_one(SearchRecord, record.search_key)
            evidence = session.get(EvidenceRecord, (record.search_key, record.number))
            environment = (
                session.get(EnvironmentRecord, record.environment_digest)
                if record.environment_digest
                else None
            )
            verdict = convert.verdict_of(evidence.verdict, evidence.details) if evidence else None
            return TrialDetail(
                **vars(trial_row(record, search)),
                gates=convert.gates_plain(verdict) if verdict else {},
                log=convert.storable(getattr(verdict, "log", "")),
                sampler=convert.sampler_of(record.sampler),
                changed=changed_of(record),
                environment=environment_of(environment),
            )

    def recorded(self, search_id: str, number: int) -> Trial | None:
        """The trial as it was recorded, with complete evidence; None while it is in flight."""
        with self._database.reading() as session:
            record = trial_record(session, search_id, number)
            evidence = session.get(EvidenceRecord, (record.search_key, record.number))
            if evidence is None:
                return None
            return Trial(
                record.number,
                convert.candidate_of(record.candidate),
                convert.verdict_of(evidence.verdict, evidence.details),
                record.source_digest,
                record.duration_s or 0.0,
                convert.sampler_of(record.sampler),
            )

    def numbers_of(self, search_id: str, digests: Collection[str]) -> dict[str, int]:
        """The first trial of the search that tried each candidate, by the candidate's digest."""
        with self._database.reading() as session:
            rows = session.execute(
                select(TrialRecord.candidate_digest, func.min(TrialRecord.number))
                .where(TrialRecord.search_key == search_key(session, search_id))
                .where(TrialRecord.candidate_digest.in_(digests))
                .group_by(TrialRecord.candidate_digest)
            )
            return {key: value for key, value in rows}  # noqa: C416

    def best(self, search_id: str) -> TrialRow | None:
        """The confirmed trial; else the first of the fastest correct ones, baseline included."""
        with self._database.reading() as session:
            search = search_record(session, search_id)
            key = search.key
            correct = select(TrialRecord).where(
                TrialRecord.search_key == key, TrialRecord.time_median_us.is_not(None), IS_RIGHT
            )
            record = (
                session.scalars(correct.where(TrialRecord.number == confirmed_number(key))).first()
                or session.scalars(
                    correct.order_by(TrialRecord.time_median_us, TrialRecord.number).limit(1)
                ).first()
            )
            return trial_row(record, search) if record else None

    def not_told_apart(self, trial: TrialRow) -> int:
        """How many other correct trials of its search have times within its band.

        0 for measured times, which have no band.
        """
        if trial.time_kind == "measured" or not trial.time_median_us or not trial.time_band:
            return 0
        low, high = trial.time_median_us / trial.time_band, trial.time_median_us * trial.time_band
        with self._database.reading() as session:
            return (
                session.scalar(
                    select(func.count())
                    .select_from(TrialRecord)
                    .where(
                        TrialRecord.search_key == search_key(session, trial.search_id),
                        IS_RIGHT,
                        TrialRecord.number != trial.number,
                        TrialRecord.time_median_us.between(low, high),
                    )
                )
                or 0
            )

    def best_so_far(self, search_id: str) -> tuple[Point, ...]:
        """Every correct trial in order, with the best time up to it."""
        points: list[Point] = []
        with self._database.reading() as session:
            key = search_key(session, search_id)
            rows = session.execute(
                select(TrialRecord.number, TrialRecord.time_median_us)
                .where(
                    TrialRecord.search_key == key, TrialRecord.time_median_us.is_not(None), IS_RIGHT
                )
                .order_by(TrialRecord.number)
            )
            best_us = math.inf
            for number, time_us in rows:
                assert time_us is not None  # the query leaves trials without a time out
                best_us = min(time_us, best_us)
                points.append(Point(number, time_us, best_us))
        return tuple(points)

    def spread_of_times(
        self, search_id: str, template: str, most: int
    ) -> tuple[tuple[Candidate, float], ...]:
        """Correct trials of a template with their times in us: half of `most` are the fastest, and
        the others are spread evenly over the rest, by rank.

        Trials that are correct and not faster than the baseline count.
        """
        slower = and_(
            TrialRecord.verdict == VerdictName.REJECTED,
            TrialRecord.stage == Stage.PERFORMANCE,
            TrialRecord.reason != Reason.IMPLAUSIBLE,
        )
        with self._database.reading() as session:
            timed = (
                TrialRecord.search_key == search_key(session, search_id),
                TrialRecord.template == convert.storable(template),
                TrialRecord.time_median_us > 0,
                or_(IS_RIGHT, slower),
            )
            numbers = session.scalars(
                select(TrialRecord.number)
                .where(*timed)
                .order_by(TrialRecord.time_median_us, TrialRecord.number)
            ).all()
            rows = session.execute(
                select(TrialRecord.candidate, TrialRecord.time_median_us)
                .where(*timed, TrialRecord.number.in_(spread(numbers, most)))
                .order_by(TrialRecord.number)
            ).all()
        return tuple(
            (convert.candidate_of(candidate), time_us) for candidate, time_us in rows if time_us
        )

    def counts(self, search_id: str) -> Counts:
        """The search's trials by their results."""
        columns = (TrialRecord.verdict, TrialRecord.stage, TrialRecord.reason, TrialRecord.outcomes)
        with self._database.reading() as session:
            rows = session.execute(
                select(*columns, func.count())
                .where(TrialRecord.search_key == search_key(session, search_id))
                .group_by(*columns)
            ).all()
        return counts_of([(row[0], row[1], row[2], row[3], row[4]) for row in rows])


def spread(ranked: Sequence[int], most: int) -> list[int]:
    """Half of `most` from the start, and the others at equal steps through the rest."""
    first, rest = list(ranked[: most // 2]), ranked[most // 2 :]
    count = min(len(rest), most - len(first))
    return first + [rest[number * len(rest) // count] for number in range(count)]


def trial_record(session: Session, search_id: str, number: int) -> TrialRecord:
    """A trial of a search; UsageError `unknown_search`, `unknown_trial`."""
    key = search_key(session, search_id)
    record = session.get(TrialRecord, (key, number)) if 0 <= number <= LARGEST_INTEGER else None
    if record is None:
        raise UsageError(
            f"search {search_id} has no trial {number}",
            code="unknown_trial",
            mend="its trials are numbered from 0",
        )
    return record


def trial_row(record: TrialRecord, search: SearchRecord) -> TrialRow:
    candidate = convert.candidate_of(record.candidate)
    figures: dict[str, Any] = {name: getattr(record, name) for name in FIGURES}
    return TrialRow(
        search_id=search.id,
        number=record.number,
        state=_state(record, search),
        template=record.template,
        parameters=candidate.values(),
        origin=str(candidate.origin.kind),
        preset=record.preset,
        parents=candidate.origin.parents,
        wanted=dict(candidate.origin.wanted),
        candidate_digest=record.candidate_digest,
        source_digest=record.source_digest,
        attempts=record.attempts,
        is_baseline=record.is_baseline,
        created_at=utc(record.created_at),
        recorded_at=utc_or_none(record.recorded_at),
        stage_seconds=stage_seconds_of(record),
        **figures,
    )


def _state(record: TrialRecord, search: SearchRecord) -> str:
    if record.verdict:
        return "done"
    return "running" if search.status == SearchStatus.RUNNING else "interrupted"


def changed_of(record: TrialRecord) -> tuple[Change, ...]:
    if record.changed is None:
        return ()
    return tuple(Change(*row) for row in convert.pairs_of("changed", record.changed))


def stage_seconds_of(record: TrialRecord) -> dict[str, float] | None:
    if record.stage_seconds is None:
        return None
    return dict(convert.pairs_of("stage_seconds", record.stage_seconds))


def environment_of(record: EnvironmentRecord | None) -> dict[str, str]:
    return dict(convert.pairs_of("environment", record.environment)) if record else {}
