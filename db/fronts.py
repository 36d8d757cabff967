"""The correct trials of a search with every objective known: the ground of a Pareto front."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import and_, or_, select

from greenfast.db.base import Part, search_key
from greenfast.db.models import TrialRecord
from greenfast.db.rows import OutcomeRow
from greenfast.db.searches import IS_RIGHT
from greenfast.search.verdict import COMPARED, Stage, VerdictName

FIGURE_OF = {
    "time": "time_median_us",
    "registers": "registers",
    "shared_memory": "smem_bytes",
    "error": "max_abs_error",
}


class Fronts(Part):
    """The part of the store that reads several figures of all correct trials."""

    def outcomes(self, search_id: str, objectives: Sequence[str]) -> tuple[OutcomeRow, ...]:
        """Correct trials in order, those that were slower than the baseline included. Trials
        without one of the figures are left out."""
        figures = [getattr(TrialRecord, FIGURE_OF[name]) for name in objectives]
        compared = and_(
            TrialRecord.verdict == VerdictName.REJECTED,
            TrialRecord.stage == Stage.PERFORMANCE,
            TrialRecord.reason.in_(COMPARED),
        )
        with self._database.reading() as session:
            rows = session.execute(
                select(TrialRecord.number, TrialRecord.template, TrialRecord.verdict, *figures)
                .where(TrialRecord.search_key == search_key(session, search_id))
                .where(or_(IS_RIGHT, compared), *(figure.is_not(None) for figure in figures))
                .order_by(TrialRecord.number)
            ).all()
        return tuple(
            OutcomeRow(row[0], row[1], str(row[2]), tuple(float(value) for value in row[3:]))
            for row in rows
        )
