"""The two conditions that coordination rests on: a lease that ran out, and a claim that still holds."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, bindparam, func, or_, update
from sqlalchemy.orm import Session
from sqlalchemy.sql.dml import ReturningUpdate

from greenfast.db.dialects import now_s
from greenfast.db.faults import LeaseLost
from greenfast.db.models import SearchRecord
from greenfast.db.rows import Claim

_searches = SearchRecord.__table__


def is_expired() -> ColumnElement[bool]:
    """No sign of life for as long as the lease, also when the clock was set back meanwhile."""
    silent_s = func.abs(now_s() - SearchRecord.renewed_at)
    return and_(SearchRecord.status == "running", silent_s >= SearchRecord.lease_s)


def is_claimable() -> ColumnElement[bool]:
    return or_(SearchRecord.status == "queued", is_expired())


def is_held() -> ColumnElement[bool]:
    """Nobody claimed the search later or ended it. That the lease ran out meanwhile does not matter then."""
    return and_(
        _searches.c.id == bindparam("claimed"),
        _searches.c.fence == bindparam("claimed_fence"),
        _searches.c.status == "running",
    )


def claimed(claim: Claim) -> dict[str, Any]:
    """The parameters of `is_held`."""
    return {"claimed": claim.search_id, "claimed_fence": claim.fence}


def hold(
    session: Session, claim: Claim, returning: tuple[str, ...] = ("key",), **values: Any
) -> Row[Any]:
    """The fence, first in a transaction: renew the lease, or LeaseLost before anything is written."""
    statement = _hold(returning)
    row = session.execute(
        statement.values(**values) if values else statement, claimed(claim)
    ).first()
    if row is None:
        raise lease_lost(claim)
    return row


@cache
def _hold(returning: tuple[str, ...]) -> ReturningUpdate[Any]:
    return (
        update(_searches)
        .where(is_held())
        .values(renewed_at=now_s())
        .returning(*(_searches.c[name] for name in returning))
    )


def lease_lost(claim: Claim) -> LeaseLost:
    return LeaseLost(
        f"worker {claim.worker} does not hold search {claim.search_id} any more: another worker "
        "has taken it over, or it was ended",
        mend="what this worker had in flight is tried again by the other",
    )
