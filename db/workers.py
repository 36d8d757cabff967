"""Which workers are alive, by the database's clock, and what waits for them."""

from __future__ import annotations

from sqlalchemy import delete, func, select, update

from greenfast.db import convert
from greenfast.db.base import Part
from greenfast.db.dialects import insert_once, now_s
from greenfast.db.models import SearchRecord, WorkerRecord
from greenfast.db.rows import QueueState

ALIVE_S = 15.0  # without a sign of life for so long, a worker counts as gone
FORGOTTEN_S = 86_400.0

_WITHOUT_SESSION = {"synchronize_session": False}


class Workers(Part):
    """The part of the store that knows the workers that take searches from the queue."""

    def worker_seen(self, worker: str) -> None:
        """A sign of life."""
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
        """The worker takes no search any more."""
        with self._database.writing() as session:
            session.execute(
                delete(WorkerRecord).where(WorkerRecord.name == convert.storable(worker)),
                execution_options=_WITHOUT_SESSION,
            )

    def queue_state(self) -> QueueState:
        """How many searches are queued, and how many workers were seen lately."""
        queued = select(func.count()).where(SearchRecord.status == "queued").scalar_subquery()
        silent_s = func.abs(now_s() - WorkerRecord.seen_at)
        alive = (
            select(func.count())
            .select_from(WorkerRecord)
            .where(silent_s < ALIVE_S)
            .scalar_subquery()
        )
        with self._database.reading() as session:
            return QueueState(*session.execute(select(queued, alive)).one())
