"""Removal for good: searches, trials of ended searches, tunings; what `greenfast rm` does."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict

from greenfast.app.routes.access import TheStore
from greenfast.db.removal import Named
from greenfast.db.store import Store
from greenfast.search.oracle.cases import LARGEST_SEED

router = APIRouter(tags=["removal"])
TrialNumber = Annotated[int, Path(ge=0, le=LARGEST_SEED)]
DryRun = Annotated[bool, Query(description="only count what would be removed")]


class RemovedOut(BaseModel):
    """The numbers of removed rows, with those that only they referred to."""

    model_config = ConfigDict(from_attributes=True)

    removed: bool = True  # false: of a rehearsal
    tunings: int
    searches: int
    trials: int
    sources: int
    confirmations: int
    peers: int
    kernel_files: int
    kept: list[str]  # "SEARCH/NUMBER" of each trial that stays, since a champion refers to it


def removed(store: Store, names: list[Named], *, dry_run: bool) -> RemovedOut:
    removal = store.rehearse_removal(names) if dry_run else store.remove(names)
    return RemovedOut.model_validate(removal).model_copy(update={"removed": not dry_run})


@router.delete("/searches/{search}")
def remove_search(search: str, store: TheStore, dry_run: DryRun = False) -> RemovedOut:
    """Remove a search with its trials, and the sources and evidence that only they have.

    Trials that a champion refers to stay, and the search with them. 409 while it runs, or where a
    tuning needs it.
    """
    return removed(store, [(search, None)], dry_run=dry_run)


@router.delete("/searches/{search}/trials/{trial}")
def remove_trial(
    search: str, trial: TrialNumber, store: TheStore, dry_run: DryRun = False
) -> RemovedOut:
    """Remove one trial of an ended search.

    409 for the baseline, and for a trial that a champion, a confirmation or a tuning refers to.
    """
    return removed(store, [(search, trial)], dry_run=dry_run)


@router.delete("/tunings/{tuning}")
def remove_tuning(tuning: str, store: TheStore, dry_run: DryRun = False) -> RemovedOut:
    """Remove a tuning with all its searches."""
    searches: list[Named] = [(row.id, None) for row in store.tuning(tuning).searches]
    return removed(store, searches, dry_run=dry_run)
