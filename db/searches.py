"""Submitting, listing and controlling searches."""

from __future__ import annotations

import base64
import secrets
from dataclasses import replace
from typing import Any, Literal

from sqlalchemy import case, func, insert, or_, select
from sqlalchemy import text as sql_text
from sqlalchemy.orm import Session, aliased

from greenfast.db import convert
from greenfast.db.base import Part, check_name, search_record, utc, utc_or_none
from greenfast.db.dialects import now_s
from greenfast.db.kernel_files import store_files
from greenfast.db.lease import is_expired
from greenfast.db.models import ConfirmationRecord, SearchRecord, TrialRecord, sql_list
from greenfast.db.paging import after, check_limit, page_of, values_of
from greenfast.db.rows import Page, SearchRow
from greenfast.search.errors import UsageError
from greenfast.search.kernels.frozen import KernelFiles
from greenfast.search.loop.plan import SearchPlan
from greenfast.search.status import STATUSES, SearchStatus
from greenfast.search.verdict import CORRECT, TimeKind

Wanted = Literal["pause", "resume", "cancel"]
WANTED = ("pause", "resume", "cancel")
PARTICIPLES = {"pause": "paused", "resume": "resumed", "cancel": "cancelled"}

# The status after a request to a search that no worker holds. Repeating a request is no error.
_MOVES = {
    ("pause", SearchStatus.QUEUED): SearchStatus.PAUSED,
    ("pause", SearchStatus.PAUSED): SearchStatus.PAUSED,
    ("pause", SearchStatus.RUNNING): SearchStatus.PAUSED,
    ("resume", SearchStatus.PAUSED): SearchStatus.QUEUED,
    ("resume", SearchStatus.FAILED): SearchStatus.QUEUED,
    ("resume", SearchStatus.QUEUED): SearchStatus.QUEUED,
    ("resume", SearchStatus.RUNNING): SearchStatus.RUNNING,
    ("cancel", SearchStatus.QUEUED): SearchStatus.CANCELLED,
    ("cancel", SearchStatus.PAUSED): SearchStatus.CANCELLED,
    ("cancel", SearchStatus.RUNNING): SearchStatus.CANCELLED,
    ("cancel", SearchStatus.CANCELLED): SearchStatus.CANCELLED,
}
IS_RIGHT = sql_text(f"trials.verdict IN ({sql_list(CORRECT)})")


