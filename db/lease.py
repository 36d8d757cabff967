"""The two conditions of coordination: a lease that ran out, and a claim that still holds."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, bindparam, case, func, or_, update
from sqlalchemy.orm import Session
from sqlalchemy.sql.dml import ReturningUpdate

from greenfast.db.dialects import now_s
from greenfast.db.faults import LeaseLost
from greenfast.db.models import SearchRecord, table_of
from greenfast.db.rows import Claim
from greenfast.search.status import SearchStatus

CANCELLED_LEASE_S = 5.0  # at most, once a cancel was requested: its trials need no waiting for

_searches = table_of(SearchRecord)


def is_expired() -> ColumnElement[bool]:
    """The worker renewed nothing for the length of its lease, or the clock moved by as much."""
    silent_s = func.abs(now_s() - SearchRecord.renewed_at)
    is_short = and_(SearchRecord.wanted == "cancel", SearchRecord.lease_s > CANCELLED_LEASE_S)
    lease_s = case((is_short, CANCELLED_LEASE_S), else_=SearchRecord.lease_s)
    return and_(SearchRecord.status == SearchStatus.RUNNING, silent_s >= lease_s)


def is_claimable() -> ColumnElement[bool]:
    return or_(SearchRecord.status == SearchStatus.QUEUED, is_expired())


def is_held() -> ColumnElement[bool]:
    """Nobody claimed the search later or ended it. An expired lease still holds until then."""
    return and_(
        _searches.c.id == bindparam("claimed"),
        _searches.c.fence == bindparam("claimed_fence"),
        _searches.c.status == SearchStatus.RUNNING,
    )


def claimed(claim: Claim) -> dict[str, Any]:
    """The parameters of `is_held`."""
    return {"claimed": claim.search_id, "claimed_fence": claim.fence}


def hold(
    transaction: Session | Connection,
    claim: Claim,
    returning: tuple[str, ...] = ("key",),
    **values: Any,
) -> tuple[Any, ...]:
    """The fence, first in a transaction: renew the lease, or LeaseLost before any write.

    `returning`: the columns of the search whose values are returned. `values`: columns to set.
    """
    statement = _hold(returning)
    connection = transaction.connection() if isinstance(transaction, Session) else transaction
    row = connection.execute(
        statement.values(**values) if values else statement, claimed(claim)
    ).first()
    if row is None:
        raise lease_lost(claim)
    return tuple(row)


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
        f"worker {claim.worker} no longer holds search {claim.search_id}: another worker "
        "took it over, or the search was ended",
        mend="the other worker repeats the trials that were in flight",
    )
