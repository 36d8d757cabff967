"""The seconds during which a search has occupied GPUs; null: stored before they were counted."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("searches", sa.Column("gpu_spent_s", sa.Double()))
