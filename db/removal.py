"""Removing searches and trials for good, with everything that only they refer to.

What a champion refers to stays, former champions included: its trial, the confirmation that it
rests on, and the trials and peers beside which it was timed. The searches of a tuning go together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, cast

from sqlalchemy import CursorResult, Delete, delete, or_, select
from sqlalchemy.orm import Session

from greenfast.db import convert
from greenfast.db.base import Part, search_record
from greenfast.db.models import (
    ChampionRecord,
    ConfirmationRecord,
    EnvironmentRecord,
    EvidenceRecord,
    KernelFileRecord,
    LedgerNoteRecord,
    ManifestRecord,
    PeerRecord,
    SearchRecord,
    SourceRecord,
    TrialRecord,
    TuningRecord,
    TuningSearchRecord,
)
from greenfast.db.paging import parts_of
from greenfast.db.trials import trial_record
from greenfast.search.errors import UsageError
from greenfast.search.loop.comparison import Confirmation
from greenfast.search.status import ENDED, SearchStatus

Named = tuple[str, int | None]  # a search, or a trial of one


@dataclass(frozen=True)
class Removal:
    """The numbers of removed rows, and of those that stay because a champion refers to them."""

    tunings: int = 0
    searches: int = 0
    trials: int = 0
    sources: int = 0
    confirmations: int = 0
    peers: int = 0
    kernel_files: int = 0
    kept: tuple[str, ...] = ()  # "SEARCH/NUMBER" of each trial that stays

    def __add__(self, other: Removal) -> Removal:
        return Removal(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Removal)))


class _Rehearsed(Exception):
    """Rolls a rehearsal back."""


class Removals(Part):
    """The part of the store that removes searches and trials."""

    def rehearse_removal(self, names: Sequence[Named]) -> Removal:
        """The result that `remove` would have; raises the same UsageErrors."""
        removal = Removal()
        try:
            with self._database.writing() as session:
                removal = _remove(session, names)
                raise _Rehearsed
        except _Rehearsed:
            return removal

    def remove(self, names: Sequence[Named]) -> Removal:
        """Remove searches, and single trials of ended searches; all of them or none.

        UsageError `search_running`, `search_not_ended`, `trial_kept`, `search_of_tuning`,
        `unknown_search`, `unknown_trial`.
        """
        with self._database.writing() as session:
            return _remove(session, names)


def _remove(session: Session, names: Sequence[Named]) -> Removal:
    whole = list(dict.fromkeys(search for search, number in names if number is None))
    single = [name for name in dict.fromkeys(names) if name[1] is not None and name[0] not in whole]
    records = {name: search_record(session, name, lock=True) for name, _ in names}
    for record in records.values():
        if record.status == SearchStatus.RUNNING:
            raise UsageError(
                f"search {record.id} is running, so nothing of it can be removed",
                code="search_running",
                mend=f"`greenfast cancel {record.id}` ends it",
            )
    done = Removal(tunings=_remove_tunings(session, records, whole))
    for search_id, number in single:
        done += _remove_trial(session, records[search_id], cast(int, number))
    for search_id in whole:
        done += _remove_search(session, records[search_id])
    return done + _remove_orphans(session)


def _remove_tunings(
    session: Session, records: Mapping[str, SearchRecord], whole: Collection[str]
) -> int:
    """Remove the tunings of these searches; UsageError if one would lose a part of them."""
    keys = [record.key for record in records.values()]
    tuning_keys: set[int] = set()
    for part in parts_of(keys):
        in_part = TuningSearchRecord.search_key.in_(part)
        tuning_keys |= set(session.scalars(select(TuningSearchRecord.tuning_key).where(in_part)))
    for key in sorted(tuning_keys):
        members = session.scalars(
            select(SearchRecord.id)
            .join(TuningSearchRecord, TuningSearchRecord.search_key == SearchRecord.key)
            .where(TuningSearchRecord.tuning_key == key)
            .order_by(TuningSearchRecord.position)
        ).all()
        if not set(members) <= set(whole):
            tuning_id = session.get_one(TuningRecord, key).id
            named = next(search_id for search_id in members if search_id in records)
            raise UsageError(
                f"search {named} belongs to tuning {tuning_id}, whose bundle needs all of its "
                "searches with all of their trials",
                code="search_of_tuning",
                mend=f"`greenfast rm {' '.join(members)}` removes the tuning with its searches",
            )
        of_it = TuningSearchRecord.tuning_key == key
        session.execute(delete(TuningSearchRecord).where(of_it), **_PLAIN)
        session.execute(delete(TuningRecord).where(TuningRecord.key == key), **_PLAIN)
    return len(tuning_keys)


def _remove_search(session: Session, record: SearchRecord) -> Removal:
    kept = _kept_numbers(session, record.key)
    numbers = [
        number
        for number in session.scalars(
            select(TrialRecord.number).where(TrialRecord.search_key == record.key)
        )
        if number not in kept
    ]
    of_it = ConfirmationRecord.search_key == record.key
    others = ConfirmationRecord.number.not_in(kept) if kept else of_it
    confirmations = _count(session, delete(ConfirmationRecord).where(of_it, others))
    peers = 0
    if not kept:
        peers = _count(session, delete(PeerRecord).where(PeerRecord.search_key == record.key))
    trials = _delete_trials(session, record, numbers)
    if not kept:
        session.execute(delete(SearchRecord).where(SearchRecord.key == record.key), **_PLAIN)
    return Removal(
        searches=0 if kept else 1,
        trials=trials,
        confirmations=confirmations,
        peers=peers,
        kept=tuple(f"{record.id}/{number}" for number in sorted(kept)),
    )


def _remove_trial(session: Session, record: SearchRecord, number: int) -> Removal:
    trial = trial_record(session, record.id, number)
    if record.status not in ENDED:
        raise UsageError(
            f"search {record.id} is {record.status}, and may continue from its trials",
            code="search_not_ended",
            mend=f"`greenfast cancel {record.id}` ends it",
        )
    if trial.is_baseline:
        why = "it is the baseline that the others are compared with"
    elif number in _kept_numbers(session, record.key):
        why = "a champion refers to it"
    elif number in _confirmed_numbers(session, record.key):
        why = "the search's confirmation refers to it"
    else:
        return Removal(trials=_delete_trials(session, record, [number]))
    raise UsageError(
        f"trial {number} of search {record.id} cannot be removed: {why}",
        code="trial_kept",
        mend=f"`greenfast rm {record.id}` removes the whole search",
    )


def _delete_trials(session: Session, record: SearchRecord, numbers: Sequence[int]) -> int:
    removed = 0
    for part in parts_of(numbers):
        # Evidence and notes refer to their trial.
        for kind in (EvidenceRecord, LedgerNoteRecord, TrialRecord):
            of_part = kind.search_key == record.key, kind.number.in_(part)
            count = _count(session, delete(kind).where(*of_part))
            removed += count if kind is TrialRecord else 0
    record.trials_done = len(
        session.scalars(
            select(TrialRecord.number).where(
                TrialRecord.search_key == record.key, TrialRecord.verdict.is_not(None)
            )
        ).all()
    )
    session.flush()
    return removed


def _kept_numbers(session: Session, key: int) -> set[int]:
    """The trials to which champions of the search refer, by themselves or by comparison."""
    champions = select(ChampionRecord.number, ChampionRecord.confirmation_key).where(
        ChampionRecord.search_key == key
    )
    kept: set[int] = set()
    for number, confirmation_key in session.execute(champions):
        kept |= {number} | _numbers_of(session.get_one(ConfirmationRecord, confirmation_key))
    if kept:
        baseline = TrialRecord.search_key == key, TrialRecord.is_baseline
        kept |= set(session.scalars(select(TrialRecord.number).where(*baseline)))
    return kept


def _confirmed_numbers(session: Session, key: int) -> set[int]:
    confirmations = session.scalars(
        select(ConfirmationRecord).where(ConfirmationRecord.search_key == key)
    )
    return {number for record in confirmations for number in _numbers_of(record)}


def _numbers_of(record: ConfirmationRecord) -> set[int]:
    """The winner, and the trials with which it was compared."""
    confirmation = convert.value_of("confirmation", Confirmation, record.confirmation)
    others = {comparison.other_trial for comparison in confirmation.comparisons}
    return {record.number} | {number for number in others if number is not None}


def _remove_orphans(session: Session) -> Removal:
    """Remove texts that nothing refers to any more."""
    sources = _count(
        session,
        delete(SourceRecord).where(
            SourceRecord.digest.not_in(_references(TrialRecord.source_digest))
        ),
    )
    session.execute(
        delete(ManifestRecord).where(
            ManifestRecord.digest.not_in(_references(SearchRecord.manifest_digest))
        ),
        **_PLAIN,
    )
    needed = {
        digest
        for files in session.scalars(select(ManifestRecord.files))
        for _, digest in convert.pairs_of("files", files)
    }
    stored = session.scalars(select(KernelFileRecord.digest)).all()
    unused = [digest for digest in stored if digest not in needed]
    kernel_files = sum(
        _count(session, delete(KernelFileRecord).where(KernelFileRecord.digest.in_(part)))
        for part in parts_of(unused)
    )
    named = (SearchRecord, TrialRecord, ConfirmationRecord, PeerRecord)
    in_use = or_(
        *(EnvironmentRecord.digest.in_(_references(kind.environment_digest)) for kind in named)
    )
    session.execute(delete(EnvironmentRecord).where(~in_use), **_PLAIN)
    return Removal(sources=sources, kernel_files=kernel_files)


def _references(column: Any) -> Any:
    return select(column).where(column.is_not(None))


_PLAIN: dict[str, Any] = {"execution_options": {"synchronize_session": False}}


def _count(session: Session, statement: Delete) -> int:
    return cast("CursorResult[Any]", session.execute(statement, **_PLAIN)).rowcount
