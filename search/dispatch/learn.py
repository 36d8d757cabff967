"""Learns the rules of a dispatch table from the times of kernels on shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from greenfast.search.dispatch.rules import Condition, Rule, Sizes
from greenfast.search.errors import SpecError
from greenfast.search.kernels.expressions import Expression

LITTLE = 1e-6  # of a loss within the tolerance: it decides among kernels that all fit
EQUAL = 1e-12  # of logarithms
DIGITS = 9  # of losses that are compared, in units of the largest weight
LONGEST_COUNT = 64  # characters of a count of blocks that a reader still takes in


@dataclass(frozen=True)
class Shape:
    """A workload for the learner: its sizes, weight, and each kernel's time."""

    sizes: Mapping[str, int]
    weight: float
    times_us: Mapping[str, float]
    best_us: float  # of all kernels, also those that are not among `times_us`
    measured: bool = True  # False: a size between two workloads, with times that it probably takes

    def excess(self, kernel: str) -> float:
        """The logarithm of the kernel's time over the best."""
        return math.log(self.times_us[kernel] / self.best_us)

    def loss(self, kernel: str, share: float) -> float:
        """The cost of picking `kernel`; little within `share` of the best, if that was measured."""
        excess = self.excess(kernel)
        return excess * LITTLE if self.measured and excess <= math.log1p(share) else excess


@dataclass(frozen=True)
class _Samples:
    """What the learner reads, in arrays over shapes."""

    kernels: tuple[str, ...]
    features: tuple[str, ...]
    values: tuple[tuple[int, ...], ...]  # by feature, then shape
    ranks: np.ndarray  # the values' places in their order, by feature and shape
    losses: np.ndarray  # weighted, by shape and kernel
    fits: np.ndarray  # by shape and kernel; also where nothing was measured
    measured: np.ndarray  # by shape
    weights: np.ndarray  # by shape

    def best_kernel(self, shapes: np.ndarray) -> int:
        """The kernel with the least loss on the shapes, of those that fit if any does."""
        losses = self.losses[shapes].sum(axis=0)
        fits = self.fits[shapes].all(axis=0)
        return int(np.argmin(np.where(fits, losses, np.inf) if fits.any() else losses))


@dataclass(frozen=True)
class _Split:
    feature: str
    at_most: int
    low: np.ndarray
    high: np.ndarray


def learn(
    shapes: Sequence[Shape],
    share: float,
    between: Sequence[Shape] = (),
    blocks: Sequence[Expression] = (),
) -> tuple[Rule, ...]:
    """Rules whose pick is within `share` of the best on every shape, with few splits.

    `between` decides among rules that do. A rule may limit the number of a kernel's `blocks`.
    """
    samples = _samples((*shapes, *between), share, blocks)
    rules = list(_grown(samples, np.arange(len(samples.measured)), ()))
    # The last rule takes everything that is left.
    rules[-1] = Rule((), rules[-1].use)
    while len(rules) > 1 and rules[-2].use == rules[-1].use:
        del rules[-2]
    return tuple(rules)


def _samples(shapes: Sequence[Shape], share: float, blocks: Sequence[Expression]) -> _Samples:
    kernels = tuple(shapes[0].times_us)
    features = _features(shapes, blocks)
    orders = [_order(values) for values in features.values()]
    weights = np.array([shape.weight for shape in shapes])
    losses = np.array([[shape.loss(name, share) for name in kernels] for shape in shapes])
    fits = [
        [not shape.measured or shape.excess(name) <= math.log1p(share) + EQUAL for name in kernels]
        for shape in shapes
    ]
    return _Samples(
        kernels,
        tuple(features),
        tuple(features.values()),
        np.array(orders, dtype=int).reshape(len(features), len(shapes)),
        losses * weights[:, None],
        np.array(fits),
        np.array([shape.measured for shape in shapes]),
        weights,
    )


