"""A recording as a space: its rows are the points, and there are no others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from greenfast.search.kernels.spec import TemplateSpec
from greenfast.search.kernels.workloads import Items
from greenfast.search.recordings.contents import Recording
from greenfast.search.space.candidate import complete_parameters
from greenfast.search.space.space import Space


class RecordedSpace(Space):
    """The recorded points of the swept template. The nearest of them replaces any other point."""

    def __init__(self, template: TemplateSpec, compiled: Items, recording: Recording) -> None:
        swept = [
            complete_parameters(template, dict(recording.parameters(row)), compiled)
            for row in recording.rows
            if row.template == template.name
        ]
        super().__init__(_narrowed(template, swept), compiled, recording.heading.device)
        self._swept, self._recorded = tuple(dict.fromkeys(swept)), set(swept)
        self._name = recording.heading.name

    def why_not(self, parameters: Items) -> str | None:
        return (
            None
            if parameters in self._recorded
            else f"the recording {self._name} holds no such candidate"
        )

    def each_point(self) -> Iterator[Items]:
        return iter(self._swept)


def _narrowed(template: TemplateSpec, points: list[Items]) -> TemplateSpec:
    """The template with the recorded values only, and the presets that use no others."""
    recorded = {
        name: {dict(point)[name] for point in points}
        for name in (parameter.name for parameter in template.parameters)
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
