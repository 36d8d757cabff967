"""The ledger: what was worked out about trials, and records of other ledgers."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "ledger_notes",
        sa.Column("search_key", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("recorded_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("search_key", "number", "kind", "name", name="pk_ledger_notes"),
        sa.ForeignKeyConstraint(
            ["search_key", "number"],
            ["trials.search_key", "trials.number"],
            name="fk_ledger_notes_trials",
        ),
    )
    op.create_table(
        "foreign_records",
        sa.Column("key", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("ledger_digest", sa.Text(), nullable=False),
        sa.Column("kernel", sa.Text(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("imported_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_foreign_records"),
        sa.UniqueConstraint("digest", name="uq_foreign_records_digest"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_foreign_records_kernel_key", "foreign_records", ["kernel", "key"])
