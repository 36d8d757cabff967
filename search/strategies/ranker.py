"""A model of times over parameters, which ranks candidates before they cost anything.

A Gaussian process with a Matern 5/2 kernel and a length for each parameter: a parameter that does
not matter gets a large length by itself. The scale of the values is integrated out. The lengths are
the most probable ones under a weak prior, found by a few steps of resilient propagation from the
last ones. Candidates are ranked by expected improvement, times the chance that they are correct at
all, which a second model of the same kind tells.

Sources: Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, ch. 4 and 5;
Jones et al., "Efficient Global Optimization of Expensive Black-Box Functions", 1998; Riedmiller and
Braun, "A Direct Adaptive Method for Faster Backpropagation Learning: The RPROP Algorithm", 1993.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Array = np.ndarray
Scaling = Callable[[Array], Array]

FIRST_LENGTH, FIRST_NOISE = 0.5, 1e-2
# Priors of the logarithms: normal, with these means and deviations.
LENGTH_PRIOR, NOISE_PRIOR = (0.0, 1.0), (math.log(1e-3), 1.5)
LENGTH_LIMIT, NOISE_LIMITS = 4.0, (math.log(1e-5), math.log(0.5))
FIRST_STEP, STEP_LIMITS = 0.1, (0.005, 0.5)
FASTER, HESITANT = 1.3, 0.5
LONGEST_TAIL = 3.0  # times the distance from the best to the median; worse times are cut
LEAST_CHANCE = 0.01  # of being correct: the model is never certain
DIGITS = 4  # of hyperparameters, which are stored with a trial


@dataclass(frozen=True)
class Features:
    """Numbers of each point for the model: [points, columns], and each column's length."""

    values: Array
    groups: Array  # [columns]


@dataclass(frozen=True)
class Outcomes:
    """The known outcomes: numbers of points, and the logarithms of their times; NaN: wrong."""

    points: Array  # [outcomes, columns]
    logs: Array  # [outcomes]


class Ranker:
    """Ranks points by what is known of others. Its choices follow from its arguments alone."""

    def __init__(self, groups: Array, hyperparameters: tuple[float, ...] = ()) -> None:
        self.groups = groups
        count = int(groups.max()) + 1
        first = np.append(np.full(count, math.log(FIRST_LENGTH)), math.log(FIRST_NOISE))
        self.theta = np.array(hyperparameters) if len(hyperparameters) == count + 1 else first

    @property
    def hyperparameters(self) -> tuple[float, ...]:
        return tuple(round(float(value), DIGITS) for value in self.theta)

    def ranked(self, known: Outcomes, pending: Array, points: Array, steps: int) -> Array:
        """[points]: the merit of each, after `steps` of fitting; more is better.

        `pending` are points whose outcome is not known yet: they are taken to be as expected, so
        that others are asked for.
        """
        correct = np.isfinite(known.logs)
        places, targets = known.points[correct], standardised(known.logs[correct])
        factor = self._fitted(places, targets, steps)
        if len(pending):
            expected = _means(_nearness(places, pending, self._scaled), factor)
            places, targets = np.vstack([places, pending]), np.append(targets, expected)
            factor = self._factor(places, targets)
        nearness = _nearness(places, points, self._scaled)
        mean, deviation = _means(nearness, factor), _deviations(nearness, factor)
        return expected_improvement(mean, deviation, float(targets.min()))

    def chance(self, known: Outcomes, points: Array, steps: int) -> Array:
        """[points]: how likely each is to be correct, after `steps` of fitting to what was."""
        correct = np.isfinite(known.logs).astype(float)
        share = correct.mean()
        factor = self._fitted(known.points, correct - share, steps)
        mean = _means(_nearness(known.points, points, self._scaled), factor)
        chance: Array = np.clip(mean + share, LEAST_CHANCE, 1.0)
        return chance

    def _scaled(self, points: Array) -> Array:
        scaled: Array = points * np.exp(-self.theta[:-1])[self.groups]
        return scaled

    def _fitted(self, places: Array, targets: Array, steps: int) -> _Factor:
        """Move the hyperparameters uphill, and factorise for the last ones."""
        if not steps:
            return self._factor(places, targets)
        count = len(self.theta) - 1
        squares = np.stack(
            [_squares(places[:, self.groups == group]) for group in range(count)]
        ).reshape(count, -1)
        step, last = np.full(count + 1, FIRST_STEP), np.zeros(count + 1)
        for _ in range(steps):
            slope = np.sign(self._slope(squares, targets))
            agreement = slope * last
            step = np.where(agreement > 0, step * FASTER, step)
            step = np.clip(np.where(agreement < 0, step * HESITANT, step), *STEP_LIMITS)
            self.theta = self._bounded(self.theta + slope * step)
            last = slope
        self.theta = np.array(self.hyperparameters)
        return self._factor(places, targets)

    def _bounded(self, theta: Array) -> Array:
        bounded: Array = np.append(
            np.clip(theta[:-1], -LENGTH_LIMIT, LENGTH_LIMIT), np.clip(theta[-1], *NOISE_LIMITS)
        )
        return bounded

    def _slope(self, squares: Array, targets: Array) -> Array:
        """The gradient of the log posterior of the hyperparameters."""
        count = len(targets)
        inverse_lengths = np.exp(-2 * self.theta[:-1])
        distances = np.sqrt(5 * (inverse_lengths @ squares) + 1e-12).reshape(count, count)
        decay = np.exp(-distances)
        covariance = (1 + distances + distances * distances / 3) * decay
        covariance[np.diag_indices(count)] += self._noise
        inverse = np.linalg.inv(covariance)
        weights = inverse @ targets
        scale = (targets @ weights + 1.0) / (count + 1.0)
        pull = 0.5 * (np.outer(weights, weights) / scale - inverse)
        lengths = (
            2 * inverse_lengths * (squares @ (pull * (5 / 6) * (1 + distances) * decay).ravel())
        )
        lengths -= (self.theta[:-1] - LENGTH_PRIOR[0]) / LENGTH_PRIOR[1] ** 2
        noise = np.trace(pull) * math.exp(self.theta[-1])
        noise -= (self.theta[-1] - NOISE_PRIOR[0]) / NOISE_PRIOR[1] ** 2
        slope: Array = np.append(lengths, noise)
        return slope

    @property
    def _noise(self) -> float:
        return math.exp(self.theta[-1]) + 1e-6

    def _factor(self, places: Array, targets: Array) -> _Factor:
        scaled = self._scaled(places)
        covariance = _matern(_between(scaled, scaled))
        covariance[np.diag_indices(len(targets))] += self._noise
        root = np.linalg.inv(np.linalg.cholesky(covariance))
        weights = root.T @ (root @ targets)
        return _Factor(root, weights, float((targets @ weights + 1.0) / (len(targets) + 1.0)))


