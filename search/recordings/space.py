"""A recording as a space: its rows are the points, and there are no others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from greenfast.search.kernels.spec import TemplateSpec
from greenfast.search.kernels.workloads import Items
from greenfast.search.recordings.contents import Recording
from greenfast.search.space.candidate import complete_parameters
from greenfast.search.space.points import Points
from greenfast.search.space.space import Space


class RecordedSpace(Space):
    """The recorded points of the swept template. The nearest of them replaces any other point."""

    def __init__(self, template: TemplateSpec, compiled: Items, recording: Recording) -> None:
        swept = _completed(template, compiled, recording)
        super().__init__(_narrowed(template, swept), compiled, recording.heading.device)
        self._recorded = dict.fromkeys(swept)  # in the order of the rows
        self._name = recording.heading.name
        self._is_complete = recording.heading.complete

    def why_not(self, parameters: Items) -> str | None:
        return (
            None
            if parameters in self._recorded
            else f"the recording {self._name} holds no such candidate"
        )

    @cached_property
    def points(self) -> Points:
        """The rows. Those of a complete sweep are all valid points, and have their order."""
        if self._is_complete:
            return super().points
        return Points(self.template.parameters, self.each_point())

    def each_point(self) -> Iterator[Items]:
        return iter(self._recorded)


def _completed(template: TemplateSpec, compiled: Items, recording: Recording) -> list[Items]:
    """The points of the template's rows, complete.

    Rows of the template's own parameters without conditions are complete: each of their values is
    checked once. A space of other people may have half a million rows.
    """
    points = [recording.parameters(row) for row in recording.rows if row.template == template.name]
    names = tuple(parameter.name for parameter in template.parameters)
    conditional = any(parameter.when is not None for parameter in template.parameters)
    if conditional or recording.heading.recorded_template(template.name).parameters != names:
        return [complete_parameters(template, dict(point), compiled) for point in points]
    for place, name in enumerate(names):
        for _, value in {(type(value), value) for value in (point[place][1] for point in points)}:
            complete_parameters(template, {name: value}, compiled)
    return points


def _narrowed(template: TemplateSpec, points: list[Items]) -> TemplateSpec:
    """The template with the recorded values only, and the presets that use no others."""
    recorded = {
        parameter.name: {point[place][1] for point in points}
        for place, parameter in enumerate(template.parameters)
    }
    parameters = []
    for parameter in template.parameters:
        values = tuple(value for value in parameter.values if value in recorded[parameter.name])
        default = parameter.default if parameter.default in values else values[0]
        parameters.append(replace(parameter, values=values, default=default))
    presets = tuple(
        preset
        for preset in template.presets
        if all(value in recorded[name] for name, value in preset.parameters)
    )
    return replace(template, parameters=tuple(parameters), presets=presets)
