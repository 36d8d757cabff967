"""Who times on which GPU: a lease a GPU, by its UUID, among all workers of one database."""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, func, or_, select, update

from greenfast.db import convert
from greenfast.db.base import Part
from greenfast.db.dialects import insert_once, now_s
from greenfast.db.faults import DeviceLost
from greenfast.db.models import DeviceLeaseRecord
from greenfast.db.rows import DeviceLease

WANTED_S = 5.0  # how long it counts that another worker asked
ASKED_AGAIN_S = 1.0  # a waiting worker says so not more often

_WITHOUT_SESSION = {"synchronize_session": False}


class Devices(Part):
    """The part of the store that lets one worker at a time have a GPU."""

    def lease_device(self, uuid: str, worker: str, lease_s: float) -> DeviceLease | None:
        """Take the GPU if nobody has it, or who has was silent for its lease; None, and noted as wanted, if not."""
        uuid, worker = convert.storable(uuid), convert.storable(worker)
        its_row = DeviceLeaseRecord.uuid == uuid
        with (
            self._database.reading() as session
        ):  # a waiting worker asks often and should hold up no writer
            found = session.execute(select(_is_free(), _asked_lately()).where(its_row)).first()
        if found is not None and not found[0] and found[1]:
            return None
        with self._database.writing() as session:
            insert_once(
                session,
                DeviceLeaseRecord,
                {"uuid": uuid, "fence": 0, "renewed_at": now_s(), "lease_s": 0.0},
            )
            fence = session.scalar(
                update(DeviceLeaseRecord)
                .where(its_row, _is_free())
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
                    update(DeviceLeaseRecord).where(its_row).values(wanted_at=now_s()),
                    execution_options=_WITHOUT_SESSION,
                )
                return None
        return DeviceLease(uuid, worker, fence)

    def renew_device(self, lease: DeviceLease, lease_s: float) -> bool:
        """A sign of life; True when another worker waits for the GPU. DeviceLost when another has it."""
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
                f"worker {lease.worker} does not hold GPU {lease.uuid} any more: another worker has "
                "taken it over",
                mend="what it timed meanwhile is timed again",
            )
        return bool(row[0])

    def release_device(self, lease: DeviceLease) -> None:
        """Let the next have it; nothing happens when it was lost meanwhile."""
        with self._database.writing() as session:
            session.execute(
                update(DeviceLeaseRecord).where(_is_held(lease)).values(worker=None),
                execution_options=_WITHOUT_SESSION,
            )

    def device_holder(self, uuid: str) -> str | None:
        """The worker that has the GPU now."""
        with self._database.reading() as session:
            return session.scalar(
                select(DeviceLeaseRecord.worker).where(
                    DeviceLeaseRecord.uuid == convert.storable(uuid), ~_is_free()
                )
            )


def _is_free() -> ColumnElement[bool]:
    """Nobody has it, or no sign of life for as long as the lease, also when the clock was set back meanwhile."""
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
