"""The rule that picks a kernel: a decision tree over sizes, written as an ordered list of rules.

The first rule whose conditions hold picks the kernel; the last rule has no conditions. A rule only
states upper limits, because the rules before it have taken the smaller sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

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


def pick(rules: Sequence[Rule], sizes: Sizes) -> str:
    """The kernel of the first rule that holds; the last rule always does."""
    return next(
        rule.use for rule in rules if all(condition.holds(sizes) for condition in rule.when)
    )
