"""GPU leases: one for each GPU, by its UUID, among all workers of one database."""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, func, or_, select, update

from greenfast.db import convert
from greenfast.db.base import Part
from greenfast.db.dialects import insert_once, now_s
from greenfast.db.faults import DeviceLost
from greenfast.db.models import DeviceLeaseRecord
from greenfast.db.rows import DeviceLease

WANTED_S = 5.0  # how long the request of another worker counts
ASKED_AGAIN_S = 1.0  # a waiting worker repeats its request no more often

_WITHOUT_SESSION = {"synchronize_session": False}


class Devices(Part):
    """The part of the store that gives a GPU to one worker at a time."""

    def lease_device(self, uuid: str, worker: str, lease_s: float) -> DeviceLease | None:
        """Take the GPU if it is free or its lease ran out; else note the request, return None."""
        uuid, worker = convert.storable(uuid), convert.storable(worker)
        of_the_gpu = DeviceLeaseRecord.uuid == uuid
        # Waiting workers ask often, so they look without holding up any writer.
        with self._database.reading() as session:
            state = session.execute(select(_is_free(), _asked_lately()).where(of_the_gpu)).first()
        if state is not None and not state[0] and state[1]:
            return None
        with self._database.writing() as session:
            insert_once(
                session,
                DeviceLeaseRecord,
                {"uuid": uuid, "fence": 0, "renewed_at": now_s(), "lease_s": 0.0},
            )
            fence = session.scalar(
                update(DeviceLeaseRecord)
                .where(of_the_gpu, _is_free())
                .values(
                    worker=worker,
                    fence=DeviceLeaseRecord.fence + 1,
                    renewed_at=now_s(),
                    lease_s=lease_s,
                    wanted_at=None,
                )
                .returning(DeviceLeaseRecord.fence),
                execution_options=_WITHOUT_SESSION,
            )
            if fence is None:
                session.execute(
                    update(DeviceLeaseRecord).where(of_the_gpu).values(wanted_at=now_s()),
                    execution_options=_WITHOUT_SESSION,
                )
                return None
        return DeviceLease(uuid, worker, fence)

    def renew_device(self, lease: DeviceLease, lease_s: float) -> bool:
        """Renew the lease; True when another worker waits. DeviceLost when another one has it."""
        with self._database.writing() as session:
            row = session.execute(
                update(DeviceLeaseRecord)
                .where(_is_held(lease))
                .values(renewed_at=now_s(), lease_s=lease_s)
                .returning(func.coalesce(now_s() - DeviceLeaseRecord.wanted_at < WANTED_S, False)),
                execution_options=_WITHOUT_SESSION,
            ).first()
        if row is None:
            raise DeviceLost(
                f"worker {lease.worker} no longer holds GPU {lease.uuid}: another worker took it "
                "over",
                mend="times that were measured meanwhile are measured again",
            )
        return bool(row[0])

    def release_device(self, lease: DeviceLease) -> None:
        """Free the GPU for the next worker; does nothing when the lease was lost."""
        with self._database.writing() as session:
            session.execute(
                update(DeviceLeaseRecord).where(_is_held(lease)).values(worker=None),
                execution_options=_WITHOUT_SESSION,
            )

    def device_holder(self, uuid: str) -> str | None:
        """The worker that has the GPU; None when it is free."""
        holder = select(DeviceLeaseRecord.worker).where(
            DeviceLeaseRecord.uuid == convert.storable(uuid), ~_is_free()
        )
        with self._database.reading() as session:
            return session.scalar(holder)


def _is_free() -> ColumnElement[bool]:
    """No worker has it, or its worker renewed nothing for the length of its lease.

    A clock that was set back counts, too.
    """
    silent_s = func.abs(now_s() - DeviceLeaseRecord.renewed_at)
    return or_(DeviceLeaseRecord.worker.is_(None), silent_s >= DeviceLeaseRecord.lease_s)


def _asked_lately() -> ColumnElement[bool]:
    return func.coalesce(func.abs(now_s() - DeviceLeaseRecord.wanted_at) < ASKED_AGAIN_S, False)


def _is_held(lease: DeviceLease) -> ColumnElement[bool]:
    return and_(
        DeviceLeaseRecord.uuid == lease.uuid,
        DeviceLeaseRecord.fence == lease.fence,
        DeviceLeaseRecord.worker.is_not(None),
    )
