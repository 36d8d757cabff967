"""A digest of what a GPU executes for a trial; null: it was not compiled, or not recorded."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.add_column("trials", sa.Column("machine_code", sa.Text()))
