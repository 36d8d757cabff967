"""`gp`: Bayesian optimisation, the model of `evolution` over random valid points, without breeding.

A Gaussian process of the times and one of correctness rank all points of a small space, and a few
thousand random ones of a larger space. Nothing is bred, so a large space is searched more evenly
and less closely around the best.

Source: Jones et al., "Efficient Global Optimization of Expensive Black-Box Functions", 1998.
"""

from __future__ import annotations

import random

import numpy as np

from greenfast.search.strategies.breeding import Children
from greenfast.search.strategies.evolution import Evolution


class Gp(Evolution):
    """Tries the random point with the highest expected improvement."""

    drawn_pool = 64

    def bred(self, template: str, parents: list[int], rng: random.Random) -> Children:
        width = len(self.spaces[template].template.parameters)
        none = np.empty(0, np.intp)
        return Children(np.empty((0, width), np.int64), none, none)
