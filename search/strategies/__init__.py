"""The strategies by name.

A new strategy is a file here and a line below. Its contract tests then run without further changes.
A strategy's file is imported when it is asked for, because Optuna takes a while to import and most
processes need none of it. The names alone cost nothing: the command line's help lists them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from greenfast.search.strategies.base import Strategy

DEFAULT_STRATEGY = "evolution"  # docs/search.md has the figures behind the choice


class _Strategies(Mapping[str, "type[Strategy]"]):
    """Classes by name, each from its own file."""

    def __init__(self, places: Mapping[str, tuple[str, str]]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> type[Strategy]:
        file, kind = self._places[name]
        strategy: type[Strategy] = getattr(import_module(f"{__name__}.{file}"), kind)
        return strategy

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


STRATEGIES: Mapping[str, type[Strategy]] = _Strategies(
    {
        "cmaes": ("cmaes", "CmaEs"),
        "evolution": ("evolution", "Evolution"),
        "exhaustive": ("exhaustive", "Exhaustive"),
        "gp": ("gp", "Gp"),
        "nsga2": ("nsga2", "Nsga2"),
        "portfolio": ("portfolio", "Portfolio"),
        "random": ("random_search", "RandomSearch"),
        "tpe": ("tpe", "Tpe"),
    }
)

# What only some strategies can do. A strategy's file is not imported to refuse a request.
SEVERAL_OBJECTIVES = frozenset({"evolution", "gp", "nsga2"})
WITH_MODELLED_TIMES = frozenset({"evolution", "gp", "portfolio"})
DEFAULT_MODELLED = 40  # points of each template, for these
WITH_POPULATION = frozenset({"cmaes", "evolution", "nsga2"})
WITHOUT_CONDITIONS: frozenset[str] = frozenset()  # no parameters that exist under a condition
