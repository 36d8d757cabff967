"""The tables. `searches` is also the queue: its rows hold status, lease and fencing token.

Times are seconds since 1970 by the database's own clock. A trial counts as recorded once `verdict`
is set; until then it has only begun. Evidence has its own table, so that lists never read it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, cast

from sqlalchemy import (
    CheckConstraint,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from greenfast.db.figures import SORTABLE
from greenfast.search.status import STATUSES
from greenfast.search.verdict import VerdictName

REVISION = "0013"  # the newest of migrations/versions, which a test compares

# A literal, not a bound value: otherwise planners do not see that a partial index serves the query.
REJECTED_SQL = f"verdict = '{VerdictName.REJECTED}'"
IS_REJECTED = text(f"trials.{REJECTED_SQL}")


def sql_list(names: Iterable[str]) -> str:
    """`'a', 'b'`: names from the code, as literals."""
    return ", ".join(f"'{name}'" for name in names)


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {str: Text(), float: Double()}


def table_of(record: type[Base]) -> Table:
    """The record's table, for statements that are built once and bypass the ORM."""
    return cast(Table, record.__table__)


class SearchRecord(Base):
    """One search: its plan, its status and the worker that holds it."""

    __tablename__ = "searches"

    key: Mapped[int] = mapped_column(primary_key=True)  # in order of arrival
    id: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    kernel: Mapped[str]
    target: Mapped[str]
    strategy: Mapped[str]
    plan: Mapped[str]  # JSON
    status: Mapped[str]
    wanted: Mapped[str | None]  # pause | resume | cancel, until the worker reads it
    why: Mapped[str] = mapped_column(default="")  # it ended or paused
    closing: Mapped[str] = mapped_column(default="")  # findings of the confirmation
    created_at: Mapped[float]
    started_at: Mapped[float | None]
    finished_at: Mapped[float | None]
    spent_s: Mapped[float] = mapped_column(default=0.0)
    gpu_spent_s: Mapped[float | None]  # null: stored before it was counted, or not begun
    trials_done: Mapped[int] = mapped_column(default=0)
    worker: Mapped[str | None]
    fence: Mapped[int] = mapped_column(default=0)  # grows with each claim
    renewed_at: Mapped[float | None]
    lease_s: Mapped[float | None]
    environment_digest: Mapped[str | None]
    manifest_digest: Mapped[str | None]  # null: submitted before files were frozen

    __table_args__ = (
        CheckConstraint(f"status IN ({sql_list(STATUSES)})", "status"),
        CheckConstraint("(status = 'running') = (worker IS NOT NULL)", "worker"),
        Index(None, "status", "key"),
        {"sqlite_autoincrement": True},
    )


class TuningRecord(Base):
    """Searches over a user's workloads that end in one bundle; their status is its own."""

    __tablename__ = "tunings"

    key: Mapped[int] = mapped_column(primary_key=True)  # in order of arrival
    id: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    kernel: Mapped[str]
    target: Mapped[str]
    plan: Mapped[str]  # JSON
    created_at: Mapped[float]

    __table_args__ = ({"sqlite_autoincrement": True},)


class TuningSearchRecord(Base):
    """The searches of a tuning, one for each group of compile-time values."""

    __tablename__ = "tuning_searches"

    search_key: Mapped[int] = mapped_column(ForeignKey("searches.key"), primary_key=True)
    tuning_key: Mapped[int] = mapped_column(ForeignKey("tunings.key"))
    position: Mapped[int]

    __table_args__ = (Index(None, "tuning_key", "position"),)


