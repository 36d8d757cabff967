"""The number of the GPU that measured a trial's time."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("trials", sa.Column("device_index", sa.Integer()))
