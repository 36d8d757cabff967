"""How people name a search or a trial: `s_abc...`, its beginning, `last`; `SEARCH/7`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from greenfast.db.ids import SEARCH_ID
from greenfast.search.errors import UsageError

if TYPE_CHECKING:
    from greenfast.db.rows import TuningRow
    from greenfast.db.store import Store

LAST = "last"
BEST, BASELINE = "best", "baseline"
SHORTEST_PREFIX = 3  # "s_" and a character
MOST_SHOWN = 5
LONGEST = 120


@dataclass(frozen=True)
class TrialName:
    """A search, or a trial of it where `number` is set."""

    search_id: str
    number: int | None = None

    def __str__(self) -> str:
        return self.search_id if self.number is None else f"{self.search_id}/{self.number}"


def search_named(store: Store, written: str) -> str:
    """The id of the search; UsageError `unknown_search`, `ambiguous_search`."""
    if written == LAST:
        newest = store.search_ids(limit=1)
        if not newest:
            raise UsageError(
                "there is no search yet",
                code="unknown_search",
                mend="`greenfast search KERNEL` starts one",
            )
        return newest[0][0]
    if SEARCH_ID.fullmatch(written) or len(written) < SHORTEST_PREFIX:
        return store.search(written).id
    matches = store.search_ids(written, limit=MOST_SHOWN)
    if len(matches) > 1:
        raise UsageError(
            f"{written!r} begins more than one search id",
            code="ambiguous_search",
            mend=f"write more characters of it: {', '.join(search_id for search_id, _ in matches)}",
        )
    return matches[0][0] if matches else store.search(written).id


def tuning_named(store: Store, written: str) -> TuningRow:
    """The tuning with that id, or the newest one for `last`; UsageError `unknown_tuning`."""
    if written != LAST:
        return store.tuning(written)
    newest = store.tunings(limit=1).items
    if not newest:
        raise UsageError(
            "there is no tuning yet",
            code="unknown_tuning",
            mend="`greenfast tune KERNEL --workloads FILE` starts one",
        )
    return newest[0]


def named(store: Store, written: str) -> TrialName:
    """`SEARCH`, `SEARCH/7`, `SEARCH/best` or `SEARCH/baseline`, also with a beginning of an id.

    UsageError `unknown_search`, `unknown_trial`, `no_best`.
    """
    search, separator, trial = written[:LONGEST].strip().partition("/")
    search_id = search_named(store, search)
    if not separator:
        return TrialName(search_id)
    if trial == BEST:
        return TrialName(search_id, best_number(store, search_id))
    if trial == BASELINE:
        return TrialName(search_id, baseline_number(store, search_id))
    if not (trial.isascii() and trial.isdecimal() and len(trial) <= 10):
        raise UsageError(
            f"{trial!r} is not a trial",
            code="unknown_trial",
            mend="write SEARCH/NUMBER, SEARCH/best or SEARCH/baseline",
        )
    return TrialName(search_id, int(trial))


def trial_named(store: Store, written: str) -> TrialName:
    """A trial; a search alone means its best trial."""
    name = named(store, written)
    if name.number is not None:
        return name
    return TrialName(name.search_id, best_number(store, name.search_id))


def best_number(store: Store, search_id: str) -> int:
    best = store.best(search_id)
    if best is None:
        raise UsageError(
            f"search {search_id} has no correct candidate yet",
            code="no_best",
            mend=f"name a trial, such as {search_id}/0",
        )
    return best.number


def baseline_number(store: Store, search_id: str) -> int:
    first = store.trials(search_id, limit=1).items
    if not first or not first[0].is_baseline:
        raise UsageError(
            f"search {search_id} has no baseline",
            code="unknown_trial",
            mend=f"name a trial, such as {search_id}/1",
        )
    return first[0].number
