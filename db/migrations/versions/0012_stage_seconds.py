"""The wall seconds of each stage of a trial, as JSON; null: stored before they were recorded."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.add_column("trials", sa.Column("stage_seconds", sa.Text()))
