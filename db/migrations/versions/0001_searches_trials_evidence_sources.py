"""Searches with their leases, trials with the figures for sorting, evidence, and sources."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    _sources()
    _searches()
    _trials()
    _trial_indices()
    _evidence()


def _sources() -> None:
    op.create_table(
        "sources",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("kernel", sa.Text(), nullable=False),
        sa.Column("template", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_sources"),
    )


def _searches() -> None:
    op.create_table(
        "searches",
        sa.Column("key", sa.Integer(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kernel", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("strategy", sa.Text(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("wanted", sa.Text()),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double()),
        sa.Column("finished_at", sa.Double()),
        sa.Column("spent_s", sa.Double(), nullable=False),
        sa.Column("trials_done", sa.Integer(), nullable=False),
        sa.Column("worker", sa.Text()),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("renewed_at", sa.Double()),
        sa.Column("lease_s", sa.Double()),
        sa.CheckConstraint(
            "status IN ('queued', 'running', 'paused', 'completed', 'cancelled', 'failed')",
            name="ck_searches_status",
        ),
        sa.CheckConstraint(
            "(status = 'running') = (worker IS NOT NULL)", name="ck_searches_worker"
        ),
        sa.PrimaryKeyConstraint("key", name="pk_searches"),
        sa.UniqueConstraint("id", name="uq_searches_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_searches_status_key", "searches", ["status", "key"])


def _trials() -> None:
    op.create_table(
        "trials",
        sa.Column("search_key", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("kernel", sa.Text(), nullable=False),
        sa.Column("template", sa.Text(), nullable=False),
        sa.Column("preset", sa.Text(), nullable=False),
        sa.Column("candidate_digest", sa.Text(), nullable=False),
        sa.Column("candidate", sa.Text(), nullable=False),
        sa.Column("sampler", sa.Text(), nullable=False),
        sa.Column("is_baseline", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("recorded_at", sa.Double()),
        sa.Column("verdict", sa.Text()),
        sa.Column("stage", sa.Text()),
        sa.Column("reason", sa.Text()),
        sa.Column("fault_code", sa.Text()),
        sa.Column("outcomes", sa.Text()),
        sa.Column("sentence", sa.Text(), nullable=False),
        sa.Column("changed", sa.Text()),
        sa.Column("time_median_us", sa.Double()),
        sa.Column("time_kind", sa.Text()),
        sa.Column("time_band", sa.Double()),
        sa.Column("ratio_to_baseline", sa.Double()),
        sa.Column("registers", sa.Integer()),
        sa.Column("spill_bytes", sa.Integer()),
        sa.Column("smem_bytes", sa.Integer()),
        sa.Column("max_abs_error", sa.Double()),
        sa.Column("duration_s", sa.Double()),
        sa.Column("source_digest", sa.Text()),
        sa.CheckConstraint(
            "verdict IN ('accepted', 'green', 'rejected', 'faulted')", name="ck_trials_verdict"
        ),
        sa.CheckConstraint("(verdict IS NULL) = (recorded_at IS NULL)", name="ck_trials_recorded"),
        sa.CheckConstraint(
            "verdict IS NULL OR (verdict = 'rejected') = (reason IS NOT NULL)",
            name="ck_trials_reason",
        ),
        sa.CheckConstraint("attempts >= 0", name="ck_trials_attempts"),
        sa.ForeignKeyConstraint(["search_key"], ["searches.key"], name="fk_trials_searches"),
        sa.ForeignKeyConstraint(["source_digest"], ["sources.digest"], name="fk_trials_sources"),
        sa.PrimaryKeyConstraint("search_key", "number", name="pk_trials"),
    )


def _trial_indices() -> None:
    op.create_index(
        "ix_trials_counts", "trials", ["search_key", "verdict", "stage", "reason", "outcomes"]
    )
    for name in ("time_median_us", "registers", "smem_bytes", "max_abs_error", "duration_s"):
        _partial_index(f"ix_trials_{name}", ["search_key", name, "number"], f"{name} IS NOT NULL")
    rejected = "verdict = 'rejected'"
    _partial_index("ix_trials_negatives", ["recorded_at", "search_key", "number"], rejected)
    _partial_index(
        "ix_trials_negatives_reason", ["reason", "recorded_at", "search_key", "number"], rejected
    )
    _partial_index("ix_trials_negatives_search", ["search_key", "recorded_at", "number"], rejected)


def _partial_index(name: str, columns: list[str], where: str) -> None:
    op.create_index(
        name, "trials", columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where)
    )


def _evidence() -> None:
    op.create_table(
        "evidence",
        sa.Column("search_key", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("details", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["search_key", "number"],
            ["trials.search_key", "trials.number"],
            name="fk_evidence_trials",
        ),
        sa.PrimaryKeyConstraint("search_key", "number", name="pk_evidence"),
    )
