"""The times of single workloads, which lists show for searches over several."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import select

from greenfast.db import convert
from greenfast.db.base import Part, search_key
from greenfast.db.models import EvidenceRecord
from greenfast.search.verdict import performance_of


class WorkloadTimes(Part):
    """The part of the store that reads times by workload."""

    def workload_times(
        self, search_id: str, numbers: Collection[int]
    ) -> dict[int, dict[str, float]]:
        """Trial number -> workload -> us, of the trials that have times."""
        with self._database.reading() as session:
            rows = session.execute(
                select(EvidenceRecord.number, EvidenceRecord.verdict).where(
                    EvidenceRecord.search_key == search_key(session, search_id),
                    EvidenceRecord.number.in_(list(numbers)),
                )
            ).all()
        times = {}
        for row in rows:
            performance = performance_of(convert.verdict_of(row.verdict))
            if performance is not None:
                times[row.number] = {
                    timing.workload: timing.time_median_us for timing in performance.timings
                }
        return times
