"""The workers that are alive by the database's clock, and the number of queued searches."""

from __future__ import annotations

from sqlalchemy import delete, func, select, update

from greenfast.db import convert
from greenfast.db.base import Part
from greenfast.db.dialects import insert_once, now_s
from greenfast.db.models import SearchRecord, WorkerRecord
from greenfast.db.rows import QueueState
from greenfast.search.status import SearchStatus

ALIVE_S = 15.0  # a worker that was silent for longer counts as gone
FORGOTTEN_S = 86_400.0  # its row is deleted after this time

_WITHOUT_SESSION = {"synchronize_session": False}


class Workers(Part):
    """The part of the store that knows the workers of the queue."""

    def worker_seen(self, worker: str) -> None:
        """Note that a worker is alive."""
        name = convert.storable(worker)
        with self._database.writing() as session:
            insert_once(session, WorkerRecord, {"name": name, "seen_at": now_s()})
            session.execute(
                update(WorkerRecord).where(WorkerRecord.name == name).values(seen_at=now_s()),
                execution_options=_WITHOUT_SESSION,
            )
            silent_s = func.abs(now_s() - WorkerRecord.seen_at)
            session.execute(
                delete(WorkerRecord).where(silent_s > FORGOTTEN_S),
                execution_options=_WITHOUT_SESSION,
            )

    def worker_gone(self, worker: str) -> None:
        """Note that a worker takes no more searches."""
        with self._database.writing() as session:
            session.execute(
                delete(WorkerRecord).where(WorkerRecord.name == convert.storable(worker)),
                execution_options=_WITHOUT_SESSION,
            )

    def queue_state(self, alive_s: float = ALIVE_S) -> QueueState:
        """How many searches are queued, and how many workers were seen within `alive_s`."""
        queued = (
            select(func.count()).where(SearchRecord.status == SearchStatus.QUEUED).scalar_subquery()
        )
        silent_s = func.abs(now_s() - WorkerRecord.seen_at)
        alive = (
            select(func.count())
            .select_from(WorkerRecord)
            .where(silent_s < alive_s)
            .scalar_subquery()
        )
        with self._database.reading() as session:
            return QueueState(*session.execute(select(queued, alive)).one())
