"""Two texts that were parts of sentences get columns of their own.

`searches.closing`, the findings of a confirmation, was the part of `why` behind "; ". The reasons
before it were two fixed texts. `trials.finding`, the finding of a gate, was the part of `sentence`
behind the changes of a rejected candidate: "tile_m 16 -> 32 (against wmma:a): 9 bytes spill".
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
REASONS = ("every valid candidate was tried", "the budget is spent")

SEARCHES = sa.table(
    "searches", *(sa.column(name, sa.Text()) for name in ("status", "why", "closing"))
)
TRIALS = sa.table(
    "trials",
    *(sa.column(name, sa.Integer()) for name in ("search_key", "number")),
    *(sa.column(name, sa.Text()) for name in ("verdict", "sentence", "finding")),
)


def upgrade() -> None:
    for table, name in (("searches", "closing"), ("trials", "finding")):
        op.add_column(table, sa.Column(name, sa.Text(), nullable=False, server_default=""))
    _split_reasons()
    _copy_findings()


def _split_reasons() -> None:
    for reason in REASONS:
        joined = f"{reason}; "
        op.execute(
            SEARCHES.update()
            .where(
                SEARCHES.c.status == "completed",
                sa.func.substr(SEARCHES.c.why, 1, len(joined)) == joined,
            )
            .values(why=reason, closing=sa.func.substr(SEARCHES.c.why, len(joined) + 1))
        )


def _copy_findings() -> None:
    trials, connection = TRIALS.c, op.get_bind()
    op.execute(TRIALS.update().values(finding=trials.sentence))
    rejected = sa.select(trials.search_key, trials.number, trials.sentence).where(
        trials.verdict == "rejected", trials.sentence.contains(" (against ")
    )
    findings = [
        {"key": row.search_key, "at": row.number, "text": _finding(row.sentence)}
        for row in connection.execute(rejected)
    ]
    if findings:
        connection.execute(
            TRIALS.update()
            .where(trials.search_key == sa.bindparam("key"), trials.number == sa.bindparam("at"))
            .values(finding=sa.bindparam("text")),
            findings,
        )


def _finding(sentence: str) -> str:
    return sentence.partition(" (against ")[2].partition("): ")[2]
