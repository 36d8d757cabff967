"""Tunings: submitting one with its searches, reading and cancelling it."""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Sequence

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from greenfast.db import convert
from greenfast.db.base import Part, search_record, utc
from greenfast.db.claims import recorded_trials
from greenfast.db.dialects import now_s
from greenfast.db.models import SearchRecord, TuningRecord, TuningSearchRecord
from greenfast.db.paging import after, check_limit, page_of, values_of
from greenfast.db.rows import Page, SearchRow, TuningRow
from greenfast.db.searches import Wanted, insert_search, request_control_of, search_rows
from greenfast.search.errors import UsageError
from greenfast.search.kernels.frozen import KernelFiles
from greenfast.search.loop.plan import SearchPlan
from greenfast.search.loop.tuning import TuningPlan
from greenfast.search.status import ENDED, SearchStatus
from greenfast.search.verdict import Trial

TUNING_ID = re.compile(r"t_[a-z2-7]{12}")


class Tunings(Part):
    """The part of the store that holds tunings."""

    def submit_tuning(
        self, plan: TuningPlan, searches: Sequence[SearchPlan], files: KernelFiles
    ) -> TuningRow:
        """Queue all searches of a tuning in one transaction, with the kernel files of now."""
        tuning_id = "t_" + base64.b32encode(secrets.token_bytes(8)).decode()[:12].lower()
        with self._database.writing() as session:
            key = session.execute(
                insert(TuningRecord)
                .values(
                    id=tuning_id,
                    name=convert.storable(plan.name),
                    kernel=plan.kernel,
                    target=plan.target,
                    plan=convert.value_json("tuning", plan),
                    created_at=now_s(),
                )
                .returning(TuningRecord.key)
            ).scalar_one()
            for position, search in enumerate(searches):
                search_key = insert_search(session, search, files)
                session.execute(
                    insert(TuningSearchRecord).values(
                        tuning_key=key, search_key=search_key, position=position
                    )
                )
            return _row(session, _record(session, tuning_id))

    def tuning(self, tuning_id: str) -> TuningRow:
        """The tuning with that id; UsageError `unknown_tuning`."""
        with self._database.reading() as session:
            return _row(session, _record(session, tuning_id))

    def tunings(self, *, limit: int = 50, cursor: str | None = None) -> Page[TuningRow]:
        """Newest first."""
        check_limit(limit)
        behind = values_of(cursor, "tunings", (int,))
        query = select(TuningRecord).where(after((TuningRecord.key,), behind, descending=True))
        with self._database.reading() as session:
            rows = session.execute(query.order_by(TuningRecord.key.desc()).limit(limit + 1)).all()
            return page_of(
                rows,
                limit,
                "tunings",
                lambda row: (row[0].key,),
                lambda row: _row(session, row[0]),
            )

    def control_tuning(self, tuning_id: str, request: Wanted) -> TuningRow:
        """Pause, resume or cancel every search that has not ended."""
        with self._database.writing() as session:
            record = _record(session, tuning_id)
            for row in search_rows(session, _ids(session, record)):
                ended = SearchStatus(row.status) in ENDED
                if not ended or (request == "resume" and row.status == SearchStatus.FAILED):
                    request_control_of(session, row.id, request)
            session.flush()
            return _row(session, record)

    def timed_trials(self, search_id: str) -> tuple[Trial, ...]:
        """The recorded trials of a search with their verdicts, in order."""
        with self._database.reading() as session:
            return recorded_trials(session, search_record(session, search_id).key)


def _record(session: Session, tuning_id: str) -> TuningRecord:
    record = None
    if TUNING_ID.fullmatch(str(tuning_id)):
        record = session.scalar(select(TuningRecord).where(TuningRecord.id == tuning_id))
    if record is None:
        raise UsageError(
            f"no tuning {str(tuning_id)[:80]!r}",
            code="unknown_tuning",
            mend="`greenfast tunings` lists them",
        )
    return record


def _ids(session: Session, record: TuningRecord) -> tuple[str, ...]:
    query = (
        select(SearchRecord.id)
        .join(TuningSearchRecord, TuningSearchRecord.search_key == SearchRecord.key)
        .where(TuningSearchRecord.tuning_key == record.key)
        .order_by(TuningSearchRecord.position)
    )
    return tuple(session.scalars(query))


def _row(session: Session, record: TuningRecord) -> TuningRow:
    plan = convert.value_of("tuning", TuningPlan, record.plan)
    searches = search_rows(session, _ids(session, record))
    return TuningRow(
        id=record.id,
        name=record.name,
        kernel=record.kernel,
        target=record.target,
        status=_status(searches),
        within_percent=plan.within_percent,
        workloads=plan.workloads,
        weights=plan.weights,
        created_at=utc(record.created_at),
        searches=searches,
    )


def _status(searches: Sequence[SearchRow]) -> str:
    """The status of the search that keeps the tuning from being complete."""
    statuses = {row.status for row in searches}
    order = (
        SearchStatus.FAILED,
        SearchStatus.CANCELLED,
        SearchStatus.RUNNING,
        SearchStatus.QUEUED,
        SearchStatus.PAUSED,
    )
    return next((status for status in order if status in statuses), SearchStatus.COMPLETED)
