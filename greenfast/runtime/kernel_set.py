"""Kernels that serve an operation together, and the table that picks among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from greenfast.runtime.operation import Operation
from greenfast.runtime.program import Measured, Program, mismatch
from greenfast.search.errors import SpecError
from greenfast.search.kernels.expressions import Expression, Value

LIBRARY = "library"  # in place of a kernel's id: the operation's own library is faster
MOST_TOLD = 4  # sets of compile-time values in a sentence


@dataclass(frozen=True)
class Condition:
    """above < value <= at_most; None is no limit."""

    value: Expression
    above: float | None
    at_most: float | None

    def holds(self, values: Mapping[str, Value]) -> bool:
        value = self.value(values)
        return (self.above is None or value > self.above) and (
            self.at_most is None or value <= self.at_most
        )

    def __str__(self) -> str:
        low = "" if self.above is None else f"{self.above} < "
        high = "" if self.at_most is None else f" <= {self.at_most}"
        return f"{low}{self.value.text}{high}"


@dataclass(frozen=True)
class Rule:
    conditions: tuple[Condition, ...]
    use: str  # a kernel's id, or LIBRARY

    def __str__(self) -> str:
        return " and ".join(map(str, self.conditions)) or "otherwise"


@dataclass(frozen=True)
class Group:
    """The rules for one set of compile-time values, inside the region that was measured."""

    compiled: Mapping[str, Value]
    region: Mapping[str, tuple[int, int]]
    rules: tuple[Rule, ...]
    outside: str
    measured: tuple[Measured, ...] = ()


@dataclass(frozen=True)
class Choice:
    """A program, or the reason for the fallback."""

    program: Program | None
    why: str
    measured: tuple[Measured, ...] = ()


def _listed(values: Mapping[str, Value]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items()) or "one for all types"


@dataclass(frozen=True)
class KernelSet:
    """Programs by id. Without `groups`, the first that is compiled for the call.

    `device` is the GPU model that the table was measured on. Outside of the measured region the
    set prefers the operation's library where `has_library`.
    """

    origin: str
    operation: Operation
    programs: Mapping[str, Program]
    groups: tuple[Group, ...] = ()
    device: str = ""
    has_library: bool = False

    def choose(self, values: Mapping[str, Value], dtypes: Mapping[str, str]) -> Choice:
        """The program for dims and options `values`."""
        if not self.groups:
            return self._first(values, dtypes)
        for group in self.groups:
            if all(values.get(name) == value for name, value in group.compiled.items()):
                return self._by_rules(group, values)
        called = _listed({name: values.get(name, "") for name in self.operation.compiled_names})
        groups = [_listed(group.compiled) for group in self.groups[:MOST_TOLD]]
        more = ", ..." if len(self.groups) > MOST_TOLD else ""
        return Choice(
            None, f"{self.origin} has no kernel for {called}; it has {'; '.join(groups)}{more}"
        )

    def instead_of(self, program: Program) -> tuple[Program, ...]:
        """The programs to try when `program` cannot run a call.

        A set that was measured against a library leaves such calls to the library.
        """
        return () if self.has_library else self.alike(program)

    def alike(self, program: Program) -> tuple[Program, ...]:
        """The other programs of the same compile-time values."""
        return tuple(
            other
            for other in self.programs.values()
            if other is not program and other.compiled == program.compiled
        )

    def _by_rules(self, group: Group, values: Mapping[str, Value]) -> Choice:
        for name, (low, high) in group.region.items():
            if not low <= int(values[name]) <= high:
                return self._outside(
                    group,
                    f"{name}={values[name]} is outside the measured range {low} to {high}",
                )
        for rule in group.rules:
            try:
                if not all(condition.holds(values) for condition in rule.conditions):
                    continue
            except SpecError as error:
                return Choice(None, f"the rule {rule} of {self.origin} fails: {error.message}")
            why = (
                f"the table of {self.origin} has the rule {rule}"
                if rule.conditions
                else f"the last rule of the table of {self.origin} applies"
            )
            if rule.use == LIBRARY:
                return self._outside(group, f"another library was faster there: {why}")
            return Choice(self.programs[rule.use], why, group.measured)
        return self._outside(group, "no rule covers this shape")

    def _outside(self, group: Group, why: str) -> Choice:
        if self.has_library or group.outside == LIBRARY:
            return Choice(None, why, group.measured)
        return Choice(self.programs[group.outside], f"{why}; the kernel is correct there, too")

    def _first(self, values: Mapping[str, Value], dtypes: Mapping[str, str]) -> Choice:
        reasons = []
        for program in self.programs.values():
            why = mismatch(program, dtypes, values)
            if not why:
                measured = ", ".join(item.workload for item in program.measured)
                return Choice(
                    program,
                    f"it is the kernel of {self.origin}, searched on {measured}",
                    program.measured,
                )
            reasons.append(why)
        return Choice(None, "; ".join(dict.fromkeys(reasons)) or f"{self.origin} has no kernel")
