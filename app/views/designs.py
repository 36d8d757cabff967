"""A candidate as its nearest preset and what differs from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from greenfast.search.errors import GreenfastError
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.spec import TemplateSpec
from greenfast.search.kernels.submitted_name import is_submitted
from greenfast.search.kernels.workloads import Items
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.text import visible


@dataclass(frozen=True)
class Design:
    """`wmma:stage2` with `changes` of (parameter, value, the preset's value)."""

    template: str
    preset: str  # empty: the template's defaults
    changes: tuple[tuple[str, Any, Any], ...]

    @property
    def base(self) -> str:
        return f"{self.template}:{self.preset}" if self.preset else self.template

    def __str__(self) -> str:
        words = [self.base, *(f"{name}={written(value)}" for name, value, _ in self.changes)]
        return " ".join(words)


def written(value: object) -> str:
    """A parameter's value as it is written on the command line."""
    return str(value).lower() if isinstance(value, bool) else visible(value)


class Designs:
    """The designs of one kernel's candidates; without its templates, all values are changes."""

    def __init__(self, catalogue: Catalogue, kernel: str, compiled: Items) -> None:
        self._bases: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        try:
            templates: Sequence[TemplateSpec] = catalogue.kernel(kernel).templates
        except GreenfastError:
            return
        for template in templates:
            self._bases[template.name] = list(_bases(template, compiled))

    def of(self, template: str, parameters: Mapping[str, Any]) -> Design:
        """The preset with the fewest differences, the first of equals; else the defaults.

        A submission's single parameter repeats its digest, which is part of the template's name.
        """
        if is_submitted(template):
            return Design(template, "", ())
        designs = [
            Design(template, preset, _changes(parameters, values))
            for preset, values in self._bases.get(template, ())
        ]
        nearest = min(designs, key=lambda design: len(design.changes), default=None)
        return nearest or Design(template, "", _changes(parameters, {}))


def _bases(template: TemplateSpec, compiled: Items) -> list[tuple[str, dict[str, Any]]]:
    bases = []
    for preset in template.presets:
        try:
            bases.append((preset.name, preset_candidate(template, preset.name, compiled).values()))
        except GreenfastError:  # the preset is for other compile-time values
            continue
    defaults = {parameter.name: parameter.default for parameter in template.parameters}
    return [*bases, ("", defaults)]


def _changes(
    parameters: Mapping[str, Any], values: Mapping[str, Any]
) -> tuple[tuple[str, Any, Any], ...]:
    return tuple(
        (name, value, values.get(name))
        for name, value in parameters.items()
        if name not in values or type(values[name]) is not type(value) or values[name] != value
    )
