"""The findings of a search's confirmation, apart from the reason why it ended.

Both were in `why`, joined by "; ". The reasons of completed searches were two fixed texts.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
REASONS = ("every valid candidate was tried", "the budget is spent")


def upgrade() -> None:
    op.add_column("searches", sa.Column("closing", sa.Text(), nullable=False, server_default=""))
    searches = sa.table(
        "searches",
        *(sa.column(name, sa.Text()) for name in ("status", "why", "closing")),
    )
    for reason in REASONS:
        joined = f"{reason}; "
        op.execute(
            searches.update()
            .where(
                searches.c.status == "completed",
                sa.func.substr(searches.c.why, 1, len(joined)) == joined,
            )
            .values(why=reason, closing=sa.func.substr(searches.c.why, len(joined) + 1))
        )
