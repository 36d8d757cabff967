"""Tunings: searches over a user's workloads that end in one bundle."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "tunings",
        sa.Column("key", sa.Integer(), nullable=False),
        *(
            sa.Column(name, sa.Text(), nullable=False)
            for name in ("id", "name", "kernel", "target", "plan")
        ),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_tunings"),
        sa.UniqueConstraint("id", name="uq_tunings_id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "tuning_searches",
        sa.Column("search_key", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("tuning_key", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("search_key", name="pk_tuning_searches"),
        sa.ForeignKeyConstraint(
            ["search_key"], ["searches.key"], name="fk_tuning_searches_searches"
        ),
        sa.ForeignKeyConstraint(["tuning_key"], ["tunings.key"], name="fk_tuning_searches_tunings"),
    )
    op.create_index(
        "ix_tuning_searches_tuning_key_position", "tuning_searches", ["tuning_key", "position"]
    )
