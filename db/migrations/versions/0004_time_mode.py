"""The mode of a trial's measured time (hot, cold), beside its kind."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("trials", sa.Column("time_mode", sa.Text()))
