"""A candidate: a template with concrete parameter values, and where it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from greenfast.search.digest import digest
from greenfast.search.errors import unknown_name
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import Items, TemplateSpec


class OriginKind(StrEnum):
    SAMPLED = "sampled"
    MUTATED = "mutated"  # from a single parent
    CROSSED = "crossed"  # from two parents
    REPAIRED = "repaired"  # the nearest valid untried point to what the sampler wanted
    PRESET = "preset"
    SEEDED = "seeded"


@dataclass(frozen=True)
class Origin:
    kind: OriginKind
    parents: tuple[str, ...] = ()  # digests of candidates
    preset: str = ""
    wanted: Items = ()  # of a repaired candidate: the sampler's values that were replaced


@dataclass(frozen=True)
class Candidate:
    """A point of a template's space. Two candidates with the same template and values are one."""

    kernel: str
    template: str
    parameters: Items  # complete, in the template's order
    origin: Origin

    DIGEST_EXCLUDES = frozenset({"origin"})

    @property
    def digest(self) -> str:
        return digest(self)

    def values(self) -> dict[str, Value]:
        return dict(self.parameters)


def complete_parameters(
    template: TemplateSpec, given: Mapping[str, Value], compiled: Items
) -> Items:
    """Every parameter with its value: given ones where active, defaults elsewhere.

    A parameter whose `when` does not hold takes its default, so that one design has one spelling.
    UsageError for unknown parameters and values.
    """
    for name, value in given.items():
        parameter = template.parameter(name)
        if not any(value == one and type(value) is type(one) for one in parameter.values):
            raise unknown_name(
                "value",
                value,
                parameter.values,
                where=f"parameter {name} of template {template.name}",
            )
    values = {one.name: given.get(one.name, one.default) for one in template.parameters}
    for one in template.parameters:
        if one.when is not None and not one.when({**dict(compiled), **values}):
            values[one.name] = one.default
    return tuple(values.items())


def preset_candidate(
    template: TemplateSpec, preset: str, compiled: Items, changes: Mapping[str, Value] | None = None
) -> Candidate:
    """The candidate that a preset names, with single parameters changed."""
    found = template.preset(preset)
    values = {**dict(found.parameters), **(changes or {})}
    return Candidate(
        template.kernel,
        template.name,
        complete_parameters(template, values, compiled),
        Origin(OriginKind.PRESET, preset=preset),
    )