class Searches(Part):
    """The part of the store that holds searches."""

    def submit(self, plan: SearchPlan, files: KernelFiles | None = None) -> SearchRow:
        """Queue a search with the kernel files that it runs with."""
        with self._database.writing() as session:
            record = session.get_one(SearchRecord, insert_search(session, plan, files))
            return search_row(session, record.id)

    def search(self, search_id: str) -> SearchRow:
        """The search with that id; UsageError `unknown_search`."""
        with self._database.reading() as session:
            return search_row(session, search_id)

    def plan(self, search_id: str) -> SearchPlan:
        with self._database.reading() as session:
            return convert.plan_of(search_record(session, search_id).plan)

    def searches(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        status: str | None = None,
        statuses: tuple[str, ...] = STATUSES,
        oldest_first: bool = False,
        kernel: str | None = None,
        text: str = "",
    ) -> Page[SearchRow]:
        """Searches of one status, or of any of `statuses`; newest first unless `oldest_first`.

        `text`: words, each in the name, the target or the strategy, or the id itself.
        """
        check_limit(limit)
        status = check_name("status", status, STATUSES)
        order = f"searches/{status}" if statuses == STATUSES else f"searches/{','.join(statuses)}"
        order += f"/{kernel or ''}/{text}" if kernel or text else ""
        order += "/oldest" if oldest_first else ""
        behind = values_of(cursor, order, (int,))
        query = _with_best().where(after((SearchRecord.key,), behind, descending=not oldest_first))
        if status is not None:
            query = query.where(SearchRecord.status == status)
        elif statuses != STATUSES:
            query = query.where(SearchRecord.status.in_(statuses))
        if kernel is not None:
            query = query.where(SearchRecord.kernel == convert.storable(kernel))
        for word in convert.storable(text).split():
            shown = (SearchRecord.name, SearchRecord.target, SearchRecord.strategy)
            query = query.where(
                or_(
                    *(column.icontains(word, autoescape=True) for column in shown),
                    SearchRecord.id == word,
                )
            )
        with self._database.reading() as session:
            key = SearchRecord.key if oldest_first else SearchRecord.key.desc()
            rows = session.execute(query.order_by(key).limit(limit + 1)).all()
            return page_of(
                rows, limit, order, lambda row: (row[0].key,), lambda row: _search_row(*row)
            )

    def request_control(self, search_id: str, request: Wanted) -> SearchRow:
        """Pause, resume or cancel: at once when no worker holds the search, else by a flag for it.

        UsageError `bad_transition`, for example for resuming a completed search.
        """
        check_name("control", request, WANTED)
        with self._database.writing() as session:
            request_control_of(session, search_id, request)
            session.flush()
            return search_row(session, search_id)

    def request_confirmation(self, search_id: str) -> SearchRow:
        """Queue a completed search again. Its budget is spent, so it only times its winner again.

        UsageError `bad_transition` for a search that is not completed, `not_measured` where there
        is nothing to confirm.
        """
        with self._database.writing() as session:
            record = search_record(session, search_id, lock=True)
            if record.status != SearchStatus.COMPLETED:
                raise UsageError(
                    f"search {record.id} is {record.status}, so its winner cannot be confirmed now",
                    code="bad_transition",
                    mend="a search that measures confirms its winner when it completes",
                )
            measured = select(TrialRecord.number).where(
                TrialRecord.search_key == record.key,
                TrialRecord.time_kind == TimeKind.MEASURED,
                IS_RIGHT,
            )
            if session.scalar(measured.limit(1)) is None:
                raise UsageError(
                    f"search {record.id} measured no correct candidate, so there is nothing "
                    "to confirm",
                    code="not_measured",
                    mend="search on a target that measures, such as cuda:0",
                )
            record.plan = convert.plan_json(replace(convert.plan_of(record.plan), confirm=True))
            record.status, record.finished_at = SearchStatus.QUEUED, None
            record.why = record.closing = ""
            session.flush()
            return search_row(session, search_id)


def insert_search(session: Session, plan: SearchPlan, files: KernelFiles | None) -> int:
    """Queue a search; returns its key."""
    manifest = store_files(session, files) if files is not None else None
    values = {
        "id": "s_" + base64.b32encode(secrets.token_bytes(8)).decode()[:12].lower(),
        "name": convert.storable(plan.name),
        "kernel": plan.kernel,
        "target": plan.target,
        "strategy": plan.strategy,
        "plan": convert.plan_json(plan),
        "status": SearchStatus.QUEUED,
        "created_at": now_s(),
        "manifest_digest": manifest,
    }
    statement = insert(SearchRecord).values(**values).returning(SearchRecord.key)
    key: int = session.execute(statement).scalar_one()
    return key


def request_control_of(session: Session, search_id: str, request: Wanted) -> None:
    """Pause, resume or cancel inside the caller's transaction."""
    record = search_record(session, search_id, lock=True)
    if request == "cancel" and record.status == SearchStatus.RUNNING:
        record.wanted = request  # shortens the lease
        session.flush()
    abandoned = session.scalar(select(is_expired()).where(SearchRecord.key == record.key))
    if record.status == SearchStatus.RUNNING and not abandoned:
        record.wanted = _flag(record, request)
    else:
        _move(record, request)


def search_rows(session: Session, search_ids: tuple[str, ...]) -> tuple[SearchRow, ...]:
    """The searches with these ids, in their order."""
    return tuple(search_row(session, search_id) for search_id in search_ids)


def _flag(record: SearchRecord, request: Wanted) -> str | None:
    """The request for the worker to read; None for none."""
    if request == "resume" and record.wanted is None:
        return None
    if request != "cancel" and record.wanted == "cancel":
        raise UsageError(
            f"search {record.id} is being cancelled, so it cannot be {PARTICIPLES[request]}",
            code="bad_transition",
            mend="start a new search",
        )
    return request