@dataclass(frozen=True)
class _Factor:
    root: Array  # its transpose times itself is the inverse of the covariance
    weights: Array
    scale: float


def standardised(logs: Array) -> Array:
    """Times for the model. Those far above the median are cut, since their size is irrelevant."""
    best, median = logs.min(), np.median(logs)
    cut = np.minimum(logs, best + LONGEST_TAIL * max(median - best, 1e-9))
    standard: Array = (cut - cut.mean()) / (cut.std() + 1e-12)
    return standard


def expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """By how much each point is expected to be below `best`."""
    gap = (best - mean) / deviation
    # The normal distribution function, by a logistic approximation that is exact enough for ranks.
    share = 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (gap + 0.044715 * gap**3)))
    density = np.exp(-gap * gap / 2) / math.sqrt(2 * math.pi)
    improvement: Array = deviation * (gap * share + density)
    return improvement


def _squares(values: Array) -> Array:
    """[points, points]: squared distances in some columns."""
    squares: Array = ((values[:, None, :] - values[None]) ** 2).sum(-1)
    return squares


def _between(some: Array, others: Array) -> Array:
    """[some, others]: squared distances."""
    squares: Array = (
        (some * some).sum(1)[:, None] + (others * others).sum(1)[None] - 2 * some @ others.T
    )
    positive: Array = np.maximum(squares, 0.0)  # rounding may leave a little less
    return positive


def _matern(squares: Array) -> Array:
    distances = np.sqrt(5 * squares)
    values: Array = np.exp(-distances)
    distances += distances * distances / 3
    distances += 1
    values *= distances
    return values


# Thousands of points are in single precision: half the time, and enough to rank them.


def _nearness(places: Array, points: Array, scaled: Scaling) -> Array:
    """[places, points]: the covariance of each two."""
    single = np.float32
    return _matern(_between(scaled(places).astype(single), scaled(points).astype(single)))


def _means(nearness: Array, factor: _Factor) -> Array:
    means: Array = factor.weights.astype(np.float32) @ nearness
    return means


def _deviations(nearness: Array, factor: _Factor) -> Array:
    spread = factor.root.astype(np.float32) @ nearness
    known = np.einsum("ij,ij->j", spread, spread)
    deviations: Array = np.sqrt(factor.scale * np.maximum(1 - known, 1e-6))
    return deviations