class TrialRecord(Base):
    """One trial: its candidate and, once recorded, its verdict and figures.

    Each figure of db/figures.py has a column of its name here.
    """

    __tablename__ = "trials"

    search_key: Mapped[int] = mapped_column(ForeignKey("searches.key"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    fence: Mapped[int]  # of the claim that began it last
    attempts: Mapped[int]
    kernel: Mapped[str]
    template: Mapped[str]
    preset: Mapped[str]
    candidate_digest: Mapped[str]
    candidate: Mapped[str]  # JSON
    sampler: Mapped[str]  # JSON
    is_baseline: Mapped[bool]
    created_at: Mapped[float]
    recorded_at: Mapped[float | None]
    verdict: Mapped[str | None]
    stage: Mapped[str | None]
    reason: Mapped[str | None]
    fault_code: Mapped[str | None]
    outcomes: Mapped[str | None]  # of gates: "ptxas=passed safety=..."
    sentence: Mapped[str] = mapped_column(default="")
    finding: Mapped[str] = mapped_column(default="")
    changed: Mapped[str | None]  # JSON: against the baseline
    time_median_us: Mapped[float | None]
    time_kind: Mapped[str | None]
    time_mode: Mapped[str | None]
    time_band: Mapped[float | None]
    ratio_to_baseline: Mapped[float | None]
    registers: Mapped[int | None]
    spill_bytes: Mapped[int | None]
    smem_bytes: Mapped[int | None]
    max_abs_error: Mapped[float | None]
    duration_s: Mapped[float | None]
    device_index: Mapped[int | None]  # of the GPU that measured its time
    machine_code: Mapped[str | None]  # a digest of what the GPU executes
    stage_seconds: Mapped[str | None]  # JSON; null: not evaluated here, or not recorded
    source_digest: Mapped[str | None] = mapped_column(ForeignKey("sources.digest"))
    environment_digest: Mapped[str | None]

    __table_args__ = (
        CheckConstraint(f"verdict IN ({sql_list(VerdictName)})", "verdict"),
        CheckConstraint("(verdict IS NULL) = (recorded_at IS NULL)", "recorded"),
        CheckConstraint(f"verdict IS NULL OR ({REJECTED_SQL}) = (reason IS NOT NULL)", "reason"),
        CheckConstraint("attempts >= 0", "attempts"),
        Index("ix_trials_counts", "search_key", "verdict", "stage", "reason", "outcomes"),
        *(
            Index(
                f"ix_trials_{name}",
                "search_key",
                name,
                "number",
                sqlite_where=text(f"{name} IS NOT NULL"),
                postgresql_where=text(f"{name} IS NOT NULL"),
            )
            for name in SORTABLE
        ),
        Index(
            "ix_trials_negatives",
            "recorded_at",
            "search_key",
            "number",
            sqlite_where=text(REJECTED_SQL),
            postgresql_where=text(REJECTED_SQL),
        ),
        Index(
            "ix_trials_negatives_reason",
            "reason",
            "recorded_at",
            "search_key",
            "number",
            sqlite_where=text(REJECTED_SQL),
            postgresql_where=text(REJECTED_SQL),
        ),
        Index(
            "ix_trials_negatives_search",
            "search_key",
            "recorded_at",
            "number",
            sqlite_where=text(REJECTED_SQL),
            postgresql_where=text(REJECTED_SQL),
        ),
    )


class EvidenceRecord(Base):
    """The gates' evidence. `details` holds the single checks and the log; `verdict` the rest."""

    __tablename__ = "evidence"

    search_key: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    verdict: Mapped[str]  # JSON
    details: Mapped[bytes]  # JSON, deflated

    __table_args__ = (
        ForeignKeyConstraint(["search_key", "number"], ["trials.search_key", "trials.number"]),
    )


class LedgerNoteRecord(Base):
    """Something that was worked out about a trial: an ablation's arm, an explanation, a recheck,
    or the earlier trial whose verdict it repeats."""

    __tablename__ = "ledger_notes"

    search_key: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    note: Mapped[str]  # JSON
    recorded_at: Mapped[float]

    __table_args__ = (
        ForeignKeyConstraint(["search_key", "number"], ["trials.search_key", "trials.number"]),
    )


class ForeignRecord(Base):
    """A record of another ledger. No list of trials, times or champions reads this table."""

    __tablename__ = "foreign_records"

    key: Mapped[int] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(unique=True)
    ledger_digest: Mapped[str]  # of the file that it came in
    kernel: Mapped[str]
    record: Mapped[str]  # JSON
    imported_at: Mapped[float]

    __table_args__ = (Index(None, "kernel", "key"), {"sqlite_autoincrement": True})


class SourceRecord(Base):
    """A rendered source, stored once for all trials that share it."""

    __tablename__ = "sources"

    digest: Mapped[str] = mapped_column(primary_key=True)
    text: Mapped[str]
    kernel: Mapped[str]
    template: Mapped[str]
    created_at: Mapped[float]


class KernelFileRecord(Base):
    """A file of a kernel, stored once for all searches that ran with it."""

    __tablename__ = "kernel_files"

    digest: Mapped[str] = mapped_column(primary_key=True)
    text: Mapped[str]
    created_at: Mapped[float]


class ManifestRecord(Base):
    """The files that made up a kernel, by path and digest."""

    __tablename__ = "kernel_manifests"

    digest: Mapped[str] = mapped_column(primary_key=True)
    files: Mapped[str]  # JSON
    created_at: Mapped[float]


class EnvironmentRecord(Base):
    """Everything but the candidate that results depend on: device, toolchain, versions."""

    __tablename__ = "environments"

    digest: Mapped[str] = mapped_column(primary_key=True)
    environment: Mapped[str]  # JSON
    created_at: Mapped[float]


class ConfirmationRecord(Base):
    """A search's winner timed again in fresh processes. The newest counts; earlier ones stay."""

    __tablename__ = "confirmations"

    key: Mapped[int] = mapped_column(primary_key=True)
    search_key: Mapped[int]
    number: Mapped[int]  # the winner's trial
    confirmed: Mapped[bool]
    confirmation: Mapped[str]  # JSON
    environment_digest: Mapped[str | None]
    recorded_at: Mapped[float]

    __table_args__ = (
        ForeignKeyConstraint(["search_key", "number"], ["trials.search_key", "trials.number"]),
        Index(None, "search_key", "key"),
        {"sqlite_autoincrement": True},
    )


class PeerRecord(Base):
    """Somebody else's kernel beside the search's winner, on one workload."""

    __tablename__ = "peers"

    search_key: Mapped[int] = mapped_column(ForeignKey("searches.key"), primary_key=True)
    workload: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    peer: Mapped[str]  # JSON
    environment_digest: Mapped[str | None]
    recorded_at: Mapped[float]


class ChampionRecord(Base):
    """A promoted trial: the confirmed best of a scope until another replaces it."""

    __tablename__ = "champions"

    key: Mapped[int] = mapped_column(primary_key=True)
    scope_digest: Mapped[str]
    kernel: Mapped[str]
    scope: Mapped[str]  # JSON
    search_key: Mapped[int]
    number: Mapped[int]
    confirmation_key: Mapped[int] = mapped_column(ForeignKey("confirmations.key"))
    promoted_at: Mapped[float]
    replaced_at: Mapped[float | None]
    checks: Mapped[str | None]  # JSON: the checks that it passed; null: not recorded
    earlier_digest: Mapped[str | None]  # of the scope as an earlier version wrote it

    __table_args__ = (
        ForeignKeyConstraint(["search_key", "number"], ["trials.search_key", "trials.number"]),
        # One champion for each scope, also when two processes promote at once.
        Index(
            "ix_champions_scope",
            "scope_digest",
            unique=True,
            sqlite_where=text("replaced_at IS NULL"),
            postgresql_where=text("replaced_at IS NULL"),
        ),
        Index(None, "kernel", "key"),
        {"sqlite_autoincrement": True},
    )


class DeviceLeaseRecord(Base):
    """The worker that uses a GPU. The GPU is free when `worker` is null or the lease ran out."""

    __tablename__ = "device_leases"

    uuid: Mapped[str] = mapped_column(primary_key=True)
    worker: Mapped[str | None]
    fence: Mapped[int]  # grows with each lease
    renewed_at: Mapped[float]
    lease_s: Mapped[float]
    wanted_at: Mapped[float | None]  # when another worker last asked for it


class WorkerRecord(Base):
    """A worker process that takes searches from the queue."""

    __tablename__ = "workers"

    name: Mapped[str] = mapped_column(primary_key=True)
    seen_at: Mapped[float]
