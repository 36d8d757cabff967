"""The store: searches, claims, trials, evidence and sources in one database, behind one object.

    Tunings        submit_tuning, tuning, tunings, control_tuning, timed_trials
    Searches       submit, search, searches, plan, request_control, request_confirmation
    SearchIds      search_ids
    WorkloadTimes  workload_times
    Extensions     extend
    Removals       rehearse_removal, remove
    Claims         claim, renew, renew_lease, describe, finish, release, history, silence
    Recording      begin, record, settle
    Trials         trials, trial, recorded, best, not_told_apart, best_so_far, counts
    Fronts         outcomes
    Negatives      negatives
    Ledger         note, notes, known_trials, import_foreign, foreign
    Sources        source
    FrozenFiles    frozen_files
    Submissions    submissions, waiting_submissions
    Confirmations  record_confirmation, record_peer, confirmation, peers
    Champions      promote, champion, champions, earlier_scopes, adopt
    Workers        worker_seen, worker_gone, queue_state
    Devices        lease_device, renew_device, release_device, device_holder

Methods return frozen, plain values (db/rows.py). Each is one transaction and can be called from any
thread. Errors are UsageError (the caller's) or Fault (ours), never those of SQLAlchemy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from greenfast.db.champions import Champions
from greenfast.db.claims import Claims
from greenfast.db.confirmations import Confirmations
from greenfast.db.devices import Devices
from greenfast.db.dialects import make_engine, parse_url, sqlite_path
from greenfast.db.extension import Extensions
from greenfast.db.fronts import Fronts
from greenfast.db.kernel_files import FrozenFiles
from greenfast.db.ledger import Ledger
from greenfast.db.migrate import prepare
from greenfast.db.models import REVISION, SearchRecord
from greenfast.db.negatives import Negatives
from greenfast.db.recording import Recording
from greenfast.db.removal import Removals
from greenfast.db.search_ids import SearchIds
from greenfast.db.searches import Searches
from greenfast.db.session import Database
from greenfast.db.sources import Sources
from greenfast.db.submissions import Submissions
from greenfast.db.timeouts import DEFAULT_TIMEOUTS, Timeouts
from greenfast.db.trials import Trials
from greenfast.db.tunings import Tunings
from greenfast.db.workers import Workers
from greenfast.db.workload_times import WorkloadTimes
from greenfast.search.status import STATUSES


class Store(
    Searches,
    Tunings,
    SearchIds,
    WorkloadTimes,
    Extensions,
    Removals,
    Claims,
    Recording,
    Trials,
    Fronts,
    Negatives,
    Ledger,
    Sources,
    FrozenFiles,
    Submissions,
    Confirmations,
    Champions,
    Devices,
    Workers,
):
    """The single truth about searches and trials."""

    @classmethod
    def open(cls, url: str, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> Store:
        """Open a database. A new one is created; an older one is copied, then migrated.

        UsageError: database_newer, database_not_ours, database_unreadable, database_url,
        database_driver. Fault: database_locked, database_damaged, database_readonly, disk_full and
        other codes of db/faults.py.
        """
        parsed = parse_url(url)
        engine = make_engine(parsed, timeouts)
        try:
            prepare(parsed, engine, timeouts)
        except BaseException:
            engine.dispose()
            raise
        return cls(Database(engine, timeouts))

    def close(self) -> None:
        self._database.close()

    def stats(self) -> dict[str, Any]:
        """Schema, searches by status, and size on disk in bytes (None: on a server)."""
        with self._database.reading() as session:
            statuses = select(SearchRecord.status, func.count()).group_by(SearchRecord.status)
            counts = {row[0]: row[1] for row in session.execute(statuses)}
        path = sqlite_path(self._database.engine.url)
        files = [file for file in (path, Path(f"{path}-wal")) if file.exists()] if path else []
        return {
            "dialect": self._database.engine.dialect.name,
            "revision": REVISION,
            "searches": {str(status): counts.get(status, 0) for status in STATUSES},
            "path": str(path) if path else None,
            "bytes": sum(file.stat().st_size for file in files) if path else None,
        }
