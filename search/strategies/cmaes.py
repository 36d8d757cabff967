"""`cmaes`: draws from a normal distribution that follows the better candidates.

Each template has a distribution of its own over the columns of `features.py`, in which ordered
values lie side by side and others are apart. The first generation is random, and the distribution
begins at its best candidate: budgets are too short for a walk from the middle. Later, the valid
untried point nearest to a draw is tried. A generation ends when enough outcomes are known. The
distribution then moves towards the better half and takes its shape; wrong candidates rank last. A
deviation never falls below the distance of two values, so that a column does not freeze; a
generation that found nothing better for long begins again elsewhere, with the first deviation.

Sources: Hansen, "The CMA Evolution Strategy: A Tutorial", arXiv 1604.00772; Hamano et al., "CMA-ES
with Margin: Lower-Bounding Marginal Probability for Mixed-Integer Black-Box Optimization", 2022.
"""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np

from greenfast.search.kernels.workloads import Items
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, complete_parameters
from greenfast.search.space.space import Space
from greenfast.search.strategies.base import Objective, Proposal, Strategy, Told
from greenfast.search.strategies.features import Encoding

FIRST_DEVIATION = 0.3  # of columns from 0 to 1
PATIENCE = 8  # generations without a better candidate, after which a distribution begins again
Array = np.ndarray


class Distribution:
    """A normal distribution over columns, and the outcomes since its last generation."""

    def __init__(self, encoding: Encoding, least: Array, population: int | None) -> None:
        self.encoding, self.least = encoding, least
        self.size = len(encoding.groups)
        self.generation_size = population or 4 + int(3 * math.log(max(1, self.size)))
        parents = self.generation_size // 2
        raw = math.log((self.generation_size + 1) / 2) - np.log(np.arange(1, parents + 1))
        self.weights: Array = raw / raw.sum()
        self.outcomes: list[tuple[float, Array]] = []
        self.best, self.idle = math.inf, 0
        self.begun = False  # whether a correct candidate is known to begin at
        self.begin(np.full(self.size, 0.5))

    def begin(self, mean: Array) -> None:
        self.mean, self.deviation = mean, FIRST_DEVIATION
        self.covariance = np.eye(self.size)
        self.step_path, self.shape_path = np.zeros(self.size), np.zeros(self.size)
        self.generations = 0

    def drawn(self, dice: np.random.Generator) -> Array:
        spread = np.sqrt(np.maximum(np.diag(self.covariance), 1e-12)) * self.deviation
        wider = np.maximum(1.0, self.least / spread)  # columns that would freeze
        root = np.linalg.cholesky(self.covariance + 1e-9 * np.eye(self.size))
        step: Array = root @ dice.standard_normal(self.size) * self.deviation * wider
        drawn: Array = np.clip(self.mean + step, 0.0, 1.0)
        return drawn

    def learn(self, place: Array, log_ratio: float) -> None:
        """Take an outcome; infinite for a wrong candidate. A full generation moves the mean."""
        self.outcomes.append((log_ratio, place))
        if len(self.outcomes) < self.generation_size:
            return
        ranked = sorted(self.outcomes, key=lambda outcome: outcome[0])
        self.outcomes = []
        better = ranked[0][0] < self.best
        self.best, self.idle = min(self.best, ranked[0][0]), 0 if better else self.idle + 1
        if not self.begun:
            self.begun = better
            self.begin(ranked[0][1])
        elif self.idle >= PATIENCE:
            self.idle = 0
            self.begin(ranked[-1][1])
        elif math.isfinite(ranked[0][0]):
            self._move(np.array([place for _, place in ranked[: len(self.weights)]]))

    def _move(self, parents: Array) -> None:
        """One generation of the tutorial's algorithm, with its default constants."""
        size, weights = self.size, self.weights
        mass = 1.0 / float((weights**2).sum())
        step_rate = (mass + 2) / (size + mass + 5)
        damping = 1 + 2 * max(0.0, math.sqrt((mass - 1) / (size + 1)) - 1) + step_rate
        path_rate = (4 + mass / size) / (size + 4 + 2 * mass / size)
        rank_one = 2 / ((size + 1.3) ** 2 + mass)
        rank_many = min(1 - rank_one, 2 * (mass - 2 + 1 / mass) / ((size + 2) ** 2 + mass))
        steps = (parents - self.mean) / self.deviation
        step = weights @ steps
        self.mean = self.mean + step * self.deviation
        values, axes = np.linalg.eigh(self.covariance)
        whitened = axes @ ((axes.T @ step) / np.sqrt(np.maximum(values, 1e-12)))
        self.step_path = (1 - step_rate) * self.step_path + (
            math.sqrt(step_rate * (2 - step_rate) * mass) * whitened
        )
        self.generations += 1
        expected = math.sqrt(size) * (1 - 1 / (4 * size) + 1 / (21 * size * size))
        length = float(np.linalg.norm(self.step_path))
        fading = math.sqrt(1 - (1 - step_rate) ** (2 * self.generations))
        short = length / fading < (1.4 + 2 / (size + 1)) * expected
        self.shape_path = (1 - path_rate) * self.shape_path + (
            short * math.sqrt(path_rate * (2 - path_rate) * mass) * step
        )
        self.covariance = (
            (1 - rank_one - rank_many) * self.covariance
            + rank_one * np.outer(self.shape_path, self.shape_path)
            + rank_many * (steps.T * weights) @ steps
        )
        growth = math.exp(min(1.0, (step_rate / damping) * (length / expected - 1)))
        self.deviation = float(np.clip(self.deviation * growth, 1e-3, 1.0))


class CmaEs(Strategy):
    """Adapts a normal distribution for each template."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._distributions = {
            name: _distribution(space, self.options.population)
            for name, space in self.spaces.items()
        }

    def propose(self, template: str, rng: random.Random) -> Proposal:
        distribution, space = self._distributions[template], self.spaces[template]
        if not distribution.size or not distribution.begun:
            return Proposal(self.random_unseen(template, rng))
        row = distribution.encoding.nearest(
            distribution.drawn(np.random.default_rng(rng.getrandbits(64)))
        )
        values = {
            parameter.name: parameter.values[code]
            for parameter, code in zip(space.template.parameters, row, strict=True)
        }
        point: Items = complete_parameters(space.template, values, space.compiled)
        if self.is_unseen(template, point):
            return Proposal(Candidate(self.kernel, template, point, Origin(OriginKind.SAMPLED)))
        return Proposal(self.nearest_unseen(template, point, rng))

    def learn(self, proposal: Proposal, told: Told) -> None:
        template = proposal.candidate.template
        distribution, parameters = (
            self._distributions[template],
            self.spaces[template].template.parameters,
        )
        if not distribution.size:
            return
        codes = [
            parameter.values.index(value) if value in parameter.values else 0
            for parameter, (_, value) in zip(parameters, proposal.candidate.parameters, strict=True)
        ]
        place = distribution.encoding(np.array([codes], np.intp))[0]
        distribution.learn(place, told.log_ratio if isinstance(told, Objective) else math.inf)


def _distribution(space: Space, population: int | None) -> Distribution:
    encoding = Encoding(space.template.parameters)
    counts = [len(space.template.parameters[place].values) for place in encoding.places]
    least = [0.5 / (counts[group] - 1) for group in encoding.groups.tolist()]
    return Distribution(encoding, np.array(least), population)
