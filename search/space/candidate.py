"""A candidate: a template with concrete parameter values, and its origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from greenfast.search.digest import digest
from greenfast.search.errors import unknown_name
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import TemplateSpec
from greenfast.search.kernels.workloads import Items


class OriginKind(StrEnum):
    SAMPLED = "sampled"
    MUTATED = "mutated"  # from a single parent
    CROSSED = "crossed"  # from two parents
    REPAIRED = "repaired"  # the valid untried point nearest to the sampler's point
    PRESET = "preset"
    SEEDED = "seeded"
    SUBMITTED = "submitted"  # a source by its author; a parent is the digest of a source


@dataclass(frozen=True)
class Origin:
    kind: OriginKind
    parents: tuple[str, ...] = ()  # digests of candidates
    preset: str = ""
    wanted: Items = ()  # of a repaired candidate: the sampler's values that were replaced


@dataclass(frozen=True)
class Candidate:
    """A point of a template's space; its identity is the template and the values."""

    kernel: str
    template: str
    parameters: Items  # complete, in the template's order
    origin: Origin

    DIGEST_EXCLUDES = frozenset({"origin"})

    @cached_property
    def digest(self) -> str:
        return digest(self)

    def values(self) -> dict[str, Value]:
        return dict(self.parameters)


def complete_parameters(
    template: TemplateSpec, given: Mapping[str, Value], compiled: Items
) -> Items:
    """Every parameter with its value: the given one, else its default.

    A parameter whose `when` does not hold has its default, so that equal designs have equal values.
    Raises UsageError for unknown parameters and values.
    """
    for name, value in given.items():
        parameter = template.parameter(name)
        if not parameter.has(value):
            raise unknown_name(
                "value",
                value,
                parameter.values,
                where=f"parameter {name} of template {template.name}",
            )
    values = {
        parameter.name: given.get(parameter.name, parameter.default)
        for parameter in template.parameters
    }
    for parameter in template.by_need:
        if parameter.when is not None and not parameter.when({**dict(compiled), **values}):
            values[parameter.name] = parameter.default
    return tuple(values.items())


def preset_candidate(
    template: TemplateSpec, preset: str, compiled: Items, changes: Mapping[str, Value] | None = None
) -> Candidate:
    """The candidate of a preset, with the parameters of `changes` replaced."""
    values = {**dict(template.preset(preset).parameters), **(changes or {})}
    return Candidate(
        template.kernel,
        template.name,
        complete_parameters(template, values, compiled),
        Origin(OriginKind.PRESET, preset=preset),
    )
