"""Searches of one scope: those whose findings hold for each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from greenfast.db import convert
from greenfast.db.ledger import KindredSearch
from greenfast.search.loop.plan import SearchPlan
from greenfast.search.loop.scope import scope_of

if TYPE_CHECKING:
    from greenfast.db.store import Store


def kindred_plans(store: Store, search_id: str) -> list[tuple[KindredSearch, SearchPlan]]:
    """This search first, then the others of its kernel and target, with their plans."""
    return [(search, convert.plan_of(search.plan)) for search in store.kindred(search_id)]


def searches_of_scope(store: Store, search_id: str) -> list[str]:
    """The ids of the searches of the same scope, this one first."""
    (own, own_plan), *others = kindred_plans(store, search_id)
    scope = scope_of(own_plan, own.environment)
    same = [
        search.search_id
        for search, plan in others
        if scope_of(plan, search.environment).digest == scope.digest
    ]
    return [search_id, *same]
