"""Whether points of a space that is too large to list are valid: many at a time, and often.

A rule uses a few parameters, and the points that a search looks at share most of their values. Each
rule is evaluated once for a combination of the values that it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from greenfast.search.devices.facts import Device
from greenfast.search.kernels.expressions import SM_COUNT, Value
from greenfast.search.kernels.spec import TemplateSpec
from greenfast.search.kernels.workloads import Items
from greenfast.search.space.lattice import launch_names

MOST_REMEMBERED = 2**16  # outcomes of a rule
Row = tuple[int, ...]  # positions of values


class Rule:
    """A condition on some of the parameters, remembered."""

    def __init__(self, places: Sequence[int], holds: Callable[[Row], bool]) -> None:
        self.places, self._holds = list(places), holds
        self._known: dict[Row, bool] = {}

    def __call__(self, row: Row) -> bool:
        known = self._known.get(row)
        if known is None:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            known = self._known[row] = self._holds(row)
        return known


class Validity:
    """Judges rows of positions of values: `when`, constraints and launches, in this order."""

    def __init__(
        self,
        template: TemplateSpec,
        compiled: Items,
        device: Device,
        fits: Callable[[Mapping[str, Value]], bool],
    ) -> None:
        self._template = template
        self._fixed: dict[str, Value] = {**dict(compiled), SM_COUNT: device.multiprocessors}
        self._locals = dict(template.locals)
        self._places = {each.name: place for place, each in enumerate(template.parameters)}
        self.rules = [
            *(self._completed(place) for place in range(len(self._places))),
            *(
                self._rule(constraint.expression.names, constraint.expression)
                for constraint in template.constraints
            ),
            self._rule(launch_names(template), fits),
        ]
        self.rules = [rule for rule in self.rules if rule.places]

    def __call__(self, codes: np.ndarray) -> np.ndarray:
        """[rows]: whether each row of [rows, parameters] is valid."""
        valid = np.ones(len(codes), bool)
        for rule in self.rules:
            left = np.flatnonzero(valid)
            rows = codes[left][:, rule.places].tolist()
            valid[left] = [rule(tuple(row)) for row in rows]
        return valid

    def _rule(self, names: frozenset[str], holds: Callable[[Mapping[str, Value]], Any]) -> Rule:
        needed = self._parameters_of(names)
        order = [name for name, _ in self._template.locals if name in needed]
        places = sorted(self._places[name] for name in needed if name in self._places)

        def judged(row: Row) -> bool:
            values = dict(self._fixed)
            for place, code in zip(places, row, strict=True):
                parameter = self._template.parameters[place]
                values[parameter.name] = parameter.values[code]
            for name in order:
                values[name] = self._locals[name](values)
            return bool(holds(values))

        return Rule(places, judged)

    def _completed(self, place: int) -> Rule:
        """A parameter whose `when` does not hold has its default."""
        parameter = self._template.parameters[place]
        when = parameter.when
        if when is None:
            return Rule((), lambda row: True)
        default = parameter.default
        return self._rule(
            when.names | {parameter.name},
            lambda values: bool(when(values)) or values[parameter.name] == default,
        )

    def _parameters_of(self, names: frozenset[str]) -> set[str]:
        """The parameters and locals from which these names are computed."""
        needed: set[str] = set()
        left = set(names)
        while left:
            name = left.pop()
            if name in needed or not (name in self._places or name in self._locals):
                continue
            needed.add(name)
            if name in self._locals:
                left |= self._locals[name].names
        return needed
