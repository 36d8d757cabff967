"""The kernel files that searches ran with, and the checks that a champion passed.

Scopes of champions now name workloads by their values. A migration knows neither the values nor
the kernel's files, so it leaves the rows alone. A scope without values keeps its digest until a
process has a kernel of that digest; then `Champions.adopt` rewrites it.

The column that names a manifest is no foreign key: SQLite would copy the table to add it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "kernel_files",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_kernel_files"),
    )
    op.create_table(
        "kernel_manifests",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("files", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_kernel_manifests"),
    )
    op.add_column("searches", sa.Column("manifest_digest", sa.Text()))
    op.add_column("champions", sa.Column("checks", sa.Text()))
    op.add_column("champions", sa.Column("earlier_digest", sa.Text()))
