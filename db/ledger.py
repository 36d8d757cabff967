"""The ledger's own records: notes about trials, known verdicts of a scope, foreign records."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import ColumnElement, delete, insert, select, update

from greenfast.db.base import Part, search_key, utc
from greenfast.db.dialects import insert_once, now_s, one_at_a_time
from greenfast.db.models import (
    EnvironmentRecord,
    ForeignRecord,
    LedgerNoteRecord,
    SearchRecord,
    TrialRecord,
)
from greenfast.db.paging import parts_of
from greenfast.db.trials import environment_of, trial_record
from greenfast.search.errors import Fault


class NoteKind(StrEnum):
    ARM = "arm"  # of an ablation, `name`: parameter=value
    EXPLANATION = "explanation"
    RECHECK = "recheck"
    REUSE = "reuse"  # the trial repeats another one, of this search or of another
    RUN = "run"  # `name`: a run of `greenfast evolve` that counts a trial of another search


@dataclass(frozen=True)
class Note:
    search_id: str
    number: int
    kind: str
    name: str
    note: str  # JSON
    recorded_at: str


@dataclass(frozen=True)
class KnownTrial:
    """A recorded trial of another search, whose verdict may be repeated."""

    search_id: str
    number: int
    template: str
    candidate_digest: str
    source_digest: str | None
    verdict: str
    stage: str | None
    reason: str | None
    ratio_to_baseline: float | None
    is_baseline: bool
    candidate: str  # JSON
    machine_code: str | None


@dataclass(frozen=True)
class KindredSearch:
    """Another search of the same kernel on the same target."""

    search_id: str
    plan: str  # JSON
    manifest_digest: str | None
    environment: dict[str, str]  # of its latest claim


@dataclass(frozen=True)
class ForeignRow:
    """A record that another ledger holds. Nothing here was measured by this database."""

    digest: str
    ledger_digest: str
    kernel: str
    record: str  # JSON
    imported_at: str


class Ledger(Part):
    """The part of the store that holds notes and foreign records."""

    def note(
        self, search_id: str, number: int, kind: NoteKind, note: str, *, name: str = ""
    ) -> None:
        """Store a note about a trial; it replaces one of that kind and name."""
        with self._database.writing() as session:
            key = trial_record(session, search_id, number).search_key
            identity = {"search_key": key, "number": number, "kind": str(kind), "name": name}
            written = session.execute(
                update(LedgerNoteRecord)
                .where(
                    *(
                        getattr(LedgerNoteRecord, field) == value
                        for field, value in identity.items()
                    )
                )
                .values(note=note, recorded_at=now_s())
                .returning(LedgerNoteRecord.name),
                execution_options={"synchronize_session": False},
            ).first()
            if written is None:
                session.execute(
                    insert(LedgerNoteRecord).values(**identity, note=note, recorded_at=now_s())
                )

    def notes(self, search_id: str, kind: NoteKind, number: int | None = None) -> tuple[Note, ...]:
        """The notes of a search, or of one trial, in the order in which they were stored."""
        with self._database.reading() as session:
            query = select(LedgerNoteRecord).where(
                LedgerNoteRecord.search_key == search_key(session, search_id),
                LedgerNoteRecord.kind == str(kind),
            )
            if number is not None:
                query = query.where(LedgerNoteRecord.number == number)
            rows = session.scalars(
                query.order_by(LedgerNoteRecord.recorded_at, LedgerNoteRecord.name)
            ).all()
            return tuple(
                Note(search_id, row.number, row.kind, row.name, row.note, utc(row.recorded_at))
                for row in rows
            )

    def noted(self, kernel: str, kind: NoteKind, name: str) -> tuple[Note, ...]:
        """The notes of that kind and name on a kernel's trials, the first first."""
        with self._database.reading() as session:
            rows = session.execute(
                select(LedgerNoteRecord, SearchRecord.id)
                .join(SearchRecord, SearchRecord.key == LedgerNoteRecord.search_key)
                .where(
                    SearchRecord.kernel == kernel,
                    LedgerNoteRecord.kind == str(kind),
                    LedgerNoteRecord.name == name,
                )
                .order_by(LedgerNoteRecord.recorded_at, SearchRecord.key)
            ).all()
            return tuple(
                Note(search_id, row.number, row.kind, row.name, row.note, utc(row.recorded_at))
                for row, search_id in rows
            )

    def forget_notes(self, search_id: str, number: int, kind: NoteKind) -> None:
        """Remove a trial's notes of one kind."""
        with self._database.writing() as session:
            key = trial_record(session, search_id, number).search_key
            session.execute(
                delete(LedgerNoteRecord).where(
                    LedgerNoteRecord.search_key == key,
                    LedgerNoteRecord.number == number,
                    LedgerNoteRecord.kind == str(kind),
                ),
                execution_options={"synchronize_session": False},
            )

    def kindred(self, search_id: str) -> tuple[KindredSearch, ...]:
        """This search first, then the others of its kernel and target, oldest first.

        All GPUs count as one target: the environments tell their models apart.
        """
        with self._database.reading() as session:
            own = session.get_one(SearchRecord, search_key(session, search_id))
            rows = session.execute(
                select(SearchRecord, EnvironmentRecord)
                .outerjoin(
                    EnvironmentRecord, EnvironmentRecord.digest == SearchRecord.environment_digest
                )
                .where(SearchRecord.kernel == own.kernel, _same_kind(own.target))
                .order_by(SearchRecord.key)
            ).all()
            searches = [
                KindredSearch(
                    record.id, record.plan, record.manifest_digest, environment_of(environment)
                )
                for record, environment in rows
            ]
        return tuple(sorted(searches, key=lambda search: search.search_id != search_id))

    def known_trials(self, search_ids: Collection[str]) -> tuple[KnownTrial, ...]:
        """The recorded trials of these searches, oldest first. Faulted ones tell nothing.

        Neither do those from before a search was resumed in another environment.
        """
        known: list[tuple[int, KnownTrial]] = []
        with self._database.reading() as session:
            for part in parts_of(search_ids):
                rows = session.execute(
                    select(SearchRecord.id, TrialRecord)
                    .join(SearchRecord, SearchRecord.key == TrialRecord.search_key)
                    .where(
                        SearchRecord.id.in_(part),
                        TrialRecord.environment_digest == SearchRecord.environment_digest,
                        TrialRecord.verdict.is_not(None),
                        TrialRecord.verdict != "faulted",
                    )
                )
                known += [(trial.search_key, _known(name, trial)) for name, trial in rows]
        ordered = sorted(known, key=lambda pair: (pair[0], pair[1].number))
        return tuple(trial for _, trial in ordered)

    def import_foreign(self, ledger_digest: str, records: Iterable[tuple[str, str, str]]) -> int:
        """Store (digest, kernel, record) of another ledger, all or none; returns how many are new.

        A record that is here already stays as it is.
        """
        new = 0
        with self._database.writing() as session:
            one_at_a_time(session, "foreign_records")
            for digest, kernel, record in records:
                known = session.scalar(
                    select(ForeignRecord.record).where(ForeignRecord.digest == digest)
                )
                if known is not None and known != record:
                    raise Fault(
                        f"two foreign records have the digest {digest}", code="foreign_digest"
                    )
                new += known is None
                values = {
                    "digest": digest,
                    "ledger_digest": ledger_digest,
                    "kernel": kernel,
                    "record": record,
                    "imported_at": now_s(),
                }
                insert_once(session, ForeignRecord, values)
        return new

    def foreign(self, kernel: str | None = None, limit: int = 500) -> tuple[ForeignRow, ...]:
        """Records of other ledgers, newest first."""
        query = select(ForeignRecord).order_by(ForeignRecord.key.desc()).limit(limit)
        if kernel is not None:
            query = query.where(ForeignRecord.kernel == kernel)
        with self._database.reading() as session:
            return tuple(
                ForeignRow(
                    row.digest, row.ledger_digest, row.kernel, row.record, utc(row.imported_at)
                )
                for row in session.scalars(query)
            )


def _same_kind(target: str) -> ColumnElement[bool]:
    """Whether a search ran on this target, or on any GPU where this is a GPU."""
    gpus = "cuda:"
    if target.startswith(gpus):
        return SearchRecord.target.startswith(gpus)
    return SearchRecord.target == target


def _known(search_id: str, trial: TrialRecord) -> KnownTrial:
    assert trial.verdict is not None
    return KnownTrial(
        search_id,
        trial.number,
        trial.template,
        trial.candidate_digest,
        trial.source_digest,
        trial.verdict,
        trial.stage,
        trial.reason,
        trial.ratio_to_baseline,
        trial.is_baseline,
        trial.candidate,
        trial.machine_code,
    )