def _features(shapes: Sequence[Shape], blocks: Sequence[Expression]) -> dict[str, tuple[int, ...]]:
    """What a rule may limit, with its value for each shape.

    These are the dims that differ, products of two (work and parallelism are products), and counts
    of blocks that are short enough to read.
    """
    names = [name for name in shapes[0].sizes if len({shape.sizes[name] for shape in shapes}) > 1]
    products = [f"{a} * {b}" for a, b in combinations(names, 2)]
    known: dict[tuple[int, ...], tuple[str, tuple[int, ...]]] = {}
    for text in (*names, *products):
        values = tuple(_product(text, shape.sizes) for shape in shapes)
        known.setdefault(_order(values), (text, values))  # equal orders split equally
    for counted in blocks:
        counts = _counts(counted, shapes)
        if counts is not None:
            known.setdefault(_order(counts), (counted.text, counts))
    return {text: values for order, (text, values) in known.items() if max(order) > 0}


def _counts(counted: Expression, shapes: Sequence[Shape]) -> tuple[int, ...] | None:
    """A number of blocks for each shape; None if it is long, or not a whole number for each."""
    if len(counted.text) > LONGEST_COUNT:
        return None
    try:
        counts = tuple(counted(shape.sizes) for shape in shapes)
    except SpecError:
        return None
    return counts if all(type(count) is int for count in counts) else None


def _product(text: str, sizes: Sizes) -> int:
    return math.prod(sizes[name] for name in text.split(" * "))


def _order(values: Sequence[int]) -> tuple[int, ...]:
    ranks = {value: rank for rank, value in enumerate(sorted(set(values)))}
    return tuple(ranks[value] for value in values)


def _grown(samples: _Samples, shapes: np.ndarray, when: tuple[Condition, ...]) -> list[Rule]:
    use = samples.best_kernel(shapes)
    split = None if samples.fits[shapes, use].all() else _best_split(samples, shapes)
    if split is None:
        return [Rule(when, samples.kernels[use])]
    limit = Condition(split.feature, None, split.at_most)
    low = _grown(samples, split.low, (*_without(when, split.feature), limit))
    high = _grown(samples, split.high, when)
    if len(low) == len(high) == 1 and low[0].use == high[0].use:
        return high
    return low + high


def _without(when: tuple[Condition, ...], feature: str) -> tuple[Condition, ...]:
    """The conditions that a tighter limit on the same feature does not replace."""
    return tuple(condition for condition in when if condition.value != feature)


def _best_split(samples: _Samples, shapes: np.ndarray) -> _Split | None:
    """The split with the least loss on both sides, each of which has a measured shape.

    None if no size separates the shapes. Of equals the earlier feature, then the wider gap between
    the sizes on both sides.
    """
    best: tuple[tuple[float, int, float, int], _Split] | None = None
    scale = samples.weights[shapes].max()
    for rank, feature in enumerate(samples.features):
        order = shapes[np.argsort(samples.ranks[rank, shapes], kind="stable")]
        losses = samples.losses[order].cumsum(axis=0)
        counts = samples.measured[order].cumsum()[:-1]
        apart = np.diff(samples.ranks[rank, order]) > 0
        ends = np.flatnonzero(apart & (counts > 0) & (counts < samples.measured[order].sum()))
        lost = losses[ends].min(axis=1) + (losses[-1] - losses[ends]).min(axis=1)
        for end, loss in zip(ends.tolist(), (lost / scale).round(DIGITS).tolist(), strict=True):
            below, above = (samples.values[rank][order[at]] for at in (end, end + 1))
            key = (loss, rank, -above / max(below, 1), below)
            if best is None or key < best[0]:
                split = _Split(feature, _between(below, above), order[: end + 1], order[end + 1 :])
                best = key, split
    return best[1] if best is not None else None


def _between(below: int, above: int) -> int:
    """The limit between two sizes: their geometric mean, rounded down."""
    return max(below, min(math.isqrt(below * above), above - 1))
