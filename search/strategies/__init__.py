"""The strategies by name.

A new strategy is a file here and a line below. Its contract tests then run without further changes.
"""

from greenfast.search.strategies.base import Infeasible, Objective, Past, Proposal, Strategy, Told
from greenfast.search.strategies.cmaes import CmaEs
from greenfast.search.strategies.evolution import Evolution
from greenfast.search.strategies.exhaustive import Exhaustive
from greenfast.search.strategies.gp import Gp
from greenfast.search.strategies.nsga2 import Nsga2
from greenfast.search.strategies.portfolio import Portfolio
from greenfast.search.strategies.random_search import RandomSearch
from greenfast.search.strategies.tpe import Tpe

STRATEGIES: dict[str, type[Strategy]] = {
    "cmaes": CmaEs,
    "evolution": Evolution,
    "exhaustive": Exhaustive,
    "gp": Gp,
    "nsga2": Nsga2,
    "portfolio": Portfolio,
    "random": RandomSearch,
    "tpe": Tpe,
}

__all__ = ["STRATEGIES", "Infeasible", "Objective", "Past", "Proposal", "Strategy", "Told"]
