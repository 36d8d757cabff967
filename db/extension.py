"""Continuing a search beyond its budget."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import func, select

from greenfast.db import convert
from greenfast.db.base import Part, search_record
from greenfast.db.models import TrialRecord
from greenfast.db.rows import SearchRow
from greenfast.db.searches import search_row
from greenfast.search.errors import UsageError
from greenfast.search.loop.settings import LARGEST_TRIALS
from greenfast.search.status import SearchStatus

EXTENDABLE = (SearchStatus.COMPLETED, SearchStatus.PAUSED, SearchStatus.FAILED)
UNFINISHED = (SearchStatus.QUEUED, SearchStatus.RUNNING)


class Extensions(Part):
    """The part of the store that gives searches more trials."""

    def extend(self, search_id: str, trials: int) -> SearchRow:
        """Queue an ended or paused search again with `trials` more trials.

        Its strategy is rebuilt from the stored trials, as for any resumed search. From now on its
        budget counts trials only: its seconds and GPU seconds are spent. UsageError
        `bad_transition`, `bad_budget`.
        """
        with self._database.writing() as session:
            record = search_record(session, search_id, lock=True)
            if record.status not in EXTENDABLE:
                mend = f"a search that is {', '.join(EXTENDABLE[:-1])} or {EXTENDABLE[-1]} can"
                if record.status in UNFINISHED:
                    mend = (
                        f"`greenfast search --resume {record.id}` finishes it, also where its "
                        "process was killed; then extend it"
                    )
                raise UsageError(
                    f"search {record.id} is {record.status}, so it cannot be extended",
                    code="bad_transition",
                    mend=mend,
                )
            plan = convert.plan_of(record.plan)
            newest = session.scalar(
                select(func.max(TrialRecord.number)).where(TrialRecord.search_key == record.key)
            )
            tried = 0 if newest is None else newest + 1
            # A completed search tries no more of its old budget, also when its seconds ended it.
            open_budget = plan.trials if record.status != SearchStatus.COMPLETED else None
            total = max(tried, open_budget or 0) + trials
            if trials < 1 or total > LARGEST_TRIALS:
                raise UsageError(
                    f"{trials} more trials make {total:,}",
                    code="bad_budget",
                    mend=f"extend by 1 or more, to {LARGEST_TRIALS:,} at most",
                )
            record.plan = convert.plan_json(
                replace(plan, trials=total, seconds=None, gpu_seconds=None)
            )
            record.status, record.finished_at, record.wanted = SearchStatus.QUEUED, None, None
            record.why = record.closing = ""
            session.flush()
            return search_row(session, search_id)
