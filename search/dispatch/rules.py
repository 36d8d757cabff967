"""The rule that picks a kernel: a decision tree over sizes, written as an ordered list of rules.

The first rule whose conditions hold picks the kernel; the last rule has no conditions. A rule only
states upper limits, because the rules before it have taken the smaller sizes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise

from greenfast.search.kernels.expressions import Expression, expression

Sizes = Mapping[str, int]  # run-time dims by name


@dataclass(frozen=True)
class Condition:
    """`above < value <= at_most`, where `value` is an expression over run-time dims."""

    value: str
    above: int | None
    at_most: int | None

    @cached_property
    def computed(self) -> Expression:
        return expression(self.value, "dispatch table")

    def holds(self, sizes: Sizes) -> bool:
        value = self.computed(sizes)
        return (self.above is None or value > self.above) and (
            self.at_most is None or value <= self.at_most
        )

    def __str__(self) -> str:
        below = f" <= {self.at_most}" if self.at_most is not None else ""
        return f"{f'{self.above} < ' if self.above is not None else ''}{self.value}{below}"


@dataclass(frozen=True)
class Rule:
    when: tuple[Condition, ...]
    use: str


@dataclass(frozen=True)
class Shape:
    """A measured workload for the learner: its sizes, weight, and each kernel's time."""

    sizes: Mapping[str, int]
    weight: float
    times_us: Mapping[str, float]
    best_us: float  # of all kernels, also those that are not among `times_us`

    def loss(self, kernel: str, share: float) -> float:
        """The cost of picking `kernel`, as a weighted logarithm; little within `share` of best."""
        excess = math.log(self.times_us[kernel] / self.best_us)
        return self.weight * (excess if excess > math.log1p(share) else excess * 1e-6)


@dataclass(frozen=True)
class _Split:
    feature: str
    at_most: int
    low: tuple[Shape, ...]
    high: tuple[Shape, ...]


def pick(rules: Sequence[Rule], sizes: Sizes) -> str:
    """The kernel of the first rule that holds; the last rule always does."""
    return next(
        rule.use for rule in rules if all(condition.holds(sizes) for condition in rule.when)
    )


def learn(shapes: Sequence[Shape], share: float) -> tuple[Rule, ...]:
    """Rules whose pick is within `share` of the best on every shape, with few splits."""
    features = _features(shapes)
    rules = list(_grown(tuple(shapes), features, share, ()))
    # The last rule takes everything that is left.
    rules[-1] = Rule((), rules[-1].use)
    while len(rules) > 1 and rules[-2].use == rules[-1].use:
        del rules[-2]
    return tuple(rules)


def _features(shapes: Sequence[Shape]) -> tuple[str, ...]:
    """Dims that differ, then products of two of them: work and parallelism are products."""
    names = [name for name in shapes[0].sizes if len({shape.sizes[name] for shape in shapes}) > 1]
    known: dict[tuple[int, ...], str] = {}
    for text in (*names, *(f"{a} * {b}" for a, b in combinations(names, 2))):
        known.setdefault(_order(text, shapes), text)  # equal orders split equally
    return tuple(known.values())


def _value(text: str, shape: Shape) -> int:
    return math.prod(shape.sizes[name] for name in text.split(" * "))


def _order(text: str, shapes: Sequence[Shape]) -> tuple[int, ...]:
    values = [_value(text, shape) for shape in shapes]
    ranks = {value: rank for rank, value in enumerate(sorted(set(values)))}
    return tuple(ranks[value] for value in values)


def _grown(
    shapes: tuple[Shape, ...],
    features: Sequence[str],
    share: float,
    when: tuple[Condition, ...],
) -> list[Rule]:
    use, _ = _best_kernel(shapes, share)
    fits = all(shape.times_us[use] <= shape.best_us * (1 + share) for shape in shapes)
    split = None if fits else _best_split(shapes, features, share)
    if split is None:
        return [Rule(when, use)]
    limit = Condition(split.feature, None, split.at_most)
    low = _grown(split.low, features, share, (*_without(when, split.feature), limit))
    high = _grown(split.high, features, share, when)
    if len(low) == len(high) == 1 and low[0].use == high[0].use:
        return high
    return low + high


def _without(when: tuple[Condition, ...], feature: str) -> tuple[Condition, ...]:
    """The conditions that a tighter limit on the same feature does not replace."""
    return tuple(condition for condition in when if condition.value != feature)


def _best_kernel(shapes: Sequence[Shape], share: float) -> tuple[str, float]:
    """The kernel with the least loss on the shapes; the first of equals."""
    losses = {
        name: math.fsum(shape.loss(name, share) for shape in shapes) for name in shapes[0].times_us
    }
    name = min(losses, key=lambda kernel: losses[kernel])
    return name, losses[name]


def _best_split(shapes: tuple[Shape, ...], features: Sequence[str], share: float) -> _Split | None:
    """The split with the least loss on both sides; None if no size separates the shapes.

    Of equals the earlier feature, then the wider gap between the sizes on both sides.
    """
    ranked = []
    for rank, feature in enumerate(features):
        values = sorted({_value(feature, shape) for shape in shapes})
        for below, above in pairwise(values):
            low = tuple(shape for shape in shapes if _value(feature, shape) <= below)
            high = tuple(shape for shape in shapes if _value(feature, shape) >= above)
            lost = _best_kernel(low, share)[1] + _best_kernel(high, share)[1]
            split = _Split(feature, _between(below, above), low, high)
            ranked.append(((round(lost, 12), rank, -above / max(below, 1), below), split))
    return min(ranked, key=lambda split: split[0])[1] if ranked else None


def _between(below: int, above: int) -> int:
    """The limit between two measured sizes: their geometric mean, rounded down."""
    return max(below, min(math.isqrt(below * above), above - 1))
