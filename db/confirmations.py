"""Confirmations of winners, and the peers that they were compared with."""

from __future__ import annotations

from sqlalchemy import delete, insert, select, update
from sqlalchemy.orm import Session

from greenfast.db import convert
from greenfast.db.base import Part, search_key, utc
from greenfast.db.dialects import now_s
from greenfast.db.lease import hold
from greenfast.db.models import (
    ChampionRecord,
    ConfirmationRecord,
    EnvironmentRecord,
    PeerRecord,
    TrialRecord,
)
from greenfast.db.rows import Claim, ConfirmationRow, PeerRow
from greenfast.db.trials import environment_of
from greenfast.search.errors import Fault
from greenfast.search.loop.comparison import Confirmation, Peer

Checks = tuple[tuple[str, str], ...]  # (name, digest) of each


class Confirmations(Part):
    """The part of the store that holds confirmations and peers."""

    def record_confirmation(self, claim: Claim, confirmation: Confirmation) -> None:
        """Store the winner's times in fresh processes. The newest counts; earlier ones stay."""
        with self._database.writing() as session:
            key, environment = hold(session, claim, ("key", "environment_digest"))
            trial = session.get(TrialRecord, (key, confirmation.trial))
            if trial is None or trial.verdict is None:
                raise Fault(
                    f"trial {confirmation.trial} of search {claim.search_id} is not recorded, so "
                    "it cannot be confirmed",
                    code="trial_not_recorded",
                )
            written = session.scalar(
                insert(ConfirmationRecord)
                .values(
                    search_key=key,
                    number=confirmation.trial,
                    confirmed=confirmation.confirmed,
                    confirmation=convert.value_json("confirmation", confirmation),
                    environment_digest=environment,
                    recorded_at=now_s(),
                )
                .returning(ConfirmationRecord.key)
            )
            if confirmation.confirmed:
                recheck_champion(session, session.get_one(ConfirmationRecord, written))

    def record_peer(self, claim: Claim, peer: Peer) -> None:
        """Store a peer of the winner. It replaces an earlier one of its name and workload."""
        with self._database.writing() as session:
            key, environment = hold(session, claim, ("key", "environment_digest"))
            identity = {
                "search_key": key,
                "workload": convert.storable(peer.workload),
                "name": convert.storable(peer.name),
            }
            session.execute(delete(PeerRecord).filter_by(**identity))
            session.execute(
                insert(PeerRecord).values(
                    **identity,
                    peer=convert.value_json("peer", peer),
                    environment_digest=environment,
                    recorded_at=now_s(),
                )
            )

    def confirmation(self, search_id: str) -> ConfirmationRow | None:
        """The newest of the search; None when its winner was not timed again."""
        with self._database.reading() as session:
            record = session.scalars(
                select(ConfirmationRecord)
                .where(ConfirmationRecord.search_key == search_key(session, search_id))
                .order_by(ConfirmationRecord.key.desc())
                .limit(1)
            ).first()
            return confirmation_row(session, record, search_id) if record else None

    def peers(self, search_id: str) -> tuple[PeerRow, ...]:
        """The search's peers by workload, then name."""
        with self._database.reading() as session:
            return peers_of(session, search_key(session, search_id), search_id)


def confirmation_row(
    session: Session, record: ConfirmationRecord, search_id: str
) -> ConfirmationRow:
    environment = (
        session.get(EnvironmentRecord, record.environment_digest)
        if record.environment_digest
        else None
    )
    return ConfirmationRow(
        search_id,
        convert.value_of("confirmation", Confirmation, record.confirmation),
        utc(record.recorded_at),
        record.environment_digest,
        environment_of(environment),
    )


def peers_of(session: Session, key: int, search_id: str) -> tuple[PeerRow, ...]:
    rows = session.scalars(
        select(PeerRecord)
        .where(PeerRecord.search_key == key)
        .order_by(PeerRecord.workload, PeerRecord.name)
    )
    return tuple(
        PeerRow(
            search_id,
            convert.value_of("peer", Peer, row.peer),
            utc(row.recorded_at),
            row.environment_digest,
        )
        for row in rows
    )


def recheck_champion(session: Session, confirmation: ConfirmationRecord) -> None:
    """Let a champion rest on its newest confirmation, and record the checks that it passed."""
    session.execute(
        update(ChampionRecord)
        .where(
            ChampionRecord.search_key == confirmation.search_key,
            ChampionRecord.number == confirmation.number,
            ChampionRecord.replaced_at.is_(None),
        )
        .values(
            confirmation_key=confirmation.key, checks=checks_json(passed_checks_of(confirmation))
        ),
        execution_options={"synchronize_session": False},
    )


def passed_checks_of(confirmation: ConfirmationRecord) -> Checks | None:
    return convert.value_of("confirmation", Confirmation, confirmation.confirmation).checks


def checks_json(checks: Checks | None) -> str | None:
    return convert.pairs_json("checks", checks) if checks is not None else None
