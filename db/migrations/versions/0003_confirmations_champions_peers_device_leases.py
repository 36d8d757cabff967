"""Confirmations of winners, champions by scope, peers, and GPU leases."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    _confirmations()
    _peers()
    _champions()
    _device_leases()


def _confirmations() -> None:
    op.create_table(
        "confirmations",
        sa.Column("key", sa.Integer(), nullable=False),
        sa.Column("search_key", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("confirmed", sa.Boolean(), nullable=False),
        sa.Column("confirmation", sa.Text(), nullable=False),
        sa.Column("environment_digest", sa.Text()),
        sa.Column("recorded_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["search_key", "number"],
            ["trials.search_key", "trials.number"],
            name="fk_confirmations_trials",
        ),
        sa.PrimaryKeyConstraint("key", name="pk_confirmations"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_confirmations_search_key_key", "confirmations", ["search_key", "key"])


def _peers() -> None:
    op.create_table(
        "peers",
        sa.Column("search_key", sa.Integer(), nullable=False),
        sa.Column("workload", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("peer", sa.Text(), nullable=False),
        sa.Column("environment_digest", sa.Text()),
        sa.Column("recorded_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["search_key"], ["searches.key"], name="fk_peers_searches"),
        sa.PrimaryKeyConstraint("search_key", "workload", "name", name="pk_peers"),
    )


def _champions() -> None:
    op.create_table(
        "champions",
        sa.Column("key", sa.Integer(), nullable=False),
        sa.Column("scope_digest", sa.Text(), nullable=False),
        sa.Column("kernel", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("search_key", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("confirmation_key", sa.Integer(), nullable=False),
        sa.Column("promoted_at", sa.Double(), nullable=False),
        sa.Column("replaced_at", sa.Double()),
        sa.ForeignKeyConstraint(
            ["search_key", "number"],
            ["trials.search_key", "trials.number"],
            name="fk_champions_trials",
        ),
        sa.ForeignKeyConstraint(
            ["confirmation_key"], ["confirmations.key"], name="fk_champions_confirmations"
        ),
        sa.PrimaryKeyConstraint("key", name="pk_champions"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_champions_kernel_key", "champions", ["kernel", "key"])
    standing = sa.text("replaced_at IS NULL")
    op.create_index(
        "ix_champions_scope",
        "champions",
        ["scope_digest"],
        unique=True,
        sqlite_where=standing,
        postgresql_where=standing,
    )


def _device_leases() -> None:
    op.create_table(
        "device_leases",
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("worker", sa.Text()),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("renewed_at", sa.Double(), nullable=False),
        sa.Column("lease_s", sa.Double(), nullable=False),
        sa.Column("wanted_at", sa.Double()),
        sa.PrimaryKeyConstraint("uuid", name="pk_device_leases"),
    )
