"""Environments: device, toolchain and versions, stored once and named by digest.

The columns that hold a digest are no foreign keys: SQLite would copy both tables to add them.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "environments",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_environments"),
    )
    op.add_column("searches", sa.Column("environment_digest", sa.Text()))
    op.add_column("trials", sa.Column("environment_digest", sa.Text()))