def _move(record: SearchRecord, request: Wanted) -> None:
    before = SearchStatus(record.status)
    status = _MOVES.get((request, before))
    if status is None:
        allowed = [
            PARTICIPLES[verb] for verb in WANTED if _MOVES.get((verb, before), before) != before
        ]
        mend = f"it can be {' or '.join(allowed)}" if allowed else "start a new search"
        if request == "resume" and before == SearchStatus.COMPLETED:
            mend = f"try N more with `greenfast search --resume {record.id} --extend N`"
        raise UsageError(
            f"search {record.id} is {record.status}, so it cannot be {PARTICIPLES[request]}",
            code="bad_transition",
            mend=mend,
        )
    record.wanted = None
    if status == before:
        return
    if before == SearchStatus.RUNNING:
        record.fence += 1  # its worker is gone; if it comes back, it has lost the search
        record.worker = None
    record.status = status
    record.why = "" if status == SearchStatus.QUEUED else status
    record.finished_at = now_s() if status == SearchStatus.CANCELLED else None


def _with_best() -> Any:
    """Searches with their best trial's time, its kind and mode, and their place in the queue."""
    trial = aliased(TrialRecord, name="trials")
    correct = (
        select(trial.time_median_us)
        .where(trial.search_key == SearchRecord.key, trial.time_median_us.is_not(None), IS_RIGHT)
        .correlate(SearchRecord)
    )
    best = (
        correct.where(trial.number == confirmed_number(SearchRecord.key)),
        correct.order_by(trial.time_median_us, trial.number).limit(1),
    )
    ahead = aliased(SearchRecord, name="ahead")
    position = (
        select(func.count())
        .where(ahead.status == SearchStatus.QUEUED, ahead.key <= SearchRecord.key)
        .correlate(SearchRecord)
        .scalar_subquery()
    )
    return select(
        SearchRecord,
        *(
            func.coalesce(*(choice.with_only_columns(column).scalar_subquery() for choice in best))
            for column in (trial.time_median_us, trial.time_kind, trial.time_mode)
        ),
        case((SearchRecord.status == SearchStatus.QUEUED, position), else_=None),
    )


def confirmed_number(key: Any) -> Any:
    """The trial that the newest confirmation of the search with that `key` confirmed, else null."""
    number = case((ConfirmationRecord.confirmed, ConfirmationRecord.number), else_=None)
    return (
        select(number)
        .where(ConfirmationRecord.search_key == key)
        .order_by(ConfirmationRecord.key.desc())
        .limit(1)
        .correlate(SearchRecord)
        .scalar_subquery()
    )


def search_row(session: Session, search_id: str) -> SearchRow:
    """The search as lists show it; UsageError `unknown_search`."""
    record = search_record(session, search_id)
    session.refresh(record)
    return _search_row(*session.execute(_with_best().where(SearchRecord.key == record.key)).one())


def _search_row(
    record: SearchRecord,
    best_time_us: float | None,
    time_kind: str | None,
    time_mode: str | None,
    queue_position: int | None,
) -> SearchRow:
    plan = convert.plan_of(record.plan)
    return SearchRow(
        id=record.id,
        name=record.name,
        kernel=record.kernel,
        status=record.status,
        target=record.target,
        strategy=record.strategy,
        workloads=plan.workloads,
        templates=plan.templates,
        baseline=plan.baseline,
        seed=plan.seed,
        min_gain=plan.min_gain,
        trials_budget=plan.trials,
        seconds_budget=plan.seconds,
        trials_done=record.trials_done,
        created_at=utc(record.created_at),
        started_at=utc_or_none(record.started_at),
        finished_at=utc_or_none(record.finished_at),
        spent_s=record.spent_s,
        why="; ".join(filter(None, (record.why, record.closing))),
        cause=record.why,
        closing=record.closing,
        wanted=None if record.wanted == "resume" else record.wanted,
        worker=record.worker,
        best_time_us=best_time_us,
        time_kind=time_kind,
        time_mode=time_mode,
        mode=plan.mode,
        queue_position=queue_position,
        weights=plan.weights,
        gpu_seconds_budget=plan.gpu_seconds,
        gpu_spent_s=record.gpu_spent_s,
    )
