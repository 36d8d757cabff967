"""A model of times over parameters, which ranks candidates before they cost anything.

A Gaussian process with a Matern 5/2 kernel and a length for each parameter: a parameter that does
not matter gets a large length by itself. The scale of the values is integrated out. The lengths are
the most probable ones under a weak prior, found by a few steps of resilient propagation from the
last ones. Candidates are ranked by expected improvement, times the chance that they are correct,
which a second model of the same kind predicts.

Predictions of other scopes (prior.py) are basis functions: the process models what their weighted
sum leaves. Each outcome moves the weights, and they count for nothing where the process alone
predicts left-out outcomes better.

Sources: Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, ch. 2.7, 4 and 5;
Jones et al., "Efficient Global Optimization of Expensive Black-Box Functions", 1998; Riedmiller and
Braun, "A Direct Adaptive Method for Faster Backpropagation Learning: The RPROP Algorithm", 1993.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

Array = np.ndarray

FIRST_LENGTH, FIRST_NOISE = 0.5, 1e-2
# Priors of the logarithms: normal, with these means and deviations.
LENGTH_PRIOR, NOISE_PRIOR = (0.0, 1.0), (math.log(1e-3), 1.5)
LENGTH_LIMIT, NOISE_LIMITS = 4.0, (math.log(1e-5), math.log(0.5))
FIRST_STEP, STEP_LIMITS = 0.1, (0.005, 0.5)
FASTER, HESITANT = 1.3, 0.5
LONGEST_TAIL = 3.0  # times the distance from the best to the median; worse times are cut
LEAST_VARIANCE = 1e-6  # of the scale: rounding may leave less than nothing
FIRST_WEIGHT = 1.0  # of the predictions of all other scopes together
WEIGHT_PRECISION = 1.0  # of that, in parts of the precision of an outcome
LEAST_DEVIATION = 0.01  # of times: where all are alike, predictions would count for too much
LEAST_CHANCE = 0.01  # of being correct: the model is never certain
DIGITS = 4  # of hyperparameters, which are stored with a trial
SMALL_HALF = 24  # rows: a matrix of less than twice as many is inverted at once


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


@dataclass(frozen=True)
class Basis:
    """Logarithms of times that other scopes predict for the points of a question."""

    known: Array  # [scopes, outcomes]
    pending: Array  # [scopes, pending]
    points: Array  # [scopes, points]


class Ranker:
    """A model of known outcomes. What it expects of others follows from its arguments alone."""

    def __init__(self, groups: Array, hyperparameters: tuple[float, ...] = ()) -> None:
        self.groups = groups
        count = int(groups.max()) + 1
        first = np.append(np.full(count, math.log(FIRST_LENGTH)), math.log(FIRST_NOISE))
        self.theta = np.array(hyperparameters) if len(hyperparameters) == count + 1 else first

    @property
    def hyperparameters(self) -> tuple[float, ...]:
        return tuple(round(float(value), DIGITS) for value in self.theta)

    def expected(
        self,
        known: Outcomes,
        pending: Array,
        points: Array,
        steps: int,
        basis: Basis | None = None,
    ) -> Expected:
        """What is expected of the times of `points`, after `steps` of fitting.

        `pending` are points whose outcome is not known yet. They count as tried, with the expected
        outcome, so that others are proposed.
        """
        correct = np.isfinite(known.logs)
        places, targets = known.points[correct], standardised(known.logs[correct])
        trend = None
        if basis is not None:
            trend = self._trend(basis, known.logs, places, targets)
        factor = self._fitted(places, targets if trend is None else targets - trend.known, steps)
        # Outcomes that are as expected leave means where they are. Deviations become smaller.
        means = factor.means(self.nearness(places, points))
        if trend is not None:
            means += trend.points
        root, scale, best = factor.root, factor.scale, float(targets.min())
        if len(pending):
            shared = _matern(_between(self._scaled(places), self._scaled(pending)))
            root = self._with_pending(factor, shared, pending)
            scale *= (len(places) + 1.0) / (len(root) + 1.0)
            outlook = factor.weights @ shared
            best = min(best, float((outlook if trend is None else outlook + trend.pending).min()))
            places = np.vstack([places, pending])

        def spread(rows: Array) -> Array:
            nearness = self.nearness(places, points[rows])
            spread: Array = root.astype(np.float32) @ nearness
            return spread

        def near(row: int, rows: Array) -> Array:
            nearness: Array = self.nearness(points[row : row + 1], points[rows])[0]
            return nearness

        return Expected(means, spread, near, scale, self._noise, best)

    def prediction(self, known: Outcomes, steps: int) -> Prediction:
        """What correct outcomes tell of the time of any point, after `steps` of fitting."""
        factor = self._fitted(known.points, standardised(known.logs), steps)
        return Prediction(self, known, factor)

    def chances(self, known: Outcomes, steps: int) -> Callable[[Array], Array]:
        """A function of points [points, columns]: how likely each is to be correct, after `steps`
        of fitting to what was."""
        correct = np.isfinite(known.logs).astype(float)
        share = correct.mean()
        factor = self._fitted(known.points, correct - share, steps)

        def chance(points: Array) -> Array:
            nearness = self.nearness(known.points, points)
            chances: Array = np.clip(factor.means(nearness) + share, LEAST_CHANCE, 1.0)
            return chances

        return chance

    def _trend(self, basis: Basis, logs: Array, places: Array, targets: Array) -> _Trend:
        """The weighted sum of the predictions, in units of the targets.

        The weights are those of generalised least squares, with the covariance of the last lengths
        and a normal prior. They are 0 where the process alone predicts each outcome better from the
        others (Rasmussen and Williams, 5.4.2).
        """
        correct = np.isfinite(logs)
        deviation = max(float(cut(logs[correct]).std()), LEAST_DEVIATION)
        known = basis.known[:, correct] / deviation
        middle = known.mean(1, keepdims=True)
        root = self._factor(places, targets).root
        rows, aims = (known - middle) @ root.T, root @ targets
        first = np.full(len(rows), FIRST_WEIGHT / len(rows))
        weights = np.linalg.solve(
            rows @ rows.T + WEIGHT_PRECISION * np.eye(len(rows)),
            rows @ aims + WEIGHT_PRECISION * first,
        )
        weights = np.maximum(weights, 0.0)
        inverse = root.T @ root
        shares = np.diag(inverse)
        alone = inverse @ targets / shares
        helped = inverse @ (targets - weights @ (known - middle)) / shares
        if helped @ helped >= alone @ alone:
            weights = np.zeros_like(weights)
        return _Trend(
            weights @ (known - middle),
            weights @ (basis.pending / deviation - middle),
            (weights @ (basis.points / deviation - middle)).astype(np.float32),
        )

    def nearness(self, places: Array, points: Array) -> Array:
        """[places, points]: their covariance."""
        return _nearness(self._scaled(places), self._scaled(points))

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
        root = _inverse(np.linalg.cholesky(covariance))
        inverse = root.T @ root
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
        root = _inverse(np.linalg.cholesky(self._covariance(places)))
        weights = root.T @ (root @ targets)
        return _Factor(root, weights, float((targets @ weights + 1.0) / (len(targets) + 1.0)))

    def _covariance(self, places: Array) -> Array:
        scaled = self._scaled(places)
        covariance = _matern(_between(scaled, scaled))
        covariance[np.diag_indices(len(places))] += self._noise
        return covariance

    def _with_pending(self, factor: _Factor, shared: Array, pending: Array) -> Array:
        """The root of the factor for these points, too; `shared`: their covariance with the known.

        It grows by rows: those of the known points stay as they are.
        """
        below = (factor.root @ shared).T
        corner = _inverse(np.linalg.cholesky(self._covariance(pending) - below @ below.T))
        count = len(shared)
        root = np.zeros((count + len(pending), count + len(pending)))
        root[:count, :count] = factor.root
        root[count:, :count] = -corner @ (below @ factor.root)
        root[count:, count:] = corner
        return root


@dataclass(frozen=True)
class Prediction:
    """A function of points [points, columns]: the expected logarithm of the time of each."""

    ranker: Ranker
    known: Outcomes
    factor: _Factor

    def __call__(self, points: Array) -> Array:
        tailless = cut(self.known.logs)
        means = self.factor.means(self.ranker.nearness(self.known.points, points))
        logs: Array = means * np.float32(tailless.std()) + np.float32(tailless.mean())
        return logs


@dataclass(frozen=True)
class _Trend:
    """Expected from other scopes alone, in units of the targets."""

    known: Array  # [correct outcomes]
    pending: Array
    points: Array


@dataclass(frozen=True)
class _Factor:
    root: Array  # its transpose times itself is the inverse of the covariance
    weights: Array
    scale: float

    def means(self, nearness: Array) -> Array:
        means: Array = self.weights.astype(np.float32) @ nearness
        return means


@dataclass(frozen=True)
class Expected:
    """What a model expects of the times of points. Deviations are costly, means are not."""

    means: Array  # [points]
    # Of rows of the points, [places, rows]: the squares of a column add up to the share of the
    # point's variance that the places explain.
    spread: Callable[[Array], Array]
    near: Callable[[int, Array], Array]  # the covariance of a point with rows of the points
    scale: float  # the variance of a point of which nothing is known
    noise: float  # of an outcome, in parts of `scale`
    best: float  # of what is known or expected already

    def most(self) -> Array:
        """[points]: an upper bound of `improvement`: no point is less known than at all."""
        most = np.full(len(self.means), math.sqrt(self.scale), np.float32)
        return expected_improvement(self.means, most, self.best)

    def beside(self, row: int) -> Expected:
        """What is expected of the others once the point of this row is tried as well."""
        own = self.spread(np.array([row]))[:, 0]
        left = math.sqrt(max(1 + self.noise - float(own @ own), LEAST_VARIANCE))

        def spread(rows: Array) -> Array:  # the factor of the covariance grows by a row
            others = self.spread(rows)
            return np.vstack([others, (self.near(row, rows) - own @ others) / left])

        return replace(self, spread=spread, best=min(self.best, float(self.means[row])))

    def deviations(self, rows: Array) -> Array:
        """[rows]: of these points."""
        spread = self.spread(rows)
        known = np.einsum("ij,ij->j", spread, spread)
        deviations: Array = np.sqrt(self.scale * np.maximum(1 - known, LEAST_VARIANCE))
        return deviations

    def improvement(self, rows: Array) -> Array:
        """[rows]: by how much each of these points is expected to be below the best."""
        return expected_improvement(self.means[rows], self.deviations(rows), self.best)


def standardised(logs: Array) -> Array:
    """Times for the model."""
    tailless = cut(logs)
    standard: Array = (tailless - tailless.mean()) / (tailless.std() + 1e-12)
    return standard


def cut(logs: Array) -> Array:
    """Times far above the median are cut, since their size is irrelevant."""
    best, median = logs.min(), np.median(logs)
    tailless: Array = np.minimum(logs, best + LONGEST_TAIL * max(median - best, 1e-9))
    return tailless


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
    """[some, others]: squared distances, as one product."""
    norms, other_norms = (some * some).sum(1), (others * others).sum(1)
    left = np.column_stack([-2 * some, norms, np.ones_like(norms)])
    right = np.column_stack([others, np.ones_like(other_norms), other_norms])
    squares: Array = left @ right.T
    np.maximum(squares, 0.0, out=squares)  # rounding may leave a little less
    return squares


def _matern(squares: Array) -> Array:
    """The covariance at these squared distances, in their place."""
    distances = np.sqrt(np.multiply(squares, 5, out=squares), out=squares)
    decay = np.negative(distances)
    np.exp(decay, out=decay)
    values: Array = distances * (1 / 3)
    values += 1
    values *= distances
    values += 1
    values *= decay
    return values


def _nearness(places: Array, points: Array) -> Array:
    """[places, points]: the covariance of each two.

    There are thousands of points, so it is in single precision: half the time, and enough for
    ranks.
    """
    return _matern(_between(places.astype(np.float32), points.astype(np.float32)))


def _inverse(lower: Array) -> Array:
    """Of a lower triangular matrix, by halves: a third of the work of a general inverse."""
    half = len(lower) // 2
    if half < SMALL_HALF:
        small: Array = np.linalg.inv(lower)
        return small
    first, last = _inverse(lower[:half, :half]), _inverse(lower[half:, half:])
    inverse = np.zeros_like(lower)
    inverse[:half, :half], inverse[half:, half:] = first, last
    inverse[half:, :half] = -last @ (lower[half:, :half] @ first)
    return inverse
